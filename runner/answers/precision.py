"""How much faster is a lower precision than fp32, at each size and context?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from runner.analysis.compare.pairs import match_closest
from runner.analysis.compare.speedups import _partner_key, compute_ratio
from runner.analysis.statistics import Ratio
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Missing, Power, Question, Row, View, choose
from runner.answers.shared import (
    CLOCKS,
    CONTEXT,
    PHASES,
    SIZE,
    about,
    best,
    cells_of,
    ended,
    fit_power,
    narrow,
    sizes_of,
    spread_of,
    unmeasured,
)
from runner.formats import at_tokens, format_number
from runner.results import Clock, StepResult
from runner.results.rows import Rows
from runner.schema import Model, Phase

BASE = "fp32"
PARAMETERS = Field.of("steps", "parameters", "note")
RATIO = Field(
    name="ratio", label="Speedup", unit="×", role="value", doc="Time in fp32 over time in the other precision."
)
LOW = Field(
    name="low", label="Speedup, low", unit="×", role="low", doc="95% interval that holds from process to process."
)
HIGH = Field(name="high", label="Speedup, high", unit="×", role="high")
BEFORE = Field(name="base_ms", label="fp32", unit="ms", role="note")
AFTER = Field(name="other_ms", label="Other", unit="ms", role="note")
DEVICE = Field(name="device_ratio", label="By device time", unit="×", role="note", doc="Where the host sets a time.")
VERDICT = Field(name="outcome", label="Verdict", role="status", doc="Faster or slower where 99% certain and beyond 1%.")
_WORDS = {"better": "faster", "worse": "slower", "same": "undecided"}


def answer(rows: Rows, asked: Asked) -> Answer:
    steps = [one for one in rows.every_step if one.status != "skipped"]
    sizes = sizes_of(steps)
    others = [name for name in ("bf16", "tf32", "fp16") if any(one.cell.precision == name for one in steps)]
    variant = choose(asked, "against", "Against fp32", others)
    pairs = {base.cell_id: (base, other) for base, other in _pair(steps, variant.chosen)}
    if not pairs:
        return Answer(
            question="precision", missing=(Missing(words="no step was measured both in fp32 and in a lower precision"),)
        )
    bases, choices = narrow([base for base, _ in pairs.values()], asked, drawn=("size", "context", "precision"))
    shown = [
        pairs[base.cell_id]
        for base in sorted(bases, key=lambda one: (one.cell.model_key is not None, one.cell.order, one.cell.context))
    ]
    clock = choose(
        asked,
        "clock",
        "Clock",
        [words for words, name in CLOCKS.items() if _timed(shown, "step", name)],
        default="throughput",
    )
    by = CLOCKS.get(clock.chosen, "step")
    phase = choose(asked, "phase", "Phase", [words for words, name in PHASES.items() if _timed(shown, name, by)])
    ratios = {words: [compute_ratio(*pair, phase=name, clock=by) for pair in shown] for words, name in PHASES.items()}
    sides = [side for pair in shown for side in pair]
    words = about(sides, "precision", more=[f"{BASE} → {variant.chosen}", clock.chosen])
    fields = (SIZE, CONTEXT, RATIO, LOW, HIGH, BEFORE, AFTER, DEVICE, VERDICT, PARAMETERS)

    def row(pair: tuple[StepResult, StepResult], found: Ratio | None, *, name: str) -> Row:
        base, other = pair
        times = [
            side.times[PHASES[name]].by(CLOCKS[clock.chosen]) if PHASES[name] in side.times else None for side in pair
        ]
        device = (
            compute_ratio(*pair, phase=PHASES[name], clock="device") if "host" in (base.bound, other.bound) else None
        )
        lost = [side for side in pair if side.status != "ok"]
        failed = f"{ended(lost[0])}, {'both' if len(lost) == 2 else lost[0].cell.precision}" if lost else ""
        values = (sizes[Model.of(base.cell)], base.cell.context or None)
        return Row(
            values=(
                *values,
                *((found.ratio, found.low, found.high) if found else (None, None, None)),
                *(time and time.ms for time in times),
                device and device.ratio,
                _WORDS[found.outcome] if found else failed or "no such time",
                base.parameters,
            ),
            cells=(base.cell_id, other.cell_id),
        )

    lines = [row(pair, found, name=phase.chosen) for pair, found in zip(shown, ratios[phase.chosen], strict=True)]
    gaps = [
        Row(
            values=(sizes[Model.of(one.cell)], column, *[None] * 6, "", one.parameters),
            wanted=(cell, replace(cell, precision=variant.chosen)),
        )
        for one, column, cell in unmeasured([base for base, _ in shown], across="context")
    ]
    matrix = View(
        name="precision-by-size",
        title=f"{variant.chosen} over {BASE}, {phase.chosen}",
        about=words,
        fields=fields,
        rows=(*lines, *gaps),
        draw=Draw(kind="matrix", value="ratio", low="low", high="high", down=("size",), across="context", center=1.0),
        note="Above 1× the lower precision is faster. Small: the 95% interval; gray: it includes 1.",
    )
    context = Counter(one.cell.context for one, _ in shown).most_common(1)[0][0]
    here = [(pair, place) for place, pair in enumerate(shown) if pair[0].cell.context == context]
    phase_field = Field.of("timings", "phase")
    by_phase = View(
        name="precision-by-phase",
        title=f"By phase at {context:,} tokens",
        about=words,
        fields=(phase_field, *fields),
        rows=tuple(
            Row(values=(name, *made.values), cells=made.cells)
            for pair, place in here
            for name in PHASES
            if (found := ratios[name][place]) and (made := row(pair, found, name=name))
        ),
        draw=Draw(
            kind="dots",
            value="ratio",
            low="low",
            high="high",
            down=("size", "phase"),
            series="phase",
            log="x",
            center=1.0,
            guides=(Guide(words="as fast", at=1.0),),
        ),
    )
    # Own models are other architectures: a trend with size is one of Stepscope's Transformer.
    family = [
        place
        for (base, _), place in here
        if base.cell.model_key is None and base.parameters and ratios[phase.chosen][place]
    ]
    points = [
        (shown[place][0].parameters or 0, found.ratio) for place in family if (found := ratios[phase.chosen][place])
    ]
    fit = fit_power(points)
    trends = [Guide(words=f"{format_number(10**fit.exponent)}× per tenfold size", power=fit)] if fit else []
    trend = View(
        name="precision-trend",
        title=f"Trend with size at {context:,} tokens, {phase.chosen}",
        about=words,
        fields=fields,
        rows=tuple(lines[place] for place in family),
        draw=Draw(
            kind="lines",
            value="ratio",
            low="low",
            high="high",
            across="parameters",
            series="",
            log="xy",
            guides=(*trends, Guide(words="as fast", at=1.0)),
        ),
    )
    known = [found for found in ratios[phase.chosen] if found]
    return Answer(
        question="precision",
        sentence=_say(matrix, variant.chosen, clock.chosen),
        more=f"{spread_of(known)}.{_say_trend(fit, context)}" if known else "",
        views=(matrix, by_phase, trend),
        choices=(variant, *choices, clock, phase),
        cells=cells_of(sides),
    )


def _say(matrix: View, variant: str, clock: str) -> str:
    known = [row for row in matrix.rows if matrix.get(row, "ratio") is not None]
    top = best(matrix)
    if top is None:
        return "No pair has a result."
    faster, slower = (sum(matrix.get(row, "outcome") == name for row in known) for name in ("faster", "slower"))
    at = f"**{top.values[0]}**{at_tokens(top.values[1] or 0)}"
    if not faster:
        return f"{variant} is faster in none of {len(known)} pairs, and slower in {slower} ({clock})."
    return (
        f"{variant} is up to **{format_number(top.values[2])}×** as fast as {BASE}, for {at}; "
        f"faster in {faster} of {len(known)} pairs, slower in {slower} ({clock})."
    )


def _say_trend(fit: Power | None, context: int) -> str:
    if fit is None or fit.low is None or fit.high is None:
        return ""
    interval = f"95% interval {format_number(10**fit.low)}–{format_number(10**fit.high)}×"
    reach = f"{interval}, {fit.points} sizes at {context:,} tokens"
    if fit.low <= 0 <= fit.high:
        return f" No trend with size is shown ({reach})."
    times = f"**{format_number(10 ** abs(fit.exponent))}×**"
    return f" The ratio {'grows' if fit.low > 0 else 'shrinks'} {times} per tenfold parameters ({reach})."


def _timed(pairs: Sequence[tuple[StepResult, StepResult]], phase: Phase, clock: Clock) -> bool:
    return any(compute_ratio(*pair, phase=phase, clock=clock) for pair in pairs)


def _pair(steps: Sequence[StepResult], variant: str) -> list[tuple[StepResult, StepResult]]:
    """Returns the pairs that differ in the precision alone, in the order of the rows: what `runner.analysis.pairs.pair`
    is to be (`speedups.compare` with the objections of `verdict.judge`)."""
    questions: dict[object, dict[str, list[StepResult]]] = {}
    for one in steps:
        if one.cell.precision in (BASE, variant):
            questions.setdefault(_partner_key(one, "precision"), {BASE: [], variant: []})[one.cell.precision].append(
                one
            )
    return [
        match_closest(sides[BASE], sides[variant]) for sides in questions.values() if sides[BASE] and sides[variant]
    ]


QUESTION = Question(
    name="precision",
    page="Mixed precision",
    words="How much faster is bf16 than fp32, at each size and context?",
    needs=("every_step",),
    answer=answer,
    course=("P3",),
)
