"""From query rows to what charts draw and tables list. Table headings are the schema's labels.

bars = phase_bars_of(frame, cells); rows = phase_table(frame, cells)
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pages.figures.frame import CLOCKS, WORDS, escape_text, label_values, title_of
from pages.figures.phases import PhaseBar
from pages.figures.speedups import SpeedupDot
from pages.ui.frame import Frame
from runner.analysis.compare.host_bound import describe_share
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.speedups import Speedups, host_share
from runner.analysis.statistics import Ratio
from runner.formats import format_ms, format_tokens, join_parts
from runner.results import Clock, PhaseTime, StepResult, TimedResult
from runner.results.times import COLUMNS
from runner.schema import Phase, StepCell
from runner.schema.titles import describe_status

T = TypeVar("T", bound=TimedResult)
#: The column for the ratio of what the device alone needs.
DEVICE_RATIO = "Device ratio (×)"
#: The columns for the two times where a ratio is of undisturbed ones.
_UNDISTURBED = ("Baseline undisturbed (ms)", "Variant undisturbed (ms)")
_SPEEDUP = {"Speedup": "ratio", "Low": "low", "High": "high"}


def list_clocks(cells: Sequence[TimedResult]) -> list[Clock]:
    """Returns the clocks by which any of the cells has times; first the one by which every timed cell has."""
    return [clock for clock in CLOCKS if any(time.by(clock) for cell in cells for time in cell.times.values())]


def describe_host(cell: TimedResult) -> str:
    """Says that the host sets the time of a cell, and by how much; empty where it does not or nobody knows."""
    if cell.bound != "host":
        return ""
    step = cell.times.get("step")
    loop, device = (step.by("loop"), step.by("device")) if step else (None, None)
    if not loop or not device:
        return "the host sets this time"
    return f"{format_ms(device.ms)} of GPU work in {format_ms(loop.ms)} in a loop: the host sets this time"


def phase_bars_of(frame: Frame, cells: Sequence[StepResult], *, clock: Clock = "step") -> list[PhaseBar]:
    """Returns every phase of every cell by one clock; a cell without such a time as one `step` with the reason."""
    bars = []
    for cell in cells:
        size, context, cell_id = frame.size_of(cell.cell), cell.cell.context, str(cell.cell_id)
        found = {phase: time.by(clock) for phase, time in cell.times.items()}
        known = {phase: time for phase, time in found.items() if time}
        if cell.status != "ok" or (cell.times and not known):
            why = describe_status(cell) if cell.status != "ok" else f"{CLOCKS[clock]} not known"
            bars.append(PhaseBar(size=size, context=context, phase="step", cell_id=cell_id, failure=escape_text(why)))
        bars += [
            PhaseBar(
                size=size,
                context=context,
                phase=phase,
                cell_id=cell_id,
                median_ms=time.ms,
                low_ms=time.low_ms,
                high_ms=time.high_ms,
                n=cell.times[phase].n if clock == "step" else None,
                host=describe_host(cell) if clock != "device" else "",
            )
            for phase, time in sorted(known.items(), key=lambda item: list(WORDS).index(item[0]))
        ]
    return bars


def key_columns(frame: Frame, cell: StepCell) -> dict[str, Any]:
    """Returns the key of a cell as a table's first columns."""
    return {"Size": frame.size_of(cell), **label_values("steps", cell, ("context", "precision", "backend"))}


def phase_table(frame: Frame, cells: Sequence[StepResult]) -> list[dict[str, Any]]:
    """Returns one row a cell and phase, failed cells with their reason; the other clocks where a cell has them."""
    rows, clocks = [], list_clocks(cells)[1:]
    for cell in cells:
        start, status = key_columns(frame, cell.cell), label_values("steps", cell, ("status",))
        rows += [
            {**start, **time_columns(phase, time), **clock_columns(cell, time, clocks), **status}
            for phase, time in cell.times.items()
        ]
        if not cell.times:
            rows.append({**start, **label_values("steps", cell, ("status", "failed_phase", "message"))})
    return rows


def time_columns(phase: Phase, time: PhaseTime) -> dict[str, Any]:
    """Returns a table's columns for the time of one phase, in ms."""
    names = ("median_ms", "low_ms", "high_ms", "mean_ms", "std_ms", "n")
    return {title_of("timings", "phase"): WORDS[phase], **label_values("timings", time, names)}


def clock_columns(cell: TimedResult, time: PhaseTime, clocks: Sequence[Clock]) -> dict[str, Any]:
    """Returns a table's columns for the time of a phase by these clocks, in ms, and for what bounds the cell; none
    without clocks."""
    found = {clock: time.by(clock) for clock in clocks}
    columns = {title_of("timings", COLUMNS[clock]): estimate and estimate.ms for clock, estimate in found.items()}
    return {**columns, **label_values("steps", cell, ("bound",))} if clocks else {}


def speedup_columns(pair: Ratio | None) -> dict[str, float | None]:
    """Returns a table's columns for the `ratio` of a pair and its interval, None throughout where there is no pair; and
    for the undisturbed times, where it is the ratio of those."""
    columns = {f"{title} (×)": getattr(pair, name, None) for title, name in _SPEEDUP.items()}
    if pair and pair.undisturbed:
        columns |= dict(zip(_UNDISTURBED, pair.undisturbed, strict=True))
    return columns


def device_columns(device: Ratio | None) -> dict[str, float]:
    """Returns a table's column for the ratio of device times; none where that is not known."""
    return {DEVICE_RATIO: device.ratio} if device else {}


def pair_columns(pair: Pair[T] | None) -> dict[str, float | None]:
    """Returns a table's columns for a pair of timed cells: its ratio, and that of the device times where known."""
    return {**speedup_columns(pair), **(device_columns(host_share(pair).device) if pair else {})}


def describe_host_bound(pair: Pair[T]) -> str:
    """Returns what a tooltip says of a pair with a host-bound side; empty for others."""
    return describe_share(host_share(pair))


def place_of(frame: Frame, cell: StepCell, *, beside: str) -> str:
    """Returns size, context and what else tells pairs apart: the backend beside precisions, and the other way round."""
    other = cell.backend if beside == "precision" else cell.precision
    plain = other in ("eager", "fp32")
    size, *rest = frame.size_of(cell).split(" · ")
    extra = " · ".join([*rest, *([] if plain else [other])])
    return join_parts(size, format_tokens(cell.context, "tok")) + (f"<br>{extra}" if extra else "")


def speedup_dot_of(pair: Pair[T], *, place: str, size: str = "", parameters: int | None = None) -> SpeedupDot:
    """Returns the ratio of a pair as a dot."""
    return SpeedupDot(
        place=place,
        size=size,
        phase=pair.phase,
        cell_id=str(pair.other.cell_id),
        ratio=pair.ratio,
        low=pair.low,
        high=pair.high,
        host=describe_host_bound(pair),
        parameters=parameters,
    )


def speedup_dots_of(frame: Frame, compared: Speedups[StepResult], *, axis: str) -> list[SpeedupDot]:
    """Returns every ratio, and every pair with a failed side."""
    dots = [
        speedup_dot_of(
            pair,
            place=place_of(frame, pair.named.cell, beside=axis),
            size=frame.size_of(pair.named.cell),
            parameters=pair.base.parameters,
        )
        for pair in compared.speedups
    ]
    dots += [
        SpeedupDot(
            place=place_of(frame, item.named.cell, beside=axis),
            size=frame.size_of(item.named.cell),
            phase="step",
            cell_id=str(item.named.cell_id),
            failure=escape_text(_spell_out(item.reason)),
        )
        for item in compared.left_out
        if item.kind == "failed"
    ]
    return dots


def _spell_out(reason: str) -> str:
    return re.sub(r"\b(oom|timeout)\b", lambda match: WORDS[match[0]], reason)


def speedup_table(frame: Frame, compared: Speedups[StepResult]) -> list[dict[str, Any]]:
    """Returns one row a pair and phase."""
    return [
        {
            "Size": frame.size_of(pair.named.cell),
            title_of("steps", "context"): pair.base.cell.context,
            "Baseline": f"{pair.base.cell.precision} {pair.base.cell.backend}",
            "Variant": f"{pair.other.cell.precision} {pair.other.cell.backend}",
            title_of("timings", "phase"): WORDS[pair.phase],
            **pair_columns(pair),
            "Baseline median (ms)": pair.base.times[pair.phase].median_ms,
            "Variant median (ms)": pair.other.times[pair.phase].median_ms,
        }
        for pair in compared.speedups
    ]
