"""Sentences of the page Roofline: how far from its limit the longest step is, and names of cells and changes.

answer(frame, cells, limits)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pages.roofline.limits import DeviceLimits
from pages.ui.answers import find_longest
from pages.ui.frame import Frame
from runner.analysis.costs.steps import step_flops
from runner.analysis.roofline import intensity, least_ms, utilization
from runner.formats import at_tokens, format_number, format_quantity, format_share, format_tokens, join_parts
from runner.results import StepResult
from runner.schema import StepCell


def answer(frame: Frame, cells: Sequence[StepResult], limits: DeviceLimits) -> str:
    """Says the longest step's rate against the measured and the datasheet's peak, and the least time that it could
    take."""
    longest = find_longest(cells)
    if longest is None:
        return "None of these cells has a result."
    cell, step_ms = longest.cell, longest.times["step"].median_ms
    reached = step_flops(cell) / step_ms * 1e3
    words = f"The longest step here, **{name_of(frame, cell)}**, takes {format_number(step_ms)} ms and runs at "
    words += f"**{format_quantity(reached, 'FLOP/s')}**"
    parts = []
    for roof, whose in (
        (limits.measured(cell.precision), "measured on this machine"),
        (limits.promised(cell.precision), "of its datasheet"),
    ):
        if roof:
            used = utilization(cell, step_ms=step_ms, peak_flops_per_s=roof.flops_per_s)
            parts.append(f"**{format_share(used.hfu)}** of the {format_quantity(roof.flops_per_s, 'FLOP/s')} {whose}")
    best = limits.roof(cell.precision)
    if best is None:
        return f"{words}. The peak rate of this machine in {cell.precision} is not known."
    least = least_ms(cell, best, device=limits.device)
    per_byte = intensity(cell, device=limits.device)
    bound = "compute-bound" if per_byte >= best.ridge else "memory-bound"
    return (
        f"{words}, {' and '.join(parts)}. That counts matrix products alone. Counting the bytes that it has to move, "
        f"its limit is {format_number(least)} ms: it reaches **{format_share(least / step_ms)} of that "
        f"limit**, or takes {format_number(step_ms / least)}× as long. At {format_number(per_byte)} operations "
        "a byte, against the "
        f"{format_number(best.ridge)} of the ridge, the whole step is {bound}."
    )


def describe_limit(frame: Frame, longest: StepResult, limits: DeviceLimits) -> str:
    """Says in short how far one step is from its limit, and what limits it."""
    cell, step_ms = longest.cell, longest.times["step"].median_ms
    start = f"The longest step here, **{name_of(frame, cell)}**, takes {format_number(step_ms)} ms"
    roof = limits.roof(cell.precision)
    if roof is None:
        return f"{start}. The peak rate of this machine in {cell.precision} is not known."
    least, per_byte = least_ms(cell, roof, device=limits.device), intensity(cell, device=limits.device)
    bound = "compute-bound" if per_byte >= roof.ridge else "memory-bound"
    share = f"**{format_share(least / step_ms)}** of that limit"
    return f"{start} and cannot take less than {format_number(least)} ms: it reaches {share} and is {bound}."


def name_of(frame: Frame, cell: StepCell) -> str:
    """Returns `small at 512 tokens, bf16, eager`."""
    return f"{frame.size_of(cell)}{at_tokens(cell.context)}, {cell.precision}, {cell.backend}"


def place_of(frame: Frame, cell: StepCell) -> str:
    """Returns the name of a cell beside a chart: its size and context, and below what else it is."""
    size, *rest = frame.size_of(cell).split(" · ")
    backend = [] if cell.backend == "eager" else [cell.backend]
    return f"{join_parts(size, format_tokens(cell.context, 'tok'))}<br>{' · '.join([cell.precision, *backend, *rest])}"


def change_name(changed: Mapping[str, Any]) -> str:
    """Says in a few words what is different: `bf16 · sdpa attention · fused optimizer`."""
    known = dict(changed)
    if known.get("weights_dtype") == "bf16" and known.get("precision") == "bf16":
        del known["precision"]
        known["weights_dtype"] = "bf16 products and"
    return " · ".join(_format_change(axis, value) for axis, value in known.items())


def _format_change(axis: str, value: Any) -> str:
    if axis == "checkpoint_blocks":
        return f"checkpoints of {value} block{'s' if value > 1 else ''}" if value else "no checkpoints"
    words = {"weights_dtype": "{} weights", "attention": "{} attention", "optimizer": "{} optimizer"}
    return words.get(axis, "{}").format(value)
