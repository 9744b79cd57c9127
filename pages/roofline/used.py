"""Model FLOPs utilization: every step against the measured peak and the datasheet's.

draw_used(frame, cells, limits)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.roofline.answers import place_of
from pages.roofline.limits import DeviceLimits
from pages.roofline.share_figures import UsedShare, utilization_dots
from pages.ui.card import Card, draw
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame
from pages.ui.marks import key_columns
from pages.ui.pin import pin
from runner.analysis.roofline import Utilization, utilization
from runner.results import Measured

#: More rows than these are not one picture any more.
MAX_STEPS = 24


def draw_used(frame: Frame, cells: Sequence[Measured], limits: DeviceLimits) -> None:
    """Draws MFU of every step against the measured peak and the datasheet's; the table has all conventions."""
    known = [cell for cell in cells if limits.roof(cell.cell.precision)]
    if not known:
        return
    drawn = sorted(known, key=lambda cell: -cell.times["step"].median_ms)[:MAX_STEPS]
    shares = [
        UsedShare(
            place=place_of(frame, cell.cell),
            entity=cell.cell.precision,
            cell_id=str(cell.cell_id),
            **{name: used.mfu if used else None for name, used in _compute_utilization(cell, limits).items()},
        )
        for cell in drawn
    ]
    words = describe_utilization(shares)
    st.header("How much of the peak is made use of?", anchor="utilization")
    cut = (
        f" The {MAX_STEPS} longest of {len(known)} steps are drawn; all are in the table."
        if len(known) > MAX_STEPS
        else ""
    )
    card = Card(
        key="utilization",
        title="Model FLOPs utilization",
        answer=words,
        evidence=[of_cells(frame, [drawn[at] for at, share in enumerate(shares) if _best(share) is not None])],
        note="MFU counts the model's matrix products, the square of attention whole and nothing computed twice, as "
        "`mfu` of the file does. The table adds causal MFU, which counts the half of that square that a causal "
        f"mask leaves, and HFU, which counts what checkpointing computes again.{cut}",
        alt=f"Share of the peak that every step makes use of. {words}",
        rows=[_used_row(frame, cell, limits) for cell in known],
        cells=[cell.cell for cell in known],
    )
    draw(frame, card, lambda: utilization_dots(shares), on_click=pin)


def describe_utilization(shares: Sequence[UsedShare]) -> str:
    """Says which step reaches most of its peak, and which least; of equals the one with the shortest name."""
    known = [share for share in shares if _best(share) is not None]
    known.sort(key=lambda share: (_best(share) or 0.0, -len(share.place), share.place))
    if not known:
        return ""
    parts = [f"**{share.place.replace('<br>', ' · ')}** makes use of **{_best(share):.0%}**" for share in known]
    least = f", {parts[0]}" if len(known) > 1 else ""
    return f"Of the peak of its precision {parts[-1]}{least}."


def _best(share: UsedShare) -> float | None:
    """Returns the share of the measured peak, or of the datasheet's where none was measured."""
    return share.measured if share.measured is not None else share.promised


def _compute_utilization(cell: Measured, limits: DeviceLimits) -> dict[str, Utilization | None]:
    """Returns the utilization by source; None where the peak is not known."""
    precision, step_ms = cell.cell.precision, cell.times["step"].median_ms
    roofs = {"measured": limits.measured(precision), "promised": limits.promised(precision)}
    return {
        source: utilization(cell.cell, step_ms=step_ms, peak_flops_per_s=roof.flops_per_s) if roof else None
        for source, roof in roofs.items()
    }


def _used_row(frame: Frame, cell: Measured, limits: DeviceLimits) -> dict[str, Any]:
    row = key_columns(frame, cell.cell)
    for source, used in _compute_utilization(cell, limits).items():
        of = "of measured" if source == "measured" else "of datasheet"
        row |= {f"{name} {of}": getattr(used, key) if used else None
                for name, key in (("MFU", "mfu"), ("Causal MFU", "causal_mfu"), ("HFU", "hfu"))}  # fmt: skip
    return row
