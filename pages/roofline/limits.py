"""The limits of the page's machine: the measured ones, and those of its datasheet.

limits = limits_of(frame); limits.roof("bf16"); draw_ceilings(limits)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from pages.ui.chosen import rows_of
from pages.ui.evidence import of_ceilings, say
from pages.ui.frame import Frame, device_of
from pages.ui.markdown import literal, restrict
from pages.ui.sections import draw_heading
from pages.ui.states import suggest
from runner.analysis.costs import hardware
from runner.analysis.costs.activations import Device
from runner.analysis.roofline import CeilingChange, Roof, changes, measured_roof, promised_roof
from runner.formats import format_bytes, format_quantity
from runner.schema import TABLES, CeilingRow
from runner.store.queries.roofline import load_machine
from runner.store.queries.selection import Selection
from runner.store.read.kernels import load_ceilings


@dataclass(frozen=True, kw_only=True)
class DeviceLimits:
    """A device with the ceilings of one run; `rows` is empty where none were measured."""

    device: Device
    device_name: str
    rows: Sequence[CeilingRow]

    def measured(self, precision: str) -> Roof | None:
        return measured_roof(self.rows, precision)

    def promised(self, precision: str) -> Roof | None:
        return promised_roof(self.device_name, precision)

    def roof(self, precision: str) -> Roof | None:
        """Returns the measured roof, else the datasheet's."""
        return self.measured(precision) or self.promised(precision)


def limits_of(frame: Frame) -> DeviceLimits:
    """Returns the sidebar's machine with the ceilings of the chosen run or, where it has none, of the latest that
    has."""
    found = frame.ask(load_machine, rows_of(frame))
    rows = frame.ask(load_ceilings, Selection(machine=frame.selection.machine))
    own = [row for row in rows if row.run_id == frame.selection.run]
    latest = [row for row in rows if row.run_id == rows[0].run_id]
    return DeviceLimits(device=device_of(found.device), device_name=found.device_name or "", rows=own or latest)


def draw_moved(frame: Frame, limits: DeviceLimits) -> None:
    """Warns where the machine was not at the sweep's end what it was at its start."""
    moved = changes(limits.rows)
    if moved:
        warning = partial(st.warning, icon=":material/speed:")
        say(frame, describe_change(moved), of_ceilings(frame), key="moved", drawn_by=warning)


def describe_change(moved: Sequence[CeilingChange]) -> str:
    """Says which ceilings fell or rose, and what that means for the rows between."""
    parts = [f"{literal(change.name)} by {abs(change.share):.0%}" for change in moved]
    slower = all(change.share < 0 for change in moved)
    faster = all(change.share > 0 for change in moved)
    word = "slowed down" if slower else "sped up" if faster else "changed its speed"
    if not (slower or faster):
        parts = [f"{literal(change.name)} by {change.share:+.0%}" for change in moved]
    return f"The machine {word} during the sweep: {', '.join(parts)}. Compare rows of its start and its end with care."


def draw_ceilings(frame: Frame, limits: DeviceLimits) -> None:
    """Draws every ceiling at the sweep's start and end beside the datasheet."""
    draw_heading(frame, "What are the limits of this machine?", anchor="ceilings")
    if not limits.rows:
        words = "The limits of this machine were not measured. A sweep measures them at its start and its end, without"
        suggest(f"{words} `--no-ceilings`:", "python -m runner sweep")
        return
    sheet = hardware.datasheet(limits.device_name)
    source = (
        f"Datasheet: {sheet.source}; dense rates."
        if sheet
        else f"No datasheet of {literal(limits.device_name)} is known."
    )
    words = (
        "Measured in a process of its own: the fastest product of two square matrices, and a copy within the device's "
        f"memory, its bytes read and written. {source}"
    )
    st.caption(restrict(words))
    st.dataframe(ceiling_table(limits), hide_index=True, key="ceilings", alt="Ceilings of this machine.")


def ceiling_table(limits: DeviceLimits) -> list[dict[str, Any]]:
    """Returns one row a ceiling, without columns in which all are empty."""
    columns = TABLES["ceilings"]
    table = []
    for name in dict.fromkeys(row.name for row in limits.rows):
        at = {row.moment: row for row in limits.rows if row.name == name}
        some = next(iter(at.values()))
        promised = _find_promised(limits, some)
        best = max(_read_value(row) for row in at.values())
        table.append(
            {
                columns.column("name").label: name,
                "Sweep's start": _format_ceiling(at.get("start")),
                "Sweep's end": _format_ceiling(at.get("end")),
                "Datasheet": format_quantity(promised, _choose_unit(some)) if promised else None,
                "Of the datasheet": f"{best / promised:.0%}" if promised else None,
                columns.column("size").label: _format_size(some),
            }
        )
    return [
        {heading: value for heading, value in row.items() if any(other[heading] for other in table)} for row in table
    ]


def _format_size(row: CeilingRow) -> str | None:
    if row.size is None:
        return None
    return f"n {row.size:,}" if row.precision else format_bytes(row.size)


def _format_ceiling(row: CeilingRow | None) -> str | None:
    if row is None:
        return None
    doubt = "" if row.interval_share is None else f" ±{row.interval_share / 2:.1%}"
    return format_quantity(_read_value(row), _choose_unit(row)) + doubt


def _find_promised(limits: DeviceLimits, row: CeilingRow) -> float | None:
    if row.precision is None:
        return hardware.peak_bandwidth(limits.device_name)
    return hardware.peak_flops(limits.device_name, row.precision)


def _read_value(row: CeilingRow) -> float:
    return row.flops_per_s or row.bytes_per_s or 0.0


def _choose_unit(row: CeilingRow) -> str:
    return "FLOP/s" if row.precision else "B/s"
