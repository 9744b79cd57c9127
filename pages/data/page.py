"""What exactly was stored? Every table, a page at a time, with the meaning of its columns and a download."""

from typing import Any, get_args

import pandas as pd
import streamlit as st

from pages.ui.chosen import chosen, mark_chosen, report_missing
from pages.ui.downloads import downloads
from pages.ui.evidence import of_tables, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from pages.ui.permalink import link
from pages.ui.sections import draw_heading
from runner.schema import TABLES, Column, Status, Table
from runner.store.database import look_through
from runner.store.fleet import is_fleet
from runner.store.queries import rows as stored
from runner.store.queries import tables
from runner.store.queries.tables import MAX_ROWS, Window
from runner.store.reference import is_reference

PAGE_ROWS = 200


def page(frame: Frame) -> None:
    draw_title(frame, "Data: the stored rows", question="What exactly was stored?")
    counts = frame.ask(tables.count_rows)
    filled = {name: count for name, count in counts.items() if count}
    nothing = len(counts) - len(filled)
    empty = f" {nothing} {'table is' if nothing == 1 else 'tables are'} empty." if nothing else ""
    say(
        frame,
        f"**{sum(filled.values()):,} rows in {len(filled)} tables**, most of them of {_name_largest(filled)}.{empty} "
        "The filters apply to every table but those of published rows.",
        of_tables(frame),
    )
    default = "steps" if counts["steps"] else next(iter(filled), "runs")
    table = TABLES[chosen("table", "Table", list(TABLES), default=default)]
    if bad := frame.ask(look_through).left_out.get(table.name):
        st.caption(
            restrict(
                f"{bad:,} more rows are left out here: they hold values that the columns below cannot have. The SQL "
                f"page has them in `file.main.{table.name}`."
            )
        )
    window = Window(statuses=_choose_statuses(table), limit=PAGE_ROWS)
    total = frame.ask(stored.load_page, table.name, frame.selection, Window(statuses=window.statuses, limit=0)).total
    st.caption(restrict(f"{table.doc} {total:,} of {counts[table.name]:,} rows match, newest first."))
    pages = max(1, -(-total // PAGE_ROWS))
    number = _choose_page(table, pages)
    if total:
        _draw_rows(frame, table, Window(statuses=window.statuses, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS))
        _draw_downloads(frame, table, Window(statuses=window.statuses, limit=MAX_ROWS), total=total)
    draw_heading(frame, "What the columns mean", anchor="columns")
    st.dataframe(
        _describe_columns(table),
        hide_index=True,
        height=440,
        key="columns",
        alt=f"Columns of {table.name}.",
        column_config={"Label": st.column_config.Column(width=170), "Choices": st.column_config.Column(width=420)},
    )


def _name_largest(filled: dict[str, int]) -> str:
    """Names the tables with most rows: `samples (147,154), allocations (18,488) and telemetry (4,672)`."""
    first = sorted(filled.items(), key=lambda item: -item[1])[:3]
    *others, last = [f"{name} ({count:,})" for name, count in first] or ["none"]
    return f"{', '.join(others)} and {last}" if others else last


def _choose_page(table: Table, pages: int) -> int:
    key = f"page-{table.name}".replace("_", "-")
    report_missing(key, "Page", [str(number) for number in range(1, pages + 1)])
    if pages == 1:
        return 1
    return st.pagination(pages, key=key, bind="query-params", on_change=mark_chosen, args=(key,))


def _choose_statuses(table: Table) -> tuple[str, ...]:
    if not any(column.name == "status" for column in table.columns):
        return ()
    report_missing("status", "Status", get_args(Status))
    return tuple(
        st.pills("Status", get_args(Status), selection_mode="multi", key="status", bind="query-params",
                 on_change=mark_chosen, args=("status",))
    )  # fmt: skip


def _draw_downloads(frame: Frame, table: Table, window: Window, *, total: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        downloads(
            lambda: _load_frame(frame, table, window),
            name=f"stepscope-{table.name}-{frame.contents.edition}",
            key=f"rows-{table.name}",
        )
        rows = f"The newest {MAX_ROWS:,} of {total:,} rows." if total > MAX_ROWS else f"All {total:,} rows."
        st.caption(restrict(rows))
        with st.popover("Share", icon=":material/share:"):
            st.caption("Link to these rows, with every filter written out")
            st.code(link(frame, "rows"), language=None, wrap_lines=True)
            st.caption("The same in Python")
            st.code(_python(frame, table), wrap_lines=True)


def _python(frame: Frame, table: Table) -> str:
    """Returns the lines that read the table in Python."""
    if is_fleet(frame.path):
        opened = f"with open_reader({str(frame.path)!r}) as con:\n    con.execute('FROM {table.name}').df()"
        return f"from runner.store.database import open_reader\n{opened}"
    if is_reference(frame.path):
        return f"import duckdb\nduckdb.sql(\"FROM 'data/reference/h200/{table.name}.parquet'\").df()"
    return f"import duckdb\nduckdb.connect('{frame.path.name}', read_only=True).sql('FROM {table.name}').df()"


def _describe_columns(table: Table) -> list[dict[str, Any]]:
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


def _load_frame(frame: Frame, table: Table, window: Window) -> pd.DataFrame:
    """Returns the rows in the schema's columns, under their own names; whole numbers stay whole where some are
    unknown."""
    rows = frame.ask(stored.load_page, table.name, frame.selection, window).rows
    found = pd.DataFrame(rows, columns=[column.name for column in table.columns])
    return found.astype({column.name: "Int64" for column in table.columns if column.type is int})


def _draw_rows(frame: Frame, table: Table, window: Window) -> None:
    """Draws the rows under the schema's labels; hovering a heading shows what it means. Empty columns come last."""
    rows = _load_frame(frame, table, window)
    rows = rows.astype({column.name: str for column in table.columns if column.sql_type == "UUID"})
    empty = {name for name in rows.columns if len(rows) and rows[name].isna().all()}
    order = sorted(_order_columns(table), key=lambda name: name in empty)
    config = {c.name: _make_heading(c) for c in table.columns}
    st.dataframe(
        rows,
        hide_index=True,
        column_config=config,
        column_order=order,
        key=f"rows-{table.name}",
        height=520,
        placeholder="",
        alt=f"Rows of {table.name}.",
    )


#: What tells cells apart at first sight, in the order in which people look for it.
_FIRST = ("implementation", "mode", "precision", "backend", "attention", "context", "seq_len", "d_head", "batch")


def _order_columns(table: Table) -> list[str]:
    """Returns the columns in the order of looking: what was asked for, how it ended, the numbers that answers rest on,
    the rest, and ids last."""
    names = [column.name for column in table.columns]
    ids = [c.name for c in table.columns if c.sql_type == "UUID" or c.name.endswith("_key")]
    asked = [*(name for name in _FIRST if name in table.question), *table.question]
    told = table.told if table.key else ()
    first = [name for name in (*asked, "status", *told) if name in names and name not in ids]
    return list(dict.fromkeys([*first, *(name for name in names if name not in ids), *ids]))


def _make_heading(column: Column) -> Any:
    """Returns a column with its meaning; whole numbers have separators."""
    words = f"`{column.name}`: {column.doc}"
    if column.type is int:
        return st.column_config.NumberColumn(column.title, help=words, format="localized")
    return st.column_config.Column(column.title, help=words)


PAGE = Page(title="Data", address="data", icon=":material/table:", draw=page)
