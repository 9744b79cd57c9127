"""What would help, and by how much: every measured change to one step, ranked.

draw_changes(frame)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pages.figures.frame import WORDS, format_interval
from pages.figures.speedups import SpeedupDot
from pages.roofline.answers import change_name
from pages.roofline.figures import counterfactual_dots
from pages.ui.card import Card, draw
from pages.ui.chosen import rows_of, select_one
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted
from pages.ui.marks import speedup_columns
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from pages.ui.states import suggest
from runner.analysis.compare.counterfactuals import Counterfactual, find_counterfactuals, select_bases
from runner.analysis.compare.pairs import describe_unusual_effort
from runner.analysis.compare.verdict_text import INTERVALS, with_basis
from runner.formats import format_number
from runner.results import StepResult
from runner.schema.titles import title
from runner.store.queries.roofline import find_most_varied_run
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps


def draw_changes(frame: Frame) -> None:
    """Draws the chooser of a step, the answer, the card."""
    draw_heading(frame, "What would help, and by how much?", anchor="help")
    found = load_changes(frame)
    if found is None:
        mode = frame.selection.mode or "train"
        words = f"No run {frame.where} has results of one step of mode {mode} in more than one way, measured alike."
        suggest(f"{words} This measures one change at a time:", frame.sweep("--experiment counterfactuals"))
        return
    run, base = found.run, found.bases[select_one("base", "Step", list(found.bases))]
    changes = find_counterfactuals(base, found.cells)
    words = describe_ranking(changes)
    sentences = "\n\n".join(text for text in (words, _describe_failures(changes)) if text)
    say(frame, sentences, of_cells(frame, [base, *(change.cell for change in changes)], run=run), key="changes")
    card = Card(
        key="changes",
        title=f"Against {title(base.cell)}",
        note="The time of this step over that of the changed one, with 95% intervals. "
        f"{with_basis(INTERVALS, (change.speedup for change in changes))} "
        f"Above the dotted line one option is changed, below it several. {_describe_run(frame, run)}".strip(),
        alt=f"Speedups of changes on a log axis. {words}",
        rows=[_make_row(base, change) for change in changes],
        cells=[base.cell, *(change.cell.cell for change in changes)],
    )
    draw(
        frame,
        card,
        lambda: counterfactual_dots([_make_dot(c) for c in changes], singles=sum(c.kind == "one" for c in changes)),
        on_click=pin,
    )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The run that measured one step in the most ways, its cells, and by name those that others are compared with."""

    run: UUID
    cells: Sequence[StepResult]
    bases: Mapping[str, StepResult]

    def of_first(self) -> list[Counterfactual]:
        """Returns the changes to the first base."""
        return find_counterfactuals(next(iter(self.bases.values())), self.cells)


def load_changes(frame: Frame) -> Changes | None:
    """Returns what changes were tried of a step of the sidebar's mode; None where none were."""
    mode = frame.selection.mode or "train"
    run = frame.ask(find_most_varied_run, rows_of(frame), mode)
    if run is None:
        return None
    cells = frame.ask(load_steps, Selection(run=run, mode=mode, settled=False))
    bases = {title(cell.cell): cell for cell in select_bases(cells)}
    return Changes(run=run, cells=cells, bases=bases) if bases else None


def describe_ranking(changes: Sequence[Counterfactual]) -> str:
    """Says how many changes help, which helps most, what several do together, and which make it slower."""
    single = [change for change in changes if change.kind == "one"]
    helps = [change for change in single if change.verdict == "faster"]
    if len(single) == 1:
        words = f"The one change tried is {'' if helps else 'not '}significantly faster"
        words += "" if helps or not single[0].speedup else f": {_list(single)}"
    else:
        count, be = len(helps) or "None", "is" if len(helps) < 2 else "are"
        words = f"{count} of the {len(single)} single changes tried {be} "
        words += "significantly faster"
    if helps:
        words += f": {_list(helps[:3])}{' and others' if len(helps) > 3 else ''}"
    slower = [change for change in single if change.verdict == "slower"]
    if slower:
        words += f"; significantly slower: {_list(slower)}"
    without = [change for change in single if change.verdict == "failed"]
    if without:
        words += f"; no result from {', '.join(f'{describe_change(c)} ({_describe_failure(c)})' for c in without)}"
    several = [change for change in changes if change.kind == "several" and change.speedup]
    together = f" The best combination is {_list(several[:1])}." if several else ""
    return f"{words}.{together}"


def _list(changes: Sequence[Counterfactual]) -> str:
    parts = [
        f"**{describe_change(change)} {format_number(found.ratio)}×** ({format_interval(found.low, found.high)})"
        for change in changes
        if (found := change.speedup)
    ]
    return ", ".join(parts)


def describe_change(change: Counterfactual) -> str:
    """Says what is different, and what is unusual about how it was measured."""
    return " · ".join(part for part in (change_name(change.changed), describe_unusual_effort(change.cell.cell)) if part)


def _make_dot(change: Counterfactual) -> SpeedupDot:
    found = change.speedup
    return SpeedupDot(
        place=describe_change(change),
        size="",
        phase="step",
        cell_id=str(change.cell.cell_id),
        ratio=found.ratio if found else 1.0,
        low=found.low if found else None,
        high=found.high if found else None,
        failure=None if found else _describe_failure(change),
    )


def _describe_failure(change: Counterfactual) -> str:
    return WORDS.get(change.cell.status, change.cell.status)


def _describe_failures(changes: Sequence[Counterfactual]) -> str:
    """Says why changes have no result, in the words of their rows."""
    lost = [change for change in changes if change.speedup is None]
    return " ".join(
        f"{describe_change(c)}: {_describe_failure(c)}. {' '.join(literal(c.cell.message or '').split())}" for c in lost
    )


def _make_row(base: StepResult, change: Counterfactual) -> dict[str, Any]:
    step = change.cell.times.get("step")
    return {
        "Changed": describe_change(change),
        **speedup_columns(change.speedup),
        "Verdict": change.verdict,
        "Median step (ms)": step.median_ms if step else None,
        "Before (ms)": base.times["step"].median_ms,
        "Status": change.cell.status,
        "Reason": change.cell.message,
    }


def _describe_run(frame: Frame, run: UUID) -> str:
    """Says which run measured it: by its label, else by its command. Of one that began after the page, it says
    nothing."""
    of = next((item for item in frame.contents.runs if item.run_id == run), None)
    if of is None:
        return ""
    when = f", {of.started_at:%Y-%m-%d %H:%M} UTC" if of.started_at else ""
    return f"Measured by {quoted(of.label or of.argv or 'an imported run')}{when}."
