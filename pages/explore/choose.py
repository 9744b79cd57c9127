"""The choosers of Explore: the kind of cell, the number, the axes, and the values of all other settings.

wanted, measure, boxes = choose_measure(frame)
asked = choose_axes(frame, wanted.table, rows, boxes=boxes)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import streamlit as st

from pages.explore.axes import MACHINE, SIZE, AxisChoice, Value, label_of, order_values, value_of, varying
from pages.explore.figures import Scale
from pages.figures.frame import WORDS
from pages.ui.chosen import chosen, most_common, select_one
from pages.ui.frame import Frame
from runner.results import ExploredCell
from runner.schema import TABLES
from runner.schema.axes import MODEL
from runner.store.queries.explore import KINDS, Measure, WantedMeasure, load_measures
from runner.store.queries.tables import count_rows

NOTHING, ALL = "nothing", "all of them"
OWN, OTHERS = "this one", "all, marked"


@dataclass(frozen=True, kw_only=True)
class Plotted:
    """The rows to draw, their axes, and the other settings with the values to which they are fixed."""

    choice: AxisChoice
    rows: Sequence[ExploredCell]
    fixed: dict[str, str]
    scale: Scale

    def own(self, machine: str | None) -> list[ExploredCell]:
        """Returns the rows of the selected machine, or all rows without one."""
        return [row for row in self.rows if machine in (None, row.machine)]


def choose_measure(frame: Frame) -> tuple[WantedMeasure, Measure, Any] | None:
    """Draws the choosers of the kind of cell and of the number. Returns both and the container for the next boxes, or
    None where the file holds no numbers."""
    counts = frame.ask(count_rows)
    words = {words: table for table, words in KINDS.items() if counts[table] and frame.ask(load_measures, table)}
    if not words:
        return None
    table = words[chosen("of", "Of", list(words))]
    named = {_name_measure(measure): measure for measure in frame.ask(load_measures, table)}
    boxes = st.container(key="_boxes-axes")
    with boxes:
        measure = named[_select(f"{table}-y", "y-axis", list(named), default=next(iter(named)))]
    machine, run = frame.selection.machine, frame.selection.run
    return (
        WantedMeasure(table=table, measure=measure.name, phase=measure.phase, machine=machine, run=run),
        measure,
        boxes,
    )


def _name_measure(measure: Measure) -> str:
    return f"time, {WORDS[measure.phase]}" if measure.phase else measure.title


def choose_axes(frame: Frame, table: str, rows: Sequence[ExploredCell], *, boxes: Any) -> Plotted | None:
    """Draws all other choosers. Returns None where no row of the selected machine passes the sidebar's filters."""
    passing = [row for row in rows if frame.selection.holds(row.cell)]
    own = [row for row in passing if row.machine == frame.selection.machine]
    if not own:
        return None
    with boxes:
        others = len({row.machine for row in passing}) > 1
        machines = OWN
        axes = varying(frame, table, passing) or [SIZE if "d_model" in TABLES[table].key else TABLES[table].key[0]]
        labels = {label_of(table, name): name for name in axes}
        x = labels[_select(f"{table}-x", "x-axis", list(labels), default=label_of(table, _choose_x(axes)))]
        color = _choose_axis(table, "color", "Color", labels, usual=_choose_color(axes, x))
        panel = _choose_axis(table, "panels", "Small multiples", labels, usual=None)
        scale = _select("scale", "Axes", list(get_args(Scale)), default="fitting")
        if others:
            machines = _select("machines", "Machines", [OWN, OTHERS], default=OWN)
    choice = AxisChoice(table=table, x=x, color=color, panel=panel)
    drawn = passing if machines == OTHERS or MACHINE in choice.used else own
    left, fixed = _fix(frame, choice, own, drawn)
    return Plotted(choice=choice, rows=left, fixed=fixed, scale=cast(Scale, scale))


def _choose_x(axes: Sequence[str]) -> str:
    return next((name for name in ("context", "seq_len", SIZE) if name in axes), axes[0])


def _choose_color(axes: Sequence[str], x: str) -> str | None:
    order = ("implementation", "precision", "backend", SIZE, "mode", "attention")
    return next((name for name in order if name in axes and name != x), None)


def _choose_axis(table: str, key: str, label: str, labels: dict[str, str], *, usual: str | None) -> str | None:
    default = label_of(table, usual) if usual else NOTHING
    return labels.get(_select(f"{table}-{key}", label, [NOTHING, *labels], default=default))


def _fix(
    frame: Frame, choice: AxisChoice, own: Sequence[ExploredCell], drawn: Sequence[ExploredCell]
) -> tuple[list[ExploredCell], dict[str, str]]:
    """Draws a chooser for every axis outside the chart with more than one value. Returns the rows of the chosen values,
    and the values by axis."""
    left, fixed = list(drawn), {}
    names = [name for name in varying(frame, choice.table, own) if name not in choice.used]
    if SIZE in choice.used or SIZE in names:
        names = [name for name in names if name not in MODEL]
    with st.container(key="_boxes-rest"):
        for name in names:
            of_own = [row for row in left if row.machine == frame.selection.machine]
            values = order_values(frame, choice.table, name, of_own)
            if len(values) < 2:
                continue
            known = [_write(value) for value in order_values(frame, choice.table, name, own)]
            texts, usual = (
                [_write(value) for value in values],
                _write(_choose_value(frame, choice.table, name, of_own)),
            )
            key = f"{choice.table}-is-{name.replace('_', '-')}"
            value = _select(key, label_of(choice.table, name), [*texts, ALL], default=usual, known=known)
            if value != ALL:
                left = [row for row in left if _write(value_of(frame, row, name)) == value]
                fixed[name] = value
    return left, fixed


def _write(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _choose_value(frame: Frame, table: str, name: str, rows: Sequence[ExploredCell]) -> Value:
    """Returns the sidebar's mode, or the value of most rows, where equally many rows have two the axis's default."""
    values = [value_of(frame, row, name) for row in rows]
    if name == "mode" and frame.selection.mode in values:
        return frame.selection.mode
    absent: Any = None if name in (SIZE, MACHINE) else TABLES[table].column(name).absent
    return most_common(sorted(values, key=lambda value: value != absent))


def _select(key: str, label: str, options: Sequence[str], *, default: str, known: Sequence[str] = ()) -> str:
    """Draws a box whose value lives in the URL. The page reports a value in a link that was never measured. The box
    itself shows a value that is only missing beside the other choices."""
    return select_one(key, label, options, default=default, known=known)
