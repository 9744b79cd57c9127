"""Where a query is written: examples as buttons, the text, and the tables with their columns beside it.

query = editor(frame)
"""

import streamlit as st

from pages.sql.examples import EXAMPLES, Example
from pages.sql.picture import NO_COLOR
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.result import forget
from runner.schema import TABLES
from runner.store.queries import tables
from runner.store.queries.console import MAX_ROWS, MAX_SECONDS

_HEIGHT = 250
#: A text area has no option for the font.
_STYLE = "<style>.st-key-sql textarea {font-family: monospace; font-size: 0.85rem}</style>"


def editor(frame: Frame) -> str:
    """Draws the editor and returns the query to be answered: the one last run, or the link's."""
    st.html(_STYLE)
    with st.container(horizontal=True, gap="xsmall", key="sql-examples"):
        for index, example in enumerate(EXAMPLES):
            st.button(
                example.title, on_click=_load_example, args=(example,), key=f"_sql-example-{index}", type="secondary"
            )
    left, right = st.columns([3, 2], gap="medium")
    with left, st.form("_sql-form", border=False):
        query = st.text_area(
            "Query (DuckDB's SQL)", EXAMPLES[0].query, key="sql", bind="query-params", height=_HEIGHT, max_chars=20_000
        )
        with st.container(horizontal=True, vertical_alignment="center"):
            st.form_submit_button("Run", icon=":material/play_arrow:", on_click=forget, key="_sql-run")
            st.caption(f"Reads only · {MAX_SECONDS:.0f} s and {MAX_ROWS:,} rows at most · Ctrl + Enter runs it")
    with right:
        _draw_schema(frame)
    return query


def _load_example(example: Example) -> None:
    """Puts an example into the editor, with its chart."""
    forget()
    st.session_state["sql"] = example.query
    choice = example.choice
    for name, value in (("kind", choice.kind), ("x", choice.x), ("y", choice.y), ("color", choice.color)):
        st.session_state[f"sql-{name}"] = value or NO_COLOR
    st.session_state["sql-log"] = list(choice.logarithmic)


def _draw_schema(frame: Frame) -> None:
    counts = frame.ask(tables.count_rows)
    name = st.selectbox(
        "Tables and their columns",
        list(TABLES),
        index=list(TABLES).index("steps"),
        format_func=lambda name: f"{name} · {counts[name]:,} rows",
        key="_sql-table",
    )
    table = TABLES[name]
    st.caption(restrict(table.doc))
    columns = [
        {"Column": c.name, "Unit": c.unit, "Meaning": c.doc, "Label": c.label, "Type": c.sql_type}
        for c in table.columns
    ]
    st.dataframe(
        columns, hide_index=True, height=_HEIGHT - 40, key="_sql-columns", alt=f"Columns of {name}, with their meaning."
    )
