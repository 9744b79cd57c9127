"""What does this file show? The study's machine, software and trust, the fastest way to run each size, an answer from
every page, and how far the grid is covered."""

from typing import Any

import streamlit as st

from pages.overview.answers import WORDS, describe_counts, describe_study
from pages.overview.best import draw_best
from pages.overview.cards import TRUST, ask, draw_answers, tell_doubts
from pages.ui.coverage import draw_coverage
from pages.ui.evidence import of_rows, of_runs, say
from pages.ui.filters import run_name
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.sections import draw_heading
from runner.store.queries.overview import load_run_details


def page(frame: Frame) -> None:
    draw_title(
        "Overview: what this file shows",
        question="What was measured, on which machine, how far can it be trusted, and what does it say?",
    )
    say(frame, describe_counts(frame.contents.runs, frame.contents.machines), of_runs(frame))
    trust = _draw_study(frame)
    draw_best(frame)
    draw_heading(frame, "What the measurements say", anchor="answers")
    told = draw_answers(frame)
    draw_coverage(frame)
    draw_heading(frame, "Runs", anchor="runs")
    st.dataframe(_list_runs(frame), hide_index=True, key="runs-table")
    # The audit reads every sample: it comes last, so that nothing else waits for it.
    found = ask(frame.topics[TRUST], frame, otherwise="not known, because a table that the audit reads is damaged.")
    say(frame, f"**Trust:** {found.words}", *_load_graded(frame, found.graded), at=trust, key="trust")
    tell_doubts(frame, told)


def _draw_study(frame: Frame) -> Any:
    """Draws what was measured on what, and returns the place for how far it can be trusted."""
    machine, run = frame.selection.machine, frame.selection.run
    runs = [one for one in frame.contents.runs if one.machine == machine and run in (None, one.run_id)]
    with st.container(border=True):
        if machine and runs:
            details = frame.ask(load_run_details, tuple(one.run_id for one in runs))
            say(frame, describe_study(machine, runs, details), of_runs(frame), key="study")
        trust = st.empty()
        st.caption(WORDS)
    return trust


def _load_graded(frame: Frame, rows: Any) -> list[Any]:
    tables = dict.fromkeys(row.table for row in rows)
    return [of_rows(frame, [row.row for row in rows if row.table == table]) for table in tables]


def _list_runs(frame: Frame) -> list[dict[str, Any]]:
    return [
        {
            "Run": run_name(run),
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


PAGE = Page(title="Overview", address="overview", icon=":material/dashboard:", draw=page)
