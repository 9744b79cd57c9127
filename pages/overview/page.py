"""What does this file show? The study's machine, software and trust, the fastest way to run each size, an answer from
every page, and how far the grid is covered."""

from typing import Any

import streamlit as st

from pages.overview.answers import WORDS, describe_counts, describe_study
from pages.overview.best import draw_best, draw_best_heading
from pages.overview.cards import TRUST, ask, draw_answers, tell_doubts
from pages.overview.reference import draw_reference
from pages.ui.coverage import draw_coverage
from pages.ui.evidence import of_rows, of_runs, say
from pages.ui.filters import run_name
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from pages.ui.notes import draw_run_notes
from pages.ui.sections import draw_heading
from runner.analysis.compare.best import find_best
from runner.formats import format_count
from runner.store.queries.overview import load_run_details


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Overview: what this file shows",
        question="What was measured, on which machine, how far can it be trusted, and what does it say?",
    )
    say(frame, describe_counts(frame.contents.runs, frame.contents.machines), of_runs(frame))
    study, best, found_best = st.container(border=True), st.container(), find_best(frame.measured())
    if found_best:
        with best:
            draw_best_heading(frame)
    draw_heading(frame, "What the measurements say", anchor="answers")
    told = draw_answers(frame)
    with best:  # said after the answers, with which links begin
        draw_best(frame, found_best)
    with study:
        trust = _draw_study(frame)
    draw_reference(frame)
    draw_coverage(frame)
    draw_heading(frame, "Runs", anchor="runs")
    st.dataframe(_list_runs(frame), hide_index=True, key="runs-table")
    if hidden := len(frame.contents.notes.hidden):
        st.caption(restrict(f"{format_count(hidden, 'run')} hidden: `python -m runner note RUN --hide --remove`."))
    # The audit reads every sample: it comes last, so that nothing else waits for it.
    found = ask(frame.topics[TRUST], frame, otherwise="not known, because a table that the audit reads is damaged.")
    say(frame, f"**Trust:** {found.words}", *_load_graded(frame, found.graded), at=trust, key="trust")
    tell_doubts(frame, told)


def _draw_study(frame: Frame) -> Any:
    """Draws what was measured on what, and returns the place for how far it can be trusted."""
    machine, run = frame.selection.machine, frame.selection.run
    runs = [one for one in frame.contents.runs if one.machine == machine and run in (None, one.run_id)]
    if machine and runs:
        details = frame.ask(load_run_details, tuple(one.run_id for one in runs))
        say(frame, describe_study(machine, runs, details), of_runs(frame), key="study")
    trust = st.empty()
    if run is None:
        draw_run_notes(frame, [one.run_id for one in runs])
    st.caption(WORDS)
    return trust


def _load_graded(frame: Frame, rows: Any) -> list[Any]:
    tables = dict.fromkeys(row.table for row in rows)
    return [of_rows(frame, [row.row for row in rows if row.table == table]) for table in tables]


def _list_runs(frame: Frame) -> list[dict[str, Any]]:
    """Returns one row a run; tags and notes only where there are any."""
    notes = frame.contents.notes
    rows = [
        {
            "Run": run_name(run),
            "Tags": ", ".join([*run.tags, *(["baseline"] if run.run_id == notes.baseline else [])]),
            "Notes": "; ".join(notes.of_runs.get(run.run_id, ())),
            "Machine": run.machine,
            "Measured": run.ok,
            "Failed": run.failed,
            "Skipped": run.skipped,
            "torch": run.torch or "",
            "Commit": (run.git_commit or "")[:7] + (" (changed)" if run.git_dirty else ""),
            "Command": run.argv,
        }
        for run in frame.contents.runs
    ]
    empty = {name for name in ("Tags", "Notes") if not any(row[name] for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


PAGE = Page(title="Overview", address="overview", icon=":material/dashboard:", draw=page)
