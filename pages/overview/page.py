"""What is in this file? Machines and runs, the headline of each experiment, and how far the grid is covered."""

from collections.abc import Callable
from typing import Any, Literal

import streamlit as st

from pages.ui.coverage import draw_coverage
from pages.ui.evidence import is_open, of_runs, say
from pages.ui.filters import run_name
from pages.ui.formats import format_count
from pages.ui.frame import Answer, Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from runner.errors import DatabaseDamaged

#: Cards in the first row.
_FIRST_ROW = 3


def page(frame: Frame) -> None:
    draw_title(
        "Overview: what this file shows",
        question="Which machines and runs are in this file, and what did they measure?",
    )
    runs, contents = frame.contents.runs, frame.contents
    ok, failed, skipped = (sum(getattr(run, name) for run in runs) for name in ("ok", "failed", "skipped"))
    where = f"{format_count(len(runs), 'run')} on {format_count(len(contents.machines), 'machine')}"
    say(
        frame,
        f"**{ok:,} measured cells** from {where}"
        + (f"; {failed:,} ended without a result" if failed else "")
        + (f", {skipped:,} were skipped" if skipped else "")
        + ".",
        of_runs(frame),
    )
    _draw_headlines(frame)
    draw_coverage(frame)
    st.header("Runs", anchor="runs")
    st.dataframe(_list_runs(frame), hide_index=True, key="runs-table")


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


def _draw_headlines(frame: Frame) -> None:
    """Draws a short answer for each question, over what the filters leave."""
    cards = [(address, *_ask(answer, frame)) for address, answer in frame.headlines.items()]
    for row in (cards[:_FIRST_ROW], cards[_FIRST_ROW:]):
        # Rows and a query need more room than a sentence.
        widths = [3 if is_open(address) else 1 for address, _, _ in row]
        height: Literal["stretch", "content"] = "content" if 3 in widths else "stretch"
        for column, (address, words, found) in zip(st.columns(widths), row, strict=True):
            page = frame.pages[address]
            # The ways on stand in one line, however long the answers are.
            with column.container(border=True, height=height, vertical_alignment="distribute"):
                with st.container():
                    st.markdown(restrict(f"#### {page.title}"))
                    say(frame, words, found, key=address)
                st.page_link(page, label="Look closer", icon=":material/arrow_forward:", icon_position="right")


def _ask(answer: Callable[[Frame], Answer], frame: Frame) -> Answer:
    """Returns the answer, or which table it needs that cannot be read."""
    try:
        return answer(frame)
    except DatabaseDamaged as error:
        return f"Unknown. {error.got}", None


PAGE = Page(title="Overview", address="overview", icon=":material/dashboard:", draw=page)
