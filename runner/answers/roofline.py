"""How close does each step come to the limits of its machine, and what limits it?

The roof is the highest rate that the machine reached for products of the step's precision and for copies of memory
(`runner.analysis.roofline`); the datasheet's stands in where the machine was not measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, get_args

from runner.analysis import roofline
from runner.analysis.costs import hardware
from runner.analysis.costs.steps import Device, step_flops
from runner.analysis.roofline import Bound, Roof
from runner.answers.answer import Answer, Asked, Draw, Field, Missing, Question, Row, View
from runner.answers.shared import about, best, cells_of, clock_choice, name_time, narrow, sizes_of
from runner.answers.words import CLOCKS, CONTEXT, SIZE, STATUS, ended, lacks, plain_cells
from runner.formats import at_tokens, format_list, format_quantity, format_share
from runner.results.cells import KernelTrace, StepResult
from runner.results.rows import Rows
from runner.schema import TABLES, CeilingRow, Model, StepCell
from runner.schema.axes import MODEL

SHARE = Field(
    "roof_share",
    "Share of the roof",
    unit="%",
    role="value",
    doc="Rate of the step over what the roof allows at its FLOP per byte, which counts the fewest bytes.",
)
RATE = Field("tflops", "Rate", unit="TFLOP/s", role="note", doc="Matrix products of a step over its time.")
INTENSITY = Field("intensity", "Operations per byte", unit="FLOP/B", role="note")
ROOF = Field("roof_tflops", "Roof there", unit="TFLOP/s", role="note")
LEAST = Field("least_ms", "Least step", unit="ms", role="note", doc="Each phase at its limit.")
MS = Field("ms", "Step", unit="ms", role="note")
MFU = Field("mfu", "MFU", unit="%", role="note", doc="Of the roof's rate of products.")
CAUSAL = Field("causal_mfu", "Causal MFU", unit="%", role="note", doc="Half of attention's square counted.")
HFU = Field("hfu", "HFU", unit="%", role="note", doc="With what checkpointing computes again.")
LIMIT = Field("limit", "Limit")
TOTAL = "whole step"
UNPROFILED = Field.of("profiles", "unprofiled_step_ms", "note", label="Step of the traced process, latency")
TIME_SHARE = Field("share", "Share of the time", unit="%", role="value")
CEILING = Field("ceiling", "Ceiling")
MOMENT = Field("moment", "When")
CEILING_RATE = Field("rate", "Rate", role="value")
SPREAD = Field("interval_percent", "Half of its interval", unit="% of the rate", role="note")
OF_SHEET = Field("of_datasheet", "Of the datasheet", unit="%", role="note")
_LIMITS: Mapping[Bound, str] = {
    "compute": "compute-bound", "memory": "memory-bound", "launch": "waits for the host", "unknown": "not known",
}  # fmt: skip
_MOMENTS = {"start": "sweep's start", "end": "sweep's end"}
#: The unit in which ceilings are written: products in TFLOP/s, copies in GB/s.
_TERA, _GIGA = 1e12, 1e9


def answer(rows: Rows, asked: Asked) -> Answer:
    steps = [one for one in rows.steps if one.status != "skipped" and one.cell.model_key is None and one.cell.context]
    shown, choices = narrow(steps, asked, drawn=("size", "context"))
    if not any("step" in one.times for one in shown):
        return Answer(missing=lacks("no step was measured", plain_cells(StepCell)))
    clock = clock_choice(asked, shown, default="throughput")
    machine = shown[0].machine
    runs = {run.run_id: run for run in rows.runs if run.machine == machine}
    known = next(iter(runs.values()), None)
    own = [row for row in rows.ceilings if row.run_id in runs]
    latest = tuple(row for row in own if row.run_id == own[0].run_id)
    device: Device = next((name for name in get_args(Device) if known and known.device == name), "cuda")
    name, sizes = (known.device_name or "") if known else "", sizes_of(steps)
    words = about(shown, more=[clock.chosen])
    precision = shown[0].cell.precision
    roof = roofline.measured_roof(latest, precision) or roofline.promised_roof(name, precision)
    matrix = _draw_shares(shown, roof, sizes, words, CLOCKS[clock.chosen], device=device)
    names = [name for name in TABLES["profiles"].question if name not in (*MODEL, "context")]
    settings = attrgetter("machine", *(f"cell.{name}" for name in names))
    known_traces = (one for one in rows.traced if one.cell.model_key is None and one.status == "ok")
    traced = [one for one in known_traces if settings(one) == settings(shown[0])]
    bounds = _draw_bounds(traced, roof, sizes)
    more = [_say_bounds(bounds)] if traced else []
    if moved := [f"{name} by {share:+.0%}".replace("-", "−") for name, share in roofline.changes(latest)]:
        more.append(f"The machine changed its speed during the sweep: {format_list(moved)}.")
    missing = Missing(words="the limits of this machine, which a sweep measures at its start and its end")
    found = Answer(
        sentence=_say(matrix, roof, precision),
        more=" ".join(more),
        views=(matrix, *([_draw_roof(matrix, roof, words)] if roof else []), bounds, _draw_ceilings(latest, name)),
        choices=(*choices, clock),
        cells=cells_of(shown, traced),
        missing=() if latest else (missing,),
    )
    return name_time(found, traced)


def _draw_shares(
    shown: Sequence[StepResult], roof: Roof | None, sizes: Mapping[Any, str], words: str, clock: Any, *, device: Device
) -> View:
    lines = []
    for one in shown:
        cell = one.cell
        key = (sizes[Model.of(cell)], cell.context)
        time = one.time("step", clock)
        if time is None or roof is None:
            status = ended(one) or ("not timed by this clock" if time is None else "the machine's peak is not known")
            lines.append(Row.of(one, *key, *(None,) * 9, status))
            continue
        rate, per_byte = step_flops(cell) / time.ms * 1e3, roofline.intensity(cell, device=device)
        allowed, least = roof.attainable(per_byte), roofline.least_ms(cell, roof, device=device)
        used = roofline.utilization(cell, step_ms=time.ms, peak_flops_per_s=roof.flops_per_s)
        values = (rate / allowed, rate / _TERA, per_byte, allowed / _TERA, time.ms, least)
        lines.append(Row.of(one, *key, *values, *used, ""))
    return View(
        name="roofline",
        title="Share of the roof",
        about=words,
        fields=(SIZE, CONTEXT, SHARE, RATE, INTENSITY, ROOF, MS, LEAST, MFU, CAUSAL, HFU, STATUS),
        rows=tuple(lines),
        draw=Draw("matrix", "roof_share", down=("size",), across="context", log="x"),
        note="Rate of the matrix products over what memory bandwidth and peak allow at the step's operations per byte.",
    )


def _draw_roof(matrix: View, roof: Roof, words: str) -> View:
    """Draws every step under the roof, rising with memory's bandwidth to the peak: rate over operations per byte."""
    known = [row for row in matrix.rows if matrix.get(row, "roof_share") is not None]
    reached = [matrix.get(row, "intensity") for row in known]
    ends = sorted({min(*reached, roof.ridge / 2), roof.ridge, max(*reached, 2 * roof.ridge)})
    above = [Row(values=("roof", None, x, roof.attainable(x) / _TERA, 1.0)) for x in ends]
    context, share = (replace(one, role="note") for one in (CONTEXT, SHARE))
    fields = (SIZE, context, replace(INTENSITY, role="key"), replace(RATE, role="value"), share)
    below = (Row(values=tuple(matrix.get(row, one.name) for one in fields), cells=row.cells) for row in known)
    return View(
        name="roof",
        title="Steps under the roof",
        about=words,
        fields=fields,
        rows=(*below, *above),
        draw=Draw("lines", "tflops", across="intensity", series="size", log="xy"),
        note="A step's bytes are the fewest that it has to move, so its real place is further left.",
    )


def _draw_bounds(traced: Sequence[KernelTrace], roof: Roof | None, sizes: Mapping[Any, str]) -> View:
    lines = []
    for one in traced:
        size = sizes.get(Model.of(one.cell)) or sizes_of([one])[Model.of(one.cell)]
        split = roofline.shares(one, one.kernels, ridge=roof.ridge if roof else None)
        by_words = {words: split[name] for name, words in _LIMITS.items() if name in split} | {TOTAL: 1.0}
        lines += [
            Row.of(one, size, one.cell.context, words, share, one.unprofiled_step_ms)
            for words, share in by_words.items()
        ]
    return View(
        name="bounds",
        title="What limits the time of a step",
        about=about(traced, more=["GPU time, and its gaps", "step: latency in the traced process"]),
        fields=(SIZE, CONTEXT, LIMIT, TIME_SHARE, UNPROFILED),
        rows=tuple(lines),
        draw=Draw(
            "bars", "share", down=("size", "context"), series="limit", total=TOTAL, beside=("unprofiled_step_ms",)
        ),
        note="A kernel is compute-bound where its operations per byte reach the ridge of the roof, memory-bound below; "
        "where they are not known, kernels of few operations a number count as memory-bound, others as not known.",
    )


def _draw_ceilings(ceilings: Sequence[CeilingRow], device_name: str) -> View:
    lines = []
    for row in ceilings:
        rate = row.flops_per_s or row.bytes_per_s or 0.0
        sheet = row.datasheet_flops_per_s or row.datasheet_bytes_per_s
        half = None if row.interval_share is None else 100 * row.interval_share / 2
        name = f"{row.name} ({'TFLOP/s' if row.precision else 'GB/s'})"
        values = (name, _MOMENTS[row.moment], rate / (_TERA if row.precision else _GIGA), half)
        lines.append(Row(values=(*values, rate / sheet if sheet else None)))
    known = hardware.datasheet(device_name)
    return View(
        name="ceilings",
        title="Limits of the machine, as measured",
        about=device_name or "no device",
        fields=(CEILING, MOMENT, CEILING_RATE, SPREAD, OF_SHEET),
        rows=tuple(lines),
        draw=Draw("table", "rate", down=("ceiling", "moment")),
        note="The fastest product of two square matrices, and a copy within the device's memory, read and written. "
        + (f"Datasheet: {known.source}; dense rates." if known else "No datasheet of this device is known."),
    )


def _say(view: View, roof: Roof | None, precision: str) -> str:
    top, least = best(view), best(view, largest=False)
    if top is None or least is None or roof is None:
        return f"The peak rate of this machine in {precision} is not known."
    name = f"**{top.values[0]}**{at_tokens(top.values[1])}"
    text = f"{name} reaches **{format_share(view.get(top, 'roof_share'))}** of the roof, "
    text += f"{format_quantity(view.get(top, 'tflops') * _TERA, 'FLOP/s')}"
    if least is top:
        return f"{text}."
    share = format_share(view.get(least, "roof_share"))
    return f"{text}, the most here; **{least.values[0]}**{at_tokens(least.values[1])} **{share}**, the least."


def _say_bounds(view: View) -> str:
    """Says what limits the smallest and the largest step most."""
    by_step: dict[tuple[Any, ...], list[Row]] = {}
    for row in view.rows:
        by_step.setdefault(row.values[:2], []).append(row)
    parts = []
    for key in dict.fromkeys([next(iter(by_step)), next(reversed(by_step))]):
        row = max((row for row in by_step[key] if row.values[2] != TOTAL), key=lambda row: view.get(row, "share"))
        limit = row.values[2] if row.values[2].startswith("waits") else f"is {row.values[2]}"
        parts.append(f"{key[0]}{at_tokens(key[1])} {limit} for {format_share(view.get(row, 'share'))} of its time")
    return f"{'; '.join(parts)}."


QUESTION = Question(answer=answer, needs=("steps", "traced", "ceilings", "runs"))
