"""Runs a reader's query and shows its rows, or why there are none. A rerun of the page does not run it again.

answer = ask(frame, query)
if answer is not None: show(answer)

A query runs as long as its reader waits: "Cancel", another filter or a closed window ends it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from pages.figures.headings import format_heading
from pages.ui.downloads import downloads
from pages.ui.formats import MAX_LETTERS, shorten
from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted, restrict
from runner.errors import StepscopeError
from runner.formats import format_count
from runner.store.queries.console import MAX_ROWS, QueryAnswer, RunningQuery, run_query

_DONE = "_sql-done"
#: A query that takes less shows no "Cancel".
_PATIENCE_S, _POLL_S = 0.7, 0.25


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The outcome of a query; `state` is that of the file when it ran."""

    query: str
    state: str
    answer: QueryAnswer | None = None
    refusal: str = ""
    canceled: bool = False


def forget() -> None:
    """Has the next run of the page run the query again."""
    st.session_state.pop(_DONE, None)


def ask(frame: Frame, query: str) -> QueryAnswer | None:
    """Returns the answer; None after writing why there is none."""
    done = st.session_state.get(_DONE)
    if not isinstance(done, _Outcome) or done.query != query:
        done = st.session_state[_DONE] = _run(frame, query)
    if done.canceled:
        st.info("Canceled. Press Run to run the query again.", icon=":material/cancel:")
    elif done.answer is None:
        sentence, _, place = done.refusal.partition("\n")
        st.error(restrict(literal(sentence)), icon=":material/block:")
        if place:
            st.code(place, language=None)
    elif done.state != frame.state:
        st.caption("The file has new rows since this query ran: press Run to run it again.")
    return done.answer


def _run(frame: Frame, query: str) -> _Outcome:
    waiting = st.empty()
    try:
        with run_query(frame.path, query) as question:
            answer = question.answer(wait_s=_PATIENCE_S) or _wait(question, query, frame.state, waiting)
    except StepscopeError as error:
        return _Outcome(query=query, state=frame.state, refusal=str(error))
    finally:
        waiting.empty()
    return _Outcome(query=query, state=frame.state, answer=answer)


def _wait(question: RunningQuery, query: str, state: str, place: Any) -> QueryAnswer:
    """Shows how long it has taken, and "Cancel". Writing to the page also lets Streamlit end this script when the
    reader does something else, which ends the query."""

    def cancel() -> None:
        st.session_state[_DONE] = _Outcome(query=query, state=state, canceled=True)

    with place.container(horizontal=True, vertical_alignment="center"):
        clock = st.empty()
        st.button("Cancel", on_click=cancel, icon=":material/stop:", key="_sql-cancel")
    while (answer := question.answer(wait_s=_POLL_S)) is None:
        clock.markdown(restrict(f":material/hourglass_top: Running for **{question.elapsed_s:.0f} s** …"))
    return answer


def columns_of(answer: QueryAnswer) -> dict[str, list[Any]]:
    """Returns the answer by column. Later columns of the same name get a number; integers beyond 64 bits become floats;
    times become times, unless a table cannot hold one of them (infinity, year 20000): then all stay text."""
    columns: dict[str, list[Any]] = {}
    for index, (name, kind) in enumerate(answer.columns):
        unique, number = name, 2
        while unique in columns:
            unique, number = f"{name} ({number})", number + 1
        values: Sequence[Any] = [row[index] for row in answer.rows]
        if kind.startswith("TIMESTAMP") or kind == "DATE":
            columns[unique] = _parse_times(values)
        else:
            columns[unique] = [float(v) if type(v) is int and abs(v) >= 2**63 else v for v in values]
    return columns


def _parse_times(values: Sequence[Any]) -> list[Any]:
    try:
        return [None if value is None else pd.Timestamp(value) for value in values]
    except ValueError:
        return list(values)


def sentence(answer: QueryAnswer) -> str:
    """Says how many rows and columns came back, and whether that is all."""
    rows, width = len(answer.rows), len(answer.columns)
    size = f"**{format_count(rows, 'row')}** of {format_count(width, 'column')}"
    if answer.cut:
        return f"The answer has more than {size}: it ends after {MAX_ROWS:,} rows or 20 MB of text."
    return f"The answer has {size}."


def show(columns: dict[str, list[Any]], answer: QueryAnswer) -> None:
    """Draws the rows as a table under headings with units, and offers them as files under their own names."""
    rows = pd.DataFrame(columns)
    cut = shorten(rows)
    config = {name: st.column_config.Column(format_heading(name), help=quoted(name)) for name in columns}
    height = 38 + 35 * min(len(rows), 12)
    st.dataframe(
        cut, hide_index=True, column_config=config, height=height, key="_sql-rows", alt="The rows of the answer."
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        name = f"stepscope-sql-{time.strftime('%Y%m%d-%H%M%S')}"
        downloads(rows, name=name, key="_sql")
        short = "" if cut is rows else f" Texts are shown up to {MAX_LETTERS:,} letters; the files hold them whole."
        st.caption(restrict(f"Took {_format_duration(answer.seconds)}.{short}"))


def _format_duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
