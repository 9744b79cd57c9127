"""A reader's own SQL over every table of the file, read-only, and examples of it.

A query runs as long as its reader waits: "Cancel", another choice or a closed window ends it. A rerun of the page does
not run it again. Every example sorts its rows completely, so that ties have one order.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from pages.address import keep
from pages.api.files import harmless
from pages.data import describe_columns
from pages.frame import ASKED, Frame
from pages.markdown import literal, restrict
from runner.answers.answer import Choice
from runner.errors import StepscopeError
from runner.formats import cut_text, format_count
from runner.schema import TABLES
from runner.store.console import MAX_ROWS, MAX_SECONDS, QueryAnswer, RunningQuery, run_query
from runner.store.read.tables import count_rows

#: Queries by title, of what no page shows.
EXAMPLES = {
    "First steps": """\
SELECT m.step, precision || ' ' || backend AS way, median(duration_ms) AS duration_ms
FROM samples m JOIN steps s USING (cell_id)
WHERE phase = 'step' AND status = 'ok'
GROUP BY ALL ORDER BY way, step""",
    "Least certain cells": """\
SELECT d_model, context, mode, precision, backend, round, n, median_ms,
    (high_ms - low_ms) / median_ms AS interval_share, stopped_by
FROM timings JOIN steps USING (cell_id)
WHERE phase = 'step' AND status = 'ok'
ORDER BY interval_share DESC NULLS LAST, cell_id LIMIT 50""",
    "How cells ended": """\
WITH cells AS (
    SELECT 'steps' AS kind, status, failed_phase, message FROM steps
    UNION ALL SELECT 'attention', status, failed_phase, message FROM attention
    UNION ALL SELECT 'memory', status, failed_phase, message FROM memory)
SELECT kind, status, failed_phase, count(*) AS cells, min(message) AS message
FROM cells GROUP BY kind, status, failed_phase ORDER BY cells DESC, kind, status, failed_phase""",
    "Attention over length": """\
SELECT seq_len, concat_ws(' ', implementation, backend, precision, 'd_head', d_head) AS way,
    median(median_ms) AS median_ms, max(peak_allocated_bytes) AS peak_allocated_bytes
FROM attention JOIN timings USING (cell_id)
WHERE status = 'ok' AND phase = 'forward'
GROUP BY ALL ORDER BY way, seq_len""",
    "Clock and power": """\
SELECT started_at + to_microseconds((at_seconds * 1e6)::BIGINT) AS measured_at, sm_clock_mhz, power_watts,
    temperature_celsius, precision
FROM telemetry JOIN steps USING (cell_id) ORDER BY measured_at, cell_id, at_seconds""",
}

#: The most letters of a text in a table on a page: a browser freezes over a million.
MAX_LETTERS = 1_000
_QUERY, _HEIGHT = "sql", 250
_DONE = "_sql-done"
#: A query that takes less shows no "Cancel".
_PATIENCE_S, _POLL_S = 0.7, 0.25


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The answer to a query, its refusal, or neither where it was canceled; `state` is that of the file when it ran."""

    query: str
    state: str
    answer: QueryAnswer | None = None
    refusal: str = ""


def ask(frame: Frame, query: str) -> QueryAnswer | None:
    """Returns the answer; None after writing why there is none."""
    done = st.session_state.get(_DONE)
    if not isinstance(done, _Outcome) or done.query != query:
        done = st.session_state[_DONE] = _run(frame, query)
    if done.refusal:
        sentence, _, place = done.refusal.partition("\n")
        st.error(restrict(literal(sentence)), icon=":material/block:")
        if place:
            st.code(place, language=None)
    elif done.answer is None:
        st.info("Canceled. Press Run to run the query again.", icon=":material/cancel:")
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
        st.session_state[_DONE] = _Outcome(query=query, state=state)

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
        values = [row[index] for row in answer.rows]
        columns[unique] = [float(v) if type(v) is int and abs(v) >= 2**63 else v for v in values]
        if kind.startswith("TIMESTAMP") or kind == "DATE":
            with contextlib.suppress(ValueError):
                columns[unique] = [None if value is None else pd.Timestamp(value) for value in values]
    return columns


def draw_sql(frame: Frame, before: Sequence[Choice] = ()) -> None:
    """Draws the editor, and below it the rows of the query that was run last, or that a link brings."""
    query = _draw_editor(frame)
    answer = ask(frame, query)
    if answer is None:
        return
    size = f"**{format_count(len(answer.rows), 'row')}** of {format_count(len(answer.columns), 'column')}"
    cut = f", cut after {MAX_ROWS:,} rows or 20 MB of text" if answer.cut else ""
    took = f"{answer.seconds * 1e3:.0f} ms" if answer.seconds < 1 else f"{answer.seconds:.1f} s"
    st.markdown(restrict(f"The query returns {size}{cut}, in {took}. Machine and run do not narrow it."))
    rows = pd.DataFrame(columns_of(answer))
    st.dataframe(
        rows.map(lambda value: cut_text(value, longest=MAX_LETTERS) if isinstance(value, str) else value),
        hide_index=True,
        height=38 + 35 * min(len(rows), 12),
        key="_sql-rows",
        alt="The rows of the query.",
    )
    name = f"stepscope-sql-{time.strftime('%Y%m%d-%H%M%S')}.csv"

    def write_csv() -> str:
        return rows.map(harmless).rename(columns=harmless).to_csv(index=False)

    st.download_button("CSV", write_csv, file_name=name, mime="text/csv", on_click="ignore")


def _draw_editor(frame: Frame) -> str:
    """Draws examples as buttons, the text, and the tables with their columns beside it. Returns the query."""
    # A text area has no option for the font.
    st.html("<style>.st-key-_sql-text textarea {font-family: monospace; font-size: 0.85rem}</style>")
    st.session_state.setdefault("_sql-text", st.session_state[ASKED].get(_QUERY, next(iter(EXAMPLES.values()))))
    with st.container(horizontal=True, gap="xsmall", key="sql-examples"):
        for place, (title, query) in enumerate(EXAMPLES.items()):
            key = f"_sql-example-{place}"
            st.button(restrict(title), on_click=_run_again, args=(query,), key=key, type="secondary")
    left, right = st.columns([3, 2], gap="medium")
    with left, st.form("_sql-form", border=False):
        query = st.text_area("Query (DuckDB's SQL)", key="_sql-text", height=_HEIGHT, max_chars=20_000)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.form_submit_button("Run", icon=":material/play_arrow:", on_click=_run_again, key="_sql-run")
            limits = f"Reads only · {MAX_SECONDS:.0f} s and {MAX_ROWS:,} rows at most · Ctrl + Enter runs it"
            st.caption(restrict(limits))
    with right:
        counts = frame.load(count_rows)
        label = "Tables and their columns"
        name = st.selectbox(
            label,
            list(TABLES),
            index=list(TABLES).index("steps"),
            format_func=lambda name: f"{name} · {counts[name]:,} rows",
            key="_sql-table",
        )
        st.caption(restrict(TABLES[name].doc))
        alt = f"Columns of {name}, with their meaning."
        st.dataframe(describe_columns(TABLES[name]), hide_index=True, height=_HEIGHT - 40, key="_sql-columns", alt=alt)
    return query


def _run_again(example: str = "") -> None:
    """Has this run of the page run the query, or an example in its place, and keeps it for links."""
    if example:
        st.session_state["_sql-text"] = example
    st.session_state.pop(_DONE, None)
    keep(_QUERY, st.session_state["_sql-text"])
