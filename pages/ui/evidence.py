"""A sentence that opens to its evidence: the query that gives its rows, the rows, and what was left out and why.

    say(frame, step_answer(frame, shown), of_cells(frame, shown))
    lead = st.empty(); …; say(frame, words, of_cells(frame, shown), at=lead)

No query runs before a reader opens the sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol
from uuid import UUID

import pandas as pd
import streamlit as st

from pages.ui.formats import shorten
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.result import columns_of
from runner.analysis.compare.speedups import Speedups
from runner.analysis.compare.verdict import Verdict
from runner.results import StepResult
from runner.schema import Row, RunRow, table_of
from runner.store.queries import details, evidence
from runner.store.queries.console import QueryAnswer
from runner.store.queries.details import Kind
from runner.store.queries.evidence import MAX_ROWS, Evidence, EvidenceScope

#: The label of a sentence's evidence: `page.css` draws it as a mark whose tooltip has these words.
WHY = "How do we know?"
#: What the key of an expander begins with that stands open in a saved page: it holds what its reader came for.
OPEN_IN_FILE = "_tables-"
#: The address of the page where a query can be run.
CONSOLE = "sql"
#: A query of more lines than these scrolls.
_TALL = 10
LoadEvidence = Callable[[], Evidence]
Draw = Callable[[str], object]
Among = Literal["own", "latest", "all"]


class CellRow(Protocol):
    """A row of any query whose rows are cells."""

    @property
    def cell_id(self) -> UUID: ...

    @property
    def cell(self) -> Any: ...


def say(
    frame: Frame,
    words: str,
    *sources: LoadEvidence | None,
    at: Any = None,
    key: str = "answer",
    drawn_by: Draw = st.markdown,
) -> None:
    """Writes the sentence with its evidence below it, into the place `at` if there is one; nothing for an empty
    sentence. `key` names it on its page."""
    loaders = [load for load in sources if load]
    if not words.strip():
        return
    with at.container() if at is not None else st.container(), st.container(key=f"_said-{key}"):
        drawn_by(restrict(frame.say(words)))
        if not loaders:
            return
        opened = st.expander(WHY, key=_expander_key(key), type="compact", icon=":material/help:", on_change="rerun")
        if opened.open:
            with opened:
                for index, load in enumerate(loaders):
                    _draw(frame, load(), key=f"{key}-{index}")


def is_open(key: str) -> bool:
    """Returns whether a reader has opened the sentence of this name."""
    return bool(st.session_state.get(_expander_key(key)))


def _expander_key(key: str) -> str:
    return f"_why-{key}"


def of_cells(
    frame: Frame, cells: Sequence[CellRow], *, among: Among = "own", run: UUID | None = None
) -> LoadEvidence | None:
    """Returns a function that loads the rows of these cells, all of one table; None without cells, which imported
    traces are not. The rows count among those of the sidebar's machine and run, of `run` where it is given, of the
    latest run of any machine, or among all."""
    cells = [cell for cell in cells if cell.cell is not None]
    return _load_table(frame, table_of(cells[0].cell).name, cells, among=among, run=run) if cells else None


def of_rows(frame: Frame, rows: Sequence[Row]) -> LoadEvidence | None:
    """Returns the same for rows that are cells themselves, among those of the sidebar's machine and run."""
    return _load_table(frame, table_of(rows[0]).name, rows) if rows else None


def _load_table(
    frame: Frame, table: str, cells: Sequence[CellRow | Row], *, among: Among = "own", run: UUID | None = None
) -> LoadEvidence:
    scope = EvidenceScope(table=table, run=run, latest=among != "all")
    if among == "own" and run is None:
        of = frame.selection
        scope = replace(scope, machine=of.machine, run=of.run, hidden=of.hidden)
    return partial(frame.ask, evidence.of_cells, scope, tuple(dict.fromkeys(cell.cell_id for cell in cells)))


def of_details(frame: Frame, kind: Kind, cells: Sequence[UUID]) -> LoadEvidence | None:
    """Returns a function that loads rows that belong to these cells, such as kernels or tensors; None without cells."""
    return partial(frame.ask, details.of_details, kind, tuple(cells)) if cells else None


def of_moment(frame: Frame, cell: UUID, at_us: int) -> LoadEvidence:
    """Returns a function that loads the allocations that are alive in a timeline at a moment."""
    return partial(frame.ask, details.of_moment, cell, at_us)


def of_pairs(frame: Frame, compared: Speedups[StepResult]) -> LoadEvidence | None:
    """Returns a function that loads the rows of both sides of all pairs."""
    return of_cells(frame, [side for pair in compared.speedups for side in (pair.base, pair.other)])


def of_sides(frame: Frame, verdict: Verdict) -> LoadEvidence | None:
    """Returns a function that loads the rows of both sides of a comparison, from any machine, with those left out."""
    paired = [side for pair in verdict.pairs for side in (pair.base, pair.other)]
    left_out = [side for item in verdict.left_out for side in (item.base, item.other) if side]
    return of_cells(frame, [*paired, *left_out], among="all")


def of_runs(frame: Frame) -> LoadEvidence:
    """Returns a function that loads every run, and how its cells ended."""
    return partial(frame.ask, evidence.of_runs)


def of_environments(frame: Frame, a: Sequence[RunRow], b: Sequence[RunRow]) -> LoadEvidence:
    """Returns a function that loads the environments of the runs of two sides."""
    return partial(frame.ask, evidence.of_environments, *(tuple(run.run_id for run in side) for side in (a, b)))


def of_tables(frame: Frame) -> LoadEvidence:
    """Returns a function that loads the number of rows of each table."""
    return partial(frame.ask, evidence.of_tables)


def of_ceilings(frame: Frame) -> LoadEvidence:
    """Returns a function that loads the measured limits of the machine."""
    return partial(frame.ask, evidence.of_ceilings, frame.selection.machine)


def _draw(frame: Frame, shown: Evidence, *, key: str) -> None:
    st.markdown(restrict(_summarize(shown)))
    st.dataframe(
        shorten(_make_table(shown)),
        hide_index=True,
        height=min(300, 38 + 35 * max(1, len(shown.rows))),
        key=f"_why-rows-{key}",
        alt=f"The rows of {shown.about} behind the sentence above.",
    )
    _draw_link(frame, shown.sql, "This query returns exactly these lines.")
    long = shown.sql.count("\n") > _TALL
    with st.container(height=220 if long else "content", border=False):
        st.code(shown.sql, language="sql", wrap_lines=True)
    if shown.left_out:
        left_out = [{"Left out because": why, "Rows": rows} for why, rows in shown.left_out]
        st.dataframe(left_out, hide_index=True, key=f"_why-left-out-{key}", alt="Rows that were left out, by reason.")
        _draw_link(frame, shown.left_out_sql, "Each row is counted once, under the first reason that applies.")


def of_answer(query: str, answer: QueryAnswer) -> LoadEvidence:
    """Returns what a reader's own query brought back."""
    columns, shown = columns_of(answer), answer.rows[:MAX_ROWS]
    return lambda: Evidence(about="the query above", sql=query, columns=tuple(columns), rows=shown)


def _make_table(shown: Evidence) -> pd.DataFrame:
    """Returns the rows as a data frame; whole numbers beside NULL stay whole."""
    rows = pd.DataFrame(shown.rows, columns=list(shown.columns), dtype=object)
    for name in shown.columns:
        known = [value for value in rows[name] if value is not None]
        if name in ("cell_id", "run_id"):
            rows[name] = rows[name].astype(str)
        elif known and all(type(value) is int for value in known):
            rows[name] = rows[name].astype("Int64")
        elif known:
            rows[name] = rows[name].infer_objects()
    return rows


def _summarize(shown: Evidence) -> str:
    """Says how many of the table's rows count here."""
    cut = f" The first {MAX_ROWS:,} lines are shown." if len(shown.rows) == MAX_ROWS else ""
    if shown.cells is None or shown.total is None:
        return f"**This query reads every row of the file**: no filter of the sidebar applies.{cut}"
    others = sum(rows for _, rows in shown.left_out)
    rest = f"{f'{others:,}' if others else 'none'} {'were' if others > 1 else 'was'} left out"
    be = "is" if shown.cells == 1 else "are"
    return f"**{shown.cells:,} of {shown.total:,} rows of `{shown.about}`** {be} behind this sentence; {rest}.{cut}"


def _draw_link(frame: Frame, sql: str, words: str) -> None:
    """Writes the words with a link to the console, where the query can be run and changed."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(restrict(words))
        if CONSOLE in frame.pages:
            st.page_link(frame.pages[CONSOLE], label="Run it", icon=":material/terminal:", query_params={"sql": sql})
