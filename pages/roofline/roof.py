"""The card of the roofline: every step and every kernel under the roofs of their precisions.

draw_roof(frame, cells, profiles, limits)
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pages.figures.frame import escape_text
from pages.roofline.answers import answer, name_of
from pages.roofline.figures import RoofLine, RoofPoint, roofline
from pages.roofline.limits import DeviceLimits
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.marks import key_columns
from pages.ui.pin import pin
from runner.analysis.costs.steps import step_flops
from runner.analysis.roofline import intensity, least_ms
from runner.formats import format_number, format_quantity
from runner.results import Profiled, StepResult
from runner.schema import KernelRow

#: More kernels than these hide each other; the longest are drawn.
MAX_KERNELS = 120


def draw_roof(frame: Frame, cells: Sequence[StepResult], profiles: Sequence[Profiled], limits: DeviceLimits) -> None:
    points = [*_place_steps(frame, cells, limits), *_place_kernels(profiles)]
    roofs = _collect_roofs([point.entity for point in points], limits)
    sentence = answer(frame, cells, limits)
    card = Card(
        key="roof",
        title="Steps and kernels under the roof",
        note="Solid: measured on this machine; dashed: its datasheet. Slope: memory bandwidth; flat part: compute "
        "peak. A step's bytes are the fewest that it has to move, so that its real place is further left; of kernels "
        "those are drawn whose operations and bytes are known. Click a step to see its samples.",
        alt=f"Roofline on log axes: operations per second over operations per byte. {sentence}",
        rows=_make_rows(frame, cells, limits),
        cells=[cell.cell for cell in cells],
    )
    draw(frame, card, lambda: roofline(roofs, points, state="roof"), on_click=pin)


def _place_steps(frame: Frame, cells: Sequence[StepResult], limits: DeviceLimits) -> list[RoofPoint]:
    longest = max(cells, key=lambda cell: cell.times["step"].median_ms)
    points = []
    for cell in cells:
        key, step_ms = cell.cell, cell.times["step"].median_ms
        reached, per_byte = step_flops(key) / step_ms * 1e3, intensity(key, device=limits.device)
        roof = limits.roof(key.precision)
        under = f"{reached / roof.attainable(per_byte):.0%} of its roof" if roof else ""
        at = f"{format_quantity(reached, 'FLOP/s')} at {format_number(per_byte)} FLOP/byte"
        points.append(
            RoofPoint(
                kind="step",
                entity=key.precision,
                words=f"<b>{name_of(frame, key)}</b><br>{at}<br>{under}",
                operations_per_byte=per_byte,
                flops_per_s=reached,
                cell_id=str(cell.cell_id),
                note=under if cell is longest else "",
            )
        )
    return points


def _place_kernels(profiles: Sequence[Profiled]) -> list[RoofPoint]:
    """Returns the longest kernels whose operations and bytes are known."""
    known = [
        (profile.row, kernel, kernel.flops, kernel.moved_bytes)
        for profile in profiles
        for kernel in profile.kernels
        if kernel.flops and kernel.moved_bytes and kernel.device_ms > 0
    ]
    return [
        RoofPoint(
            kind="kernel",
            entity=row.precision,
            words=_describe_kernel(kernel, flops),
            operations_per_byte=flops / moved_bytes,
            flops_per_s=flops / kernel.device_ms * 1e3,
            cell_id="",
        )
        for row, kernel, flops, moved_bytes in sorted(known, key=lambda item: -item[1].device_ms)[:MAX_KERNELS]
    ]


def _describe_kernel(kernel: KernelRow, flops: int) -> str:
    where = escape_text(f"{kernel.kernel_class}, {kernel.phase} {kernel.scope}")
    rate = format_quantity(flops / kernel.device_ms * 1e3, "FLOP/s")
    times = f"{format_number(kernel.device_ms)} ms a step in {kernel.calls:g} calls, {rate}"
    return f"<b>{escape_text(kernel.kernel[:60])}</b><br>{where}<br>{times}"


def _collect_roofs(entities: Sequence[str], limits: DeviceLimits) -> list[RoofLine]:
    lines = []
    for entity in dict.fromkeys(entities):
        if roof := limits.measured(entity):
            lines.append(RoofLine(entity=entity, source="measured", **asdict(roof)))
        if roof := limits.promised(entity):
            lines.append(RoofLine(entity=entity, source="datasheet", **asdict(roof)))
    return lines


def _make_rows(frame: Frame, cells: Sequence[StepResult], limits: DeviceLimits) -> list[dict[str, Any]]:
    rows = []
    for cell in cells:
        key, step_ms = cell.cell, cell.times["step"].median_ms
        roof, per_byte = limits.roof(key.precision), intensity(key, device=limits.device)
        least = least_ms(key, roof, device=limits.device) if roof else None
        rows.append(
            {
                **key_columns(frame, key),
                "Median step (ms)": step_ms,
                "FLOP/byte": per_byte,
                "FLOP/s": step_flops(key) / step_ms * 1e3,
                "Roof there (FLOP/s)": roof.attainable(per_byte) if roof else None,
                "Least step (ms)": least,
                "From its limit (×)": step_ms / least if least else None,
            }
        )
    return rows
