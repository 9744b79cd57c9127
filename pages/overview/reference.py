"""The reader's machine against that of the reference rows: the cells that both measured in the same way.

draw_reference(frame)

The reference is read beside the reader's file for this card alone; no other number knows of it.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from pages.ui.evidence import of_sides, say
from pages.ui.frame import Frame, cached
from pages.ui.markdown import literal, quoted, restrict
from pages.ui.pairs import apply_filters, draw_pairs
from pages.ui.sections import draw_heading
from runner.analysis.compare.counterfactuals import is_plain
from runner.analysis.compare.verdict import Side, Verdict
from runner.analysis.compare.verdict_text import INTERVALS, describe_verdict, with_basis
from runner.errors import StoreError
from runner.plan.commands import sweep_commands
from runner.schema import StepCell
from runner.store.database import fingerprint
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from runner.store.reference import MEASURE, find_reference, is_reference, with_article

_YOURS = "your machine"


@dataclass(frozen=True, kw_only=True)
class _Reference:
    """The results file of the reference rows, its machine as the rows name it, and the device alone."""

    path: Path
    machine: str
    device: str


def draw_reference(frame: Frame) -> None:
    """Draws how the cells of the sidebar's machine compare, or in one line what would make them comparable; nothing
    where the rows are those of the reference, or there is none."""
    machine = frame.selection.machine
    if machine is None or is_reference(frame.path):
        return
    try:
        reference = _find_reference()
        if reference is None or reference.machine == machine:
            return
        draw_heading(frame, f"Your machine against {literal(with_article(reference.device))}", anchor="reference")
        both, verdicts = _compare(frame, reference, machine)
        paired = [verdict for verdict in verdicts if verdict.pairs]
        for verdict in paired:
            name, rest = describe_verdict(verdict).split(": ", 1)
            say(frame, f"**{name}:** {literal(rest)}", of_sides(both, verdict), key=f"reference-{verdict.table}")
        if paired:
            words = with_basis(INTERVALS, (pair for verdict in paired for pair in verdict.pairs))
            st.caption(restrict(f"{literal(reference.device)}: reference rows that come with Stepscope. {words}"))
            draw_pairs(frame, paired[0], key="reference-pairs", title="Your machine, cell by cell")
        else:
            st.markdown(restrict(_suggest(reference)))
    except StoreError as error:
        st.caption(restrict(f"The reference rows cannot be opened: {literal(str(error))}"))


def _find_reference() -> _Reference | None:
    path = find_reference()
    if path is None:
        return None
    runs = cached(path, fingerprint(path), load_contents).runs
    if not runs:
        return None
    return _Reference(path=path, machine=runs[0].machine, device=runs[0].device_name or runs[0].machine)


def _compare(frame: Frame, reference: _Reference, machine: str) -> tuple[Frame, list[Verdict]]:
    """Returns the two files as one, which shows the rows, and what their cells say that both machines have and the
    filters leave. To compare them each file is read by itself, so that what is remembered of it counts."""
    path = Path(f"{frame.path}{os.pathsep}{reference.path}")
    both = replace(frame, path=path, state=f"{frame.state} {fingerprint(reference.path)}", pages={})
    request = ComparisonRequest(
        a=Side(kind="machine", value=reference.machine, title=reference.device),
        b=Side(kind="machine", value=machine, title=_YOURS),
    )
    found = cached(frame.path, both.state, load_comparison, request, reference.path)
    verdicts = [apply_filters(frame, verdict) for verdict in found.verdicts]
    return both, [replace(one, left_out=tuple(x for x in one.left_out if x.base and x.other)) for one in verdicts]


def _suggest(reference: _Reference) -> str:
    """Says that no cell agrees, with the command for the smallest plain step of the reference."""
    known = cached(reference.path, fingerprint(reference.path), load_steps, Selection())
    cells = [one.cell for one in known if one.status == "ok" and one.cell.model_key is None]
    smallest = min(map(_rank, cells), default=None)
    commands = sweep_commands([cell for cell in cells if _rank(cell) == smallest], fresh=False)
    device = literal(with_article(reference.device))
    return (
        f"No cell here has the shape and the settings of one of the reference rows, measured on {device}. "
        f"Cells that have: {quoted(next(iter(commands), MEASURE))}"
    )


def _rank(cell: StepCell) -> tuple[int, int, bool, bool]:
    """Returns what is the same of cells that one short command measures; the least for those that take least."""
    return cell.shape.d_model**2 * cell.shape.layers, cell.context, not is_plain(cell), cell.mode != "train"
