"""What exactly was stored? Every table, a page at a time, with the meaning of its columns and a download."""

from typing import Any, get_args

import streamlit as st

from pages.parts.evidence import of_tables, say
from pages.parts.frame import Frame
from pages.parts.permalink import link
from pages.parts.rows import frame_of, show
from runner.schema import TABLES, Status, Table
from runner.store.queries import rows as stored
from runner.store.queries import tables
from runner.store.queries.tables import MOST_ROWS, Window

PAGE_ROWS = 200


def page(frame: Frame) -> None:
    st.title("What exactly was stored?", anchor=False)
    counts = frame.ask(tables.sizes)
    held = {name: count for name, count in counts.items() if count}
    empty = f" {len(counts) - len(held)} tables are empty." if len(counts) > len(held) else ""
    say(
        frame,
        " · ".join(f"{name} **{count:,}**" for name, count in held.items())
        + f".{empty} The filters apply to every table.",
        of_tables(frame),
    )
    default = "steps" if counts["steps"] else next(iter(held), "runs")
    name = st.segmented_control(
        "Table", list(TABLES), default=default, required=True, key="table", wrap=True, bind="query-params"
    )
    table = TABLES[name or default]
    window = Window(statuses=_statuses(table), limit=PAGE_ROWS)
    total = frame.ask(stored.page, table.name, frame.selection, Window(statuses=window.statuses, limit=0)).total
    st.caption(f"{table.doc} {total:,} of {counts[table.name]:,} rows match, newest first.")
    pages = max(1, -(-total // PAGE_ROWS))
    number = st.pagination(pages, key=f"page-{table.name}".replace("_", "-"), bind="query-params") if pages > 1 else 1
    if total:
        show(frame, table, Window(statuses=window.statuses, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS))
        _take_away(frame, table, Window(statuses=window.statuses, limit=MOST_ROWS), total=total)
    st.header("What the columns mean", anchor="columns")
    st.dataframe(_columns(table), hide_index=True, height=440, key="columns", alt=f"Columns of {table.name}.")


def _statuses(table: Table) -> tuple[str, ...]:
    if not any(column.name == "status" for column in table.columns):
        return ()
    chosen = st.pills("Status", get_args(Status), selection_mode="multi", key="status", bind="query-params")
    return tuple(chosen)


def _take_away(frame: Frame, table: Table, window: Window, *, total: int) -> None:
    cut = f" (the newest {MOST_ROWS:,} of {total:,})" if total > MOST_ROWS else f" ({total:,} rows)"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            f"Download CSV{cut}",
            data=lambda: frame_of(frame, table, window).to_csv(index=False),
            file_name=f"stepscope-{table.name}.csv",
            mime="text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
        with st.popover("Share", icon=":material/share:"):
            st.caption("Link to these rows, with every filter written out")
            st.code(link(frame, "rows"), language=None, wrap_lines=True)
            st.caption("The same in Python")
            st.code(f"import duckdb\nduckdb.connect('{frame.path.name}', read_only=True).sql('FROM {table.name}').df()")


def _columns(table: Table) -> list[dict[str, Any]]:
    return [
        {
            "Column": c.name,
            "Label": c.label,
            "Unit": c.unit,
            "Type": c.sql_type,
            "Meaning": c.doc,
            "Choices": ", ".join(c.choices),
        }
        for c in table.columns
    ]
