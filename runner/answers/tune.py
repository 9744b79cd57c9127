"""What is the fastest way to train this model here?

Of one model at one length, every batch and every setting that was measured, however carefully: by `stepscope tune`,
which races them, or by a sweep. Cost is the price of an hour over the tokens of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.analysis.pair import compute_ratio, rank_effort
from runner.analysis.statistics import Ratio
from runner.answers.answer import Answer, Asked, Choice, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.shared import about, cells_of, narrow, sizes_of
from runner.answers.words import LEVEL, STATUS, ended, explain_level, lacks, plain_cells
from runner.formats import at_tokens, format_number, format_share
from runner.results.cells import StepResult
from runner.results.rows import Rows
from runner.schema import Model, StepCell
from runner.schema.axes import PLAIN
from runner.schema.own import is_own_part, part_title

WAY = Field("way", "Way")
ROUNDS = Field.of("steps", "round", "note", label="Processes")
RATE = Field("tokens_per_s", "Throughput", unit="tokens/s", role="value")
LOW, HIGH = (replace(RATE, name=f"tokens_per_s_{end}", role=end) for end in ("low", "high"))
MFU = Field("mfu", "MFU", unit="%", role="note", doc="Share of the device's peak in the precision of its sums.")
PEAK = Field("peak_gib", "Peak", unit="GiB", role="note", doc="Peak of live tensors.")
JOULES = Field("joules", "J/1,000 tokens", role="note", doc="Energy of 1,000 tokens (J), by the GPU's own counter.")
COST = Field("cost", "Cost/10⁹ tokens", role="note", doc="In your currency: the price of an hour over its tokens.")
BESIDE = Field("beside", "Beside the first", role="note")
CHOICE = Field("choice", "Taken back")
RATIO = Field("ratio", "It brings", unit="×", role="value", doc="Tokens per second with it over those without.")
RATIO_LOW, RATIO_HIGH = (replace(RATIO, name=f"ratio_{end}", role=end) for end in ("low", "high"))
CODE = Field("code", "In PyTorch", role="note")
#: The settings of a way in the order of its name, in words; the batch comes first.
WORDS: Mapping[str, str] = {
    "precision": "{}",
    "attention": "{}",
    "optimizer": "{} AdamW",
    "backend": "{}",
    "weights_dtype": "{} weights",
    "checkpoint_blocks": "checkpointing {}",
}
#: What a setting is in a user's own code.
CODES: Mapping[tuple[str, Any], str] = {
    ("precision", "bf16"): 'with torch.autocast("cuda", torch.bfloat16): loss = step(batch)',
    ("precision", "fp16"): 'with torch.autocast("cuda", torch.float16): …  # and torch.amp.GradScaler()',
    ("precision", "tf32"): 'torch.backends.cuda.matmul.fp32_precision = "tf32"',
    ("weights_dtype", "bf16"): "model.to(torch.bfloat16)",
    ("backend", "compiled"): "model = torch.compile(model)",
    ("backend", "compiled-block"): "for block in model.blocks: block.compile()",
    ("backend", "compiled-reduce-overhead"): 'model = torch.compile(model, mode="reduce-overhead")',
    ("backend", "compiled-max-autotune"): 'model = torch.compile(model, mode="max-autotune")',
    ("backend", "cuda-graphs"): "with torch.cuda.graph(graph): step(batch)  # then graph.replay()",
    ("attention", "sdpa"): "scaled_dot_product_attention(q, k, v, is_causal=True)",
    ("attention", "flex"): "flex_attention(q, k, v, block_mask=causal)",
    ("attention", "sdpa-cudnn"): "with sdpa_kernel(SDPBackend.CUDNN_ATTENTION): …",
    ("attention", "sdpa-flash"): "with sdpa_kernel(SDPBackend.FLASH_ATTENTION): …",
    ("attention", "sdpa-efficient"): "with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION): …",
    ("attention", "sdpa-math"): "with sdpa_kernel(SDPBackend.MATH): …",
    ("optimizer", "fused"): "torch.optim.AdamW(model.parameters(), fused=True)",
    ("optimizer", "for-loop"): "torch.optim.AdamW(model.parameters(), foreach=False)",
}
#: How close to the best a way may be to stand before it where no interval tells them apart: energy has none.
CLOSE = 0.9
#: What is said of a way that is as fast as the first, as far as the interval says.
EQUAL = "cannot be told apart"
#: What the reader may rank by.
RANKS = ("tokens/s", "tokens/J", "cost")
_PRICES, _MEMORY = ("2", "1", "3", "4", "6"), ("all", "16", "24", "40", "48", "80")


def name_setting(name: str, value: Any) -> str:
    """Returns a setting in words, `fused AdamW`, and an own part by its name: an own optimizer may be no AdamW."""
    return str(part_title(value)) if is_own_part(value) else WORDS[name].format(value)


def name_way(cell: StepCell) -> str:
    """Returns the settings in which a step is not the plain one: `bf16 + sdpa + fused AdamW`."""
    words = [
        name_setting(name, getattr(cell, name)) for name in WORDS if getattr(cell, name) not in (PLAIN[name], "own")
    ]
    return " + ".join(words) or "fp32, eager"


def answer(rows: Rows, asked: Asked) -> Answer:
    trained = [one for one in rows.every_step if one.cell.mode == "train"]
    shown, choices = narrow([one for one in trained if one.rate], asked, drawn=("batch", *PLAIN))
    if not shown:
        return Answer(missing=lacks("no training step was measured", plain_cells(StepCell)))
    by = choose(asked, "by", "Ranked by", [name for name in RANKS if name != "tokens/J" or any(map(_joules, shown))])
    price = _choose_number(asked, "price", _PRICES, "price of an hour: ")
    memory = _choose_number(asked, "memory", _MEMORY, "memory (GiB): ")
    # Of each way the result that was measured most carefully.
    best = [*{_name(one): one for one in sorted(shown, key=lambda one: (rank_effort(one), one.rounds))}.values()]
    if memory.chosen != "all":
        best = [one for one in best if (one.peak_reserved_bytes or 0) <= float(memory.chosen) * 2**30]
    if not best:
        sentence = f"No measured way fits into **{memory.chosen} GiB**."
        return Answer(sentence=sentence, choices=(*choices, by, price, memory))
    timed = _rank(best, by.chosen)
    ranking = _draw_ranking(timed, float(price.chosen), about(shown, "batch", *PLAIN))
    buys = _draw_choices(timed[0], trained, about(timed[:1]))
    front = _draw_front(ranking)
    equal = [ranking.get(row, "way") for row in ranking.rows[1:] if ranking.get(row, "beside") == EQUAL]
    return Answer(
        sentence=_say(timed, ranking, by.chosen),
        more=f"{len(equal)} of the others cannot be told apart from it, first {equal[0]}." if equal else "",
        views=(ranking, buys, front) if len(front.rows) > 1 else (ranking, buys),
        choices=(*choices, by, price, memory),
        cells=cells_of(timed, (one for one in trained if any(one.cell_id in row.cells for row in buys.rows))),
    )


def _choose_number(asked: Asked, name: str, offered: Sequence[str], prefix: str) -> Choice:
    wanted = asked.get(name, "")
    is_own = wanted not in offered and wanted.replace(".", "", 1).isdecimal() and float(wanted) > 0
    return choose(asked, name, name.capitalize(), (*offered, *((wanted,) if is_own else ())), prefix=prefix)


def _name(one: StepResult) -> str:
    return f"batch {one.cell.batch} · {name_way(one.cell)}"


def _joules(one: StepResult) -> float | None:
    """Returns the energy of 1,000 tokens (J)."""
    return 1000 * one.step_joules / one.tokens if one.step_joules else None


def _score(one: StepResult, by: str) -> float:
    return 1 / (_joules(one) or float("inf")) if by == "tokens/J" else one.rate or 0.0


def _rank(found: Sequence[StepResult], by: str) -> list[StepResult]:
    """Returns the ways from the best on. Of those that cannot be told apart from the best, the one that most processes
    measured is the first: one process may have had luck."""
    ranked = sorted(found, key=lambda one: -_score(one, by))

    def is_equal(one: StepResult) -> bool:
        ratio = _compare(ranked[0], one)
        has_interval = by != "tokens/J" and ratio is not None and ratio.low is not None
        is_near = has_interval or _score(one, by) > CLOSE * _score(ranked[0], by)
        return is_near and (ratio is None or ratio.outcome != "slower")

    equal = sorted(filter(is_equal, ranked), key=lambda one: -one.rounds)

    def is_beaten(one: StepResult) -> bool:  # by one before it: then it is not the best, however many measured it
        ratios = [_compare(other, one) for other in ranked if _score(other, by) > _score(one, by)]
        return any(ratio and ratio.outcome == "slower" for ratio in ratios)

    first = next((one for one in equal if not is_beaten(one)), ranked[0])
    return [first, *(one for one in ranked if one is not first)]


def _compare(a: StepResult, b: StepResult) -> Ratio | None:
    """Returns how much faster `b` is than `a`, by the loop's clock where both have it."""
    found, more = compute_ratio(a, b, clock="loop") or compute_ratio(a, b), b.tokens / a.tokens
    low, high = (found.low and found.low * more, found.high and found.high * more) if found else (None, None)
    return found and replace(found, ratio=found.ratio * more, low=low, high=high)


def _draw_ranking(timed: Sequence[StepResult], price: float, words: str) -> View:
    lines = []
    for one in timed:
        times = one.times["step"]
        time, rate = times.by("loop") or times.step, one.rate or 0.0
        ends = (one.tokens / ms * 1e3 if ms else None for ms in (time.high_ms, time.low_ms))
        ratio = _compare(timed[0], one)
        beside = "first" if one is timed[0] else "" if ratio is None else _say_beside(ratio)
        peak = one.peak_allocated_bytes and one.peak_allocated_bytes / 2**30
        values = (one.mfu_at(rate), peak, _joules(one), price * 1e9 / (rate * 3600), beside, one.rounds)
        lines.append(Row.of(one, _name(one), rate, *ends, *values))
    return View(
        name="tune-ranking",
        title="Measured ways to train, the best first",
        about=words,
        fields=(WAY, RATE, LOW, HIGH, MFU, PEAK, JOULES, COST, BESIDE, ROUNDS),
        rows=tuple(lines),
        draw=Draw("bars", "tokens_per_s", down=("way",), beside=("mfu",), caption="beside"),
        columns=("tokens_per_s", "mfu", "peak_gib", "joules", "cost"),
        note=f"Cost where an hour costs {price:g}, in your currency. First is, of those that cannot be told apart from "
        "the fastest, the way that most processes measured.",
    )


def _say_beside(ratio: Ratio) -> str:
    if ratio.outcome in ("same", "undecided") and ratio.low is not None:
        return EQUAL
    return f"{format_number(ratio.ratio)}×{'' if ratio.low else ', without an interval'}"


def _draw_choices(best: StepResult, trained: Sequence[StepResult], words: str) -> View:
    """Draws the best way against itself with one setting as in a plain step."""
    lines, ratios = [], []
    # What the compiler's cache held changes the time to compile, not that of a step.
    warm: dict[str, Any] = {"compile_cache": "shared"}
    by_key = {replace(one.cell, **warm).key: one for one in trained if one.machine == best.machine}
    for name in ("batch", *WORDS):
        value = getattr(best.cell, name)
        plain = PLAIN.get(name, StepCell.batch)
        if value in (plain, "own"):
            continue
        changed = {**warm, name: plain, **({"weights_dtype": "fp32"} if name == "precision" else {})}
        wanted = replace(best.cell, **changed)
        other = by_key.get(wanted.key)
        ratio = _compare(other, best) if other and other.rate else None
        ratios.append(ratio)
        said = f"batch {value} instead of {plain}" if name == "batch" else name_setting(name, value)
        numbers = (ratio.ratio, ratio.low, ratio.high, ratio.level) if ratio else (None,) * 4
        status = "" if ratio else f"without it: {ended(other)}" if other else ""
        cells, values = (other.cell_id, best.cell_id) if other else (), (said, *numbers, status)
        code = CODES.get((name, value), "")
        lines.append(Row(values=(*values, code), cells=cells, wanted=() if other else (wanted,)))
    return View(
        name="tune-choices",
        title=f"What each choice of the first brings: {_name(best)}",
        about=words,
        fields=(CHOICE, RATIO, RATIO_LOW, RATIO_HIGH, LEVEL, STATUS, CODE),
        rows=tuple(lines),
        draw=Draw("dots", "ratio", down=("choice",), log="x", center=1.0, beside=("code",)),
        note=f"The first against itself with one setting taken back.{explain_level(ratios)}",
    )


def _draw_front(ranking: View) -> View:
    """Draws the ways than which no other is both faster and smaller."""
    known = [row for row in ranking.rows if ranking.get(row, "peak_gib")]
    known.sort(key=lambda row: (ranking.get(row, "peak_gib"), -ranking.get(row, "tokens_per_s")))
    front: list[Row] = []
    for row in known:
        if not front or ranking.get(row, "tokens_per_s") > ranking.get(front[-1], "tokens_per_s"):
            front.append(row)
    fields = (replace(PEAK, role="key"), RATE, LOW, HIGH, replace(WAY, role="note"))
    return View(
        name="tune-front",
        title="The least memory for so many tokens per second",
        about=ranking.about,
        fields=fields,
        rows=tuple(Row(values=tuple(ranking.get(row, one.name) for one in fields), cells=row.cells) for row in front),
        draw=Draw("lines", "tokens_per_s", across="peak_gib"),
        note="Each point is the smallest measured way that is as fast.",
    )


def _say(timed: Sequence[StepResult], ranking: View, by: str) -> str:
    first = ranking.rows[0]
    rate, mfu = ranking.get(first, "tokens_per_s"), ranking.get(first, "mfu")
    best = {"tokens/J": "thriftiest", "cost": "cheapest"}.get(by, "fastest")
    cell = timed[0].cell
    model = f"{sizes_of(timed)[Model.of(cell)]}{at_tokens(cell.context)}"
    text = f"The {best} of {len(timed)} measured ways to train **{verbatim(model)}**: **{_name(timed[0])}**"
    if by == "tokens/J":
        text += f", **{format_number(ranking.get(first, 'joules'))} J per 1,000 tokens**"
    if by == "cost":
        text += f", **{format_number(ranking.get(first, 'cost'))} for 10⁹ tokens**"
    text += f", **{format_number(rate)} tokens/s**"
    return f"{text}, {format_share(mfu)} MFU." if mfu else f"{text}."


QUESTION = Question(answer=answer, needs=("every_step",))
