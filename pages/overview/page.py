"""What is in this file? Machines and runs, the headline of each experiment, and how far the grid is covered."""

from typing import Any

import streamlit as st

from pages.overview.headlines import headlines
from pages.ui.coverage import draw_coverage
from pages.ui.evidence import of_runs, say
from pages.ui.filters import run_name
from pages.ui.frame import Frame, Page


def page(frame: Frame) -> None:
    st.title("What is in this file?", anchor=False)
    runs, held = frame.contents.runs, frame.contents
    ok, failed, skipped = (sum(getattr(run, name) for run in runs) for name in ("ok", "failed", "skipped"))
    say(
        frame,
        f"**{ok:,} measured cells** from {_count(len(runs), 'run')} on {_count(len(held.machines), 'machine')}"
        + (f"; {failed:,} ended without a result" if failed else "")
        + (f", {skipped:,} were skipped" if skipped else "")
        + ".",
        of_runs(frame),
    )
    headlines(frame)
    draw_coverage(frame)
    st.header("Runs", anchor="runs")
    st.dataframe(_runs(frame), hide_index=True, key="runs-table")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _runs(frame: Frame) -> list[dict[str, Any]]:
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
