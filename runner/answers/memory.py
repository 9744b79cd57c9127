"""How much memory does a step need, and what fills it?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from runner.analysis.pair import pair_cells
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Question, Row, View
from runner.answers.shared import about, best, cells_of, lost_of, narrow, place_of, sizes_of, unmeasured
from runner.answers.words import CONTEXT, SIZE, STATUS, ended_with_need, fit_power, lacks, write
from runner.formats import at_tokens, format_bytes, format_list, format_share
from runner.results.cells import Peak
from runner.results.rows import Rows

PEAK = Field.of("memory", "peak_allocated_bytes", "value")
PREDICTED = Field.of("memory", "predicted_peak_bytes", "note")
PART = Field("part", "Part")
HELD = Field("held_bytes", "Alive at the peak", unit="bytes", role="value")
_WORDS = {
    "parameter": "weights",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    "activation": "activations",
    "autocast copy": "bf16 copies",
    "input": "inputs",
    "temporary": "temporaries",
    "workspace": "workspace",
    "rounding": "rounding",
    "unknown": "unknown",
}


def answer(rows: Rows, asked: Asked) -> Answer:
    cells = [one for one in rows.peaks if one.status != "skipped" and not one.cell.timeline]
    if not cells:
        return Answer(missing=lacks("no memory was measured"))
    shown, choices = narrow(cells, asked, drawn=("size", "context"))
    sizes, words = sizes_of(cells), about(shown)
    key = {one.cell_id: place_of(one, sizes) for one in shown}
    limit = max((one.machine_bytes or 0 for one in shown), default=0)
    fields = (SIZE, CONTEXT, PEAK, PREDICTED, Field.of("memory", "peak_phase", "note"), STATUS)
    lines = tuple(
        Row.of(
            one,
            *key[one.cell_id],
            one.peak_allocated_bytes if one.status == "ok" else None,
            one.predicted_peak_bytes,
            one.peak_phase,
            ended_with_need(one),
        )
        for one in shown
    )
    holds = [Guide(words=f"the device holds {format_bytes(limit)}", at=float(limit), is_limit=True)] if limit else []
    gaps = tuple(
        Row(values=(key[one.cell_id][0], column, None, None, None, ""), wanted=(cell,))
        for one, column, cell in unmeasured(shown, across="context")
    )
    matrix = View(
        name="memory-by-size",
        title="Peak memory of a step",
        about=words,
        fields=fields,
        rows=lines + gaps,
        draw=Draw("matrix", "peak_allocated_bytes", down=("size",), across="context", log="x"),
    )
    parts = View(
        name="memory-parts",
        title="What fills the peak",
        about=words,
        fields=(SIZE, CONTEXT, PART, HELD, STATUS),
        rows=tuple(row for one in shown for row in _parts(one, key[one.cell_id])),
        draw=Draw("bars", "held_bytes", down=("size", "context"), series="part", total="peak", guides=tuple(holds)),
    )
    growth = View(
        name="memory-by-context",
        title="Peak memory against the context",
        about=words,
        fields=fields,
        rows=lines,
        draw=Draw("lines", "peak_allocated_bytes", across="context", series="size", log="xy", guides=tuple(holds)),
        note="Flat: weights, gradients and optimizer state. Rising: activations.",
    )
    views = (matrix, parts, growth, *_beside_other_precision(shown, cells, key))
    sentence, more = _say(matrix, parts)
    return Answer(sentence=sentence, more=more, views=views, choices=tuple(choices), cells=cells_of(shown))


def _parts(one: Peak, key: tuple[str, int | None]) -> list[Row]:
    if one.status != "ok":
        return [Row.of(one, *key, "peak", None, ended_with_need(one))]
    found = {_WORDS[name]: size for name, size in one.parts.items() if size and name in _WORDS}
    return [Row.of(one, *key, name, size, "") for name, size in {**found, "peak": one.peak_allocated_bytes}.items()]


def _beside_other_precision(
    shown: Sequence[Peak], cells: Sequence[Peak], key: Mapping[UUID, tuple[str, int | None]]
) -> list[View]:
    """Returns a view of the peaks in mixed precision beside those in fp32, where both were measured alike."""
    of_fp32 = [one for one in shown if one.cell.precision == "fp32" and one.peak_allocated_bytes]
    of_bf16 = [one for one in cells if one.cell.precision == "bf16" and one.peak_allocated_bytes]
    pairs = pair_cells(of_fp32, of_bf16, key=lambda one: (one.machine, replace(one.cell, precision="fp32").key))
    if not pairs:
        return []
    lines = []
    for pair in pairs:
        base, other = (side.peak_allocated_bytes or 0 for side in pair.sides)
        copies = pair.other.parts.get("autocast copy")
        lines.append(Row.of(pair.sides, *key[pair.base.cell_id], base, other, base / other, copies))
    return [
        View(
            name="memory-by-precision",
            title="Peak in fp32 over the peak in bf16",
            about=about([pair.base for pair in pairs], "precision"),
            fields=(
                SIZE,
                CONTEXT,
                Field("fp32_bytes", "fp32", unit="bytes", role="note"),
                Field("bf16_bytes", "bf16", unit="bytes", role="note"),
                Field("ratio", "fp32 over bf16", unit="×", role="value"),
                Field("copies_bytes", "bf16 copies", unit="bytes", role="note"),
            ),
            rows=tuple(lines),
            draw=Draw("matrix", "ratio", down=("size",), across="context", center=1.0),
            note="Above 1× bf16 needs less. Below: autocast keeps a bf16 copy of every weight that it multiplies.",
        )
    ]


def _say(matrix: View, parts: View) -> tuple[str, str]:
    top = best(matrix)
    if top is None:
        return "None of these cells has a peak.", ""
    size, context, peak = top.values[:3]
    mine = [row for row in parts.rows if row.cells == top.cells and row.values[2] != "peak"]
    mine.sort(key=lambda row: -(row.values[3] or 0))
    shares = [f"{row.values[2]} {format_share(row.values[3] / peak)}" for row in mine[:3]]
    text = f"The largest peak, **{size}**{at_tokens(context or 0)}, is **{write(peak, 'bytes')}**: "
    text += f"{format_list(shares)}."
    own = [(row.values[1], row.values[2]) for row in matrix.rows if row.values[0] == size and row.values[2]]
    more = ""
    if (fit := fit_power(own)) and fit.points > 1:
        first, last = min(own), max(own)
        ratio = write(last[1] / first[1], "×")
        changes = f"grows **{ratio}**" if last[1] > 1.01 * first[1] else f"hardly changes ({ratio})"
        more = f"{size} {changes} from {first[0]:,} to {last[0]:,} tokens. "
    if lost := lost_of(matrix):
        first_lost = min(lost, key=lambda row: row.values[3] or 0)
        more += f"**{first_lost.values[0]}**{at_tokens(first_lost.values[1] or 0)} ran {matrix.ended(first_lost)}."
    return text, more.strip()


QUESTION = Question(answer=answer, needs=("peaks",), course=("M2", "M3"))
