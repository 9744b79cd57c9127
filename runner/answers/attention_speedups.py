"""How much faster are fused and compiled implementations than naive attention?"""

from runner.analysis.pair import CLOCKS, Pair, name_attention, pair_cells, partner_key
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import about, cells_of, narrow
from runner.answers.speedup import HIGH, LOW, RATIO, VERDICT
from runner.answers.words import ATTENTION_PHASES, LEVEL, ended, explain_level, lacks
from runner.formats import format_bytes, format_number
from runner.results.cells import AttentionResult
from runner.results.rows import Rows
from runner.schema import Phase

WIDTH, LENGTH = Field.of("attention", "d_head"), Field.of("attention", "seq_len")
SAVED = Field("bytes_ratio", "Peak memory, naive over it", unit="×", role="note")
LATENCY = Field("latency_outcome", "By latency", role="note", doc="The verdict where the host's time counts, too.")
BASE = "naive"


def answer(rows: Rows, asked: Asked) -> Answer:
    cells = [one for one in rows.attention if one.status != "skipped"]
    ways = [name for name in dict.fromkeys(name_attention(one.cell) for one in cells) if name != BASE]
    against = choose(asked, "against", "Against naive", ways, default="sdpa")
    bases, others = ([one for one in cells if name_attention(one.cell) == name] for name in (BASE, against.chosen))
    pairs = {
        pair.base.cell_id: pair
        for pair in pair_cells(bases, others, key=lambda one: partner_key(one, "implementation", "backend"))
    }
    if not pairs:
        return Answer(missing=lacks("no attention was measured both naive and by another implementation"))
    shown, choices = narrow([pair.base for pair in pairs.values()], asked, drawn=("d_head", "seq_len"))
    kept = [pairs[one.cell_id] for one in sorted(shown, key=lambda one: (one.cell.d_head, one.cell.seq_len))]
    phases = [words for words, phase in ATTENTION_PHASES.items() if any(pair.ratio(phase=phase) for pair in kept)]
    phase = choose(asked, "phase", "Phase", phases)
    by = ATTENTION_PHASES.get(phase.chosen, "forward")
    clocks = [words for words, clock in CLOCKS.items() if any(pair.ratio(phase=by, clock=clock) for pair in kept)]
    clock = choose(asked, "clock", "Clock", clocks, default="GPU time")
    sides = [side for pair in kept for side in pair.sides]
    ratios = [pair.ratio(phase=by, clock=CLOCKS[clock.chosen]) for pair in kept if clock.chosen]
    view = View(
        name="attention-speedups",
        title=f"{against.chosen} over naive, {phase.chosen}",
        about=about(sides, "implementation", "backend", more=[f"{BASE} → {against.chosen}", clock.chosen]),
        fields=(WIDTH, LENGTH, RATIO, LOW, HIGH, LEVEL, SAVED, LATENCY, VERDICT),
        rows=tuple(_make_row(pair, by, clock.chosen) for pair in kept),
        draw=Draw("matrix", "ratio", down=("d_head",), across="seq_len", center=1.0),
        note=f"Time of naive attention over that of the other: above 1× the other is faster.{explain_level(ratios)}",
    )
    sentence, more = _say(view, kept, against.chosen, clock.chosen)
    return Answer(
        sentence=sentence,
        more=more,
        views=(view,),
        choices=(against, *choices, clock, phase),
        cells=cells_of(sides),
    )


def _make_row(pair: Pair[AttentionResult], phase: Phase, clock: str) -> Row:
    ratio = pair.ratio(phase=phase, clock=CLOCKS[clock]) if clock else None
    latency = pair.ratio(phase=phase) if clock == "GPU time" else None
    peaks = [side.peak_allocated_bytes for side in pair.sides]
    lost = [side for side in pair.sides if side.status != "ok"]
    ends = {ended(side).partition(" in ")[0] for side in lost}
    failed = ", ".join(f"{name_attention(side.cell)} {ended(side)}" for side in lost) or pair.objection
    failed = f"{ends.pop()}, both" if len(lost) == 2 and len(ends) == 1 else failed
    return Row.of(
        pair.sides,
        pair.base.cell.d_head,
        pair.base.cell.seq_len,
        *((ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)),
        ratio and ratio.level,
        peaks[0] / peaks[1] if peaks[0] and peaks[1] and not lost else None,
        latency and latency.outcome,
        ratio.outcome if ratio else failed or "no such time",
    )


def _say(view: View, pairs: list[Pair[AttentionResult]], other: str, clock: str) -> tuple[str, str]:
    known = [row for row in view.rows if view.get(row, "ratio") is not None]
    decided = [row for row in known if view.get(row, "outcome") in ("faster", "slower")]
    if not known:
        return f"No pair of naive attention and {other} has a time.", ""
    low, *_, top = sorted((decided or known) * 2, key=lambda row: view.get(row, "ratio"))
    several = len({pair.base.cell.d_head for pair in pairs}) > 1
    ends = [
        f"**{format_number(view.get(row, 'ratio'))}×** ({row.values[1]:,} tokens"
        f"{f', heads {row.values[0]} wide' if several else ''})"
        for row in (low, top)
    ]
    counts = f"faster in {sum(view.get(row, 'outcome') == 'faster' for row in known)} of {len(known)} pairs"
    text = f"{other} is {ends[0]} to {ends[1]} as fast as naive attention: {counts} ({clock})"
    outcomes = [found for row in known if (found := view.get(row, LATENCY.name))]
    more = f"By latency it is faster in {outcomes.count('faster')} of {len(outcomes)}. " if outcomes else ""
    longest = [pair for pair in pairs if pair.base.peak_allocated_bytes and pair.other.peak_allocated_bytes]
    if longest:
        pair = max(longest, key=lambda one: one.base.peak_allocated_bytes or 0)
        sizes = [format_bytes(side.peak_allocated_bytes or 0) for side in pair.sides]
        one = pair.base.cell
        place = f"{one.seq_len:,} tokens, heads {one.d_head} wide"
        more += f"At {place}, {other} needs **{sizes[1]}** instead of {sizes[0]}."
    return f"{text}.", more.strip()


QUESTION = Question(answer=answer, needs=("attention",), course=("A3", "C1"))
