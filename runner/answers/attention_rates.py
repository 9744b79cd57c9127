"""What rate does each implementation of attention reach, at which length and width, and how right is it?

FLOPs are those of `runner.analysis.costs.attention`, so that a kernel which skips the masked half of a causal product
gains nothing by it. Kernels are compared as papers do, in the precision that most of them compute in, at a constant
number of tokens: a longer sequence or a wider head has a smaller batch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.analysis.costs.attention import backward_flops, forward_flops
from runner.analysis.pair import name_attention
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import about, cells_of, clock_choice, narrow
from runner.answers.words import CLOCKS, STATUS, ended, lacks
from runner.formats import format_number, format_share
from runner.results.cells import AttentionResult
from runner.results.rows import Rows
from runner.schema import Phase

WAY = Field.of("attention", "implementation")
WIDTH, LENGTH = Field.of("attention", "d_head"), Field.of("attention", "seq_len")
RATE = Field("tflops", "Rate", unit="TFLOP/s", role="value", doc="FLOPs by FlashAttention's count over the time.")
LOW, HIGH = (replace(RATE, name=f"tflops_{end}", role=end) for end in ("low", "high"))
SHARE = Field(
    "share", "Share of matrix products", unit="%", role="note", doc="Of the measured rate of matrix products."
)
ERROR = Field(
    "error", "Error", role="note", doc="‖x − ref‖ / ‖ref‖ against float64, the worst of output and gradients."
)
BATCH = Field.of("attention", "batch", "note")
_PHASES: dict[str, Phase] = {"forward": "forward", "backward": "backward", "both passes": "forward_backward"}
#: What the matrix shows.
_SHOWN = {"TFLOP/s": RATE, "share of matrix products": SHARE, "error": ERROR}


def answer(rows: Rows, asked: Asked) -> Answer:
    cells = [one for one in rows.attention if one.status != "skipped"]
    if not any(one.times for one in cells):
        return Answer(missing=lacks("no attention was timed"))
    ways = Counter(precision for precision, _ in {(one.cell.precision, name_attention(one.cell)) for one in cells})
    asked = {"precision": max(ways, key=lambda one: (ways[one], one)), **asked}
    cells, choices = narrow(cells, asked, drawn=("implementation", "backend", "seq_len", "d_head", "batch"))
    by_batch = _group_by_batch(cells)
    batch = choose(asked, "batch", "Batch", [*by_batch], prefix="batch ")
    cells = by_batch[batch.chosen]
    phase = choose(asked, "phase", "Phase", [*_PHASES], default="both passes")
    shown = choose(asked, "shown", "Shown", [*_SHOWN])
    clock = clock_choice(asked, cells, default="throughput")
    peak = _find_peak(rows, cells)
    lines = [_make_row(one, _PHASES[phase.chosen], CLOCKS[clock.chosen], peak) for one in cells]
    fastest = dict[Any, float]()  # the fastest implementation of a width comes first
    for width, way, _, rate, *_ in (row.values for row in lines):
        fastest[width, way] = max(fastest.get((width, way), 0.0), rate or 0.0)
    lines.sort(key=lambda row: (row.values[0], -fastest[row.values[:2]], row.values[1:3]))
    value = _SHOWN[shown.chosen]
    numbers = [replace(one, role="value" if one is value else "note") for one in _SHOWN.values()]
    ends = [end if value is RATE else replace(end, role="note") for end in (LOW, HIGH)]
    view = View(
        name="attention-rates",
        title=f"Rate of attention, {phase.chosen}" if value is RATE else f"{value.title} of attention, {phase.chosen}",
        about=about(cells, "implementation", "backend", "batch", more=[clock.chosen, f"batch {batch.chosen}"]),
        fields=(WIDTH, WAY, LENGTH, *numbers, *ends, BATCH, STATUS),
        rows=tuple(lines),
        draw=Draw("matrix", value.name, down=("d_head", "implementation"), across="seq_len"),
        note="Causal attention counts half of the FLOPs, as in FlashAttention's papers."
        + (f" Matrix products reach {peak / 1e12:,.0f} TFLOP/s here." if peak else ""),
    )
    wrong = dict.fromkeys(name_attention(one.cell) for one in cells if one.status == "wrong")
    return Answer(
        sentence=_say(view, phase.chosen),
        more=f"Wrong, and so without a rate: {', '.join(wrong)}." if wrong else "",
        views=(view,),
        choices=(*choices, batch, clock, phase, shown),
        cells=cells_of(cells),
    )


def _group_by_batch(cells: Sequence[AttentionResult]) -> Mapping[str, list[AttentionResult]]:
    """Returns the cells of each batch, the commonest first, and before them those whose batch makes up for their length
    and width: as many tokens a pass, in as many heads as are as wide together."""
    constant, batches = dict[int, list[AttentionResult]](), dict[int, list[AttentionResult]]()
    for one in cells:
        batch = one.cell.batch
        constant.setdefault(batch * one.cell.seq_len * one.cell.d_head, []).append(one)
        batches.setdefault(batch, []).append(one)
    usual = max(constant.values(), key=lambda ones: (len({one.cell.batch for one in ones}), len(ones)))
    varies = len({one.cell.batch for one in usual}) > 1
    common = sorted(batches, key=lambda batch: (-len(batches[batch]), batch))
    return ({"of constant tokens": usual} if varies else {}) | {f"{batch:,}": batches[batch] for batch in common}


def _find_peak(rows: Rows, cells: Sequence[AttentionResult]) -> float | None:
    """Returns the measured rate of matrix products in the cells' precision on their machine (FLOP/s)."""
    runs = {run.run_id for run in rows.runs if run.machine == cells[0].machine}
    known = [
        one.flops_per_s
        for one in rows.ceilings
        if one.run_id in runs and one.precision == cells[0].cell.precision and one.flops_per_s
    ]
    return max(known, default=None)


def _make_row(one: AttentionResult, phase: Phase, clock: Any, peak: float | None) -> Row:
    forward, backward = forward_flops(one.cell), backward_flops(one.cell)
    flops = {"forward": forward, "backward": backward}.get(phase, forward + backward)
    time = one.time(phase, clock)
    times = (time.ms, time.high_ms, time.low_ms) if time and one.status == "ok" else (None, None, None)
    rate, low, high = (flops / ms / 1e9 if ms else None for ms in times)
    errors = [error for error in (one.output_error, one.gradient_error) if error is not None]
    return Row.of(
        one,
        one.cell.d_head,
        name_attention(one.cell),
        one.cell.seq_len,
        rate,
        rate * 1e12 / peak if rate and peak else None,
        max(errors, default=None),
        low,
        high,
        one.cell.batch,
        ended(one),
    )


def _say(view: View, phase: str) -> str:
    known = [row for row in view.rows if view.get(row, "tflops")]
    if not known:
        return "No implementation of attention has a rate here."
    width, way, length, rate, share = max(known, key=lambda row: view.get(row, "tflops")).values[:5]
    text = f"The highest rate of attention ({phase}) is **{format_number(rate)} TFLOP/s**: {way}, {length:,} tokens, "
    text += f"heads {width} wide"
    return f"{text}, **{format_share(share)}** of what matrix products reach here." if share else f"{text}."


QUESTION = Question(answer=answer, needs=("attention", "ceilings", "runs"))
