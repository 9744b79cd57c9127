"""The stored rows: every table, a page at a time, with the meaning of its columns and a download."""

from collections.abc import Sequence
from typing import Any, get_args

import pandas as pd
import streamlit as st

from pages.address import keep
from pages.api.files import FORMATS, encode_rows
from pages.browser import is_narrow
from pages.draw import CONFIG, draw_choices
from pages.frame import ASKED, Frame
from pages.markdown import restrict
from pages.plot import BASE, Spec
from pages.plot.parts import BASE_MARGIN, axis, color_of, legend
from runner.answers.answer import Choice, choose
from runner.schema import TABLES, Status, Table
from runner.store.database import look_through
from runner.store.packing import is_reference
from runner.store.read.tables import MAX_ROWS, Window, count_rows, load_page

PAGE_ROWS = 200
ALL, NO_COLOR = "any status", "one"
#: Above so many marks a chart is drawn by the graphics card.
MAX_VECTORS = 1_000


def draw_rows(frame: Frame, before: Sequence[Choice] = ()) -> None:
    """Draws one table, a page of its rows, and its files."""
    counts = frame.load(count_rows)
    filled = {name: count for name, count in counts.items() if count}
    st.markdown(restrict(f"**{sum(filled.values()):,} rows** in {len(filled)} of {len(counts)} tables."))
    asked = st.session_state[ASKED]
    table = TABLES[(chosen := choose(asked, "table", "Table", list(TABLES), default="steps")).chosen]
    has_status = any(column.name == "status" for column in table.columns)
    status = choose(asked, "status", "Status", [ALL, *get_args(Status)] if has_status else [])
    statuses = () if status.chosen in ("", ALL) else (status.chosen,)
    draw_choices([*before, chosen, status])
    total = frame.load(load_page, table.name, frame.selection, Window(statuses=statuses, limit=0)).total
    bad = frame.load(look_through).left_out.get(table.name)
    more = f" {bad or 0:,} more hold values that their columns cannot have; SQL has them in `file.main.{table.name}`."
    words = f"{table.doc} {total:,} of {counts[table.name]:,} rows match, newest first.{more if bad else ''}"
    st.caption(restrict(words))
    pages = max(1, -(-total // PAGE_ROWS))
    number = 1
    if pages > 1:
        key = f"_page-{table.name}"
        number = st.pagination(pages, key=key, on_change=lambda: keep("page", str(st.session_state[key])))
    if total:
        _draw_table(frame, table, Window(statuses=statuses, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS))
        window = Window(statuses=statuses, limit=MAX_ROWS)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            for kind, mime in FORMATS.items():
                st.download_button(
                    restrict(kind),
                    lambda kind=kind: encode_rows(  # type: ignore[misc]
                        table,
                        frame.load(load_page, table.name, frame.selection, window),
                        kind,
                        is_reference=is_reference(frame.path),
                    ),
                    file_name=f"stepscope-{table.name}-{frame.contents.edition}.{kind}",
                    mime=mime,
                    key=f"rows-{table.name}-{kind}",
                    on_click="ignore",
                )
            many = f"The newest {MAX_ROWS:,} of {total:,} rows." if total > MAX_ROWS else f"All {total:,} rows."
            st.caption(restrict(many))
        _draw_chart(frame, table, window)
    meaning = st.expander("What the columns mean", key="columns-fold", on_change="rerun")
    if meaning.open:
        with meaning:
            st.dataframe(describe_columns(table), hide_index=True, key="columns", alt=f"Columns of {table.name}.")


def _draw_chart(frame: Frame, table: Table, window: Window) -> None:
    """Draws any column of numbers against any other, in the colors of a third, once a reader opens it."""
    asked = st.session_state[ASKED]
    numbers = [column.name for column in table.columns if column.type in (int, float)]
    fold = st.expander("Chart of two columns", key="chart-fold", on_change="rerun", expanded="measure" in asked)
    if not fold.open or len(numbers) < 2:
        return
    told = next((name for name in table.told if name in numbers), numbers[-1])
    x = choose(asked, "x", "Across", numbers, default="context" if "context" in numbers else numbers[0])
    y = choose(asked, "measure", "Measure", numbers, default=told)
    words = [column.name for column in table.columns if column.type is str]
    color = choose(asked, "color", "Color", [NO_COLOR, *words], default="precision", prefix="color: ")
    with fold:
        draw_choices([x, y, color], key="chart-choices")
        place = {column.name: number for number, column in enumerate(table.columns)}
        at, up, of = place[x.chosen], place[y.chosen], place.get(color.chosen)
        found = frame.load(load_page, table.name, frame.selection, window).rows
        rows = [row for row in found if row[at] is not None and row[up] is not None]
        groups: dict[str, list[Any]] = {}
        for row in rows:
            groups.setdefault("" if of is None else str(row[of]), []).append(row)
        colors = {name: color_of(name, [*groups]) for name in groups}
        across, along = table.column(x.chosen).title, table.column(y.chosen).title
        above, top = legend([one for one in colors.items() if one[0]], narrow=is_narrow())
        data = [
            {
                "type": "scattergl" if len(rows) > MAX_VECTORS else "scatter",
                "mode": "markers",
                "name": name,
                "x": [row[at] for row in mine],
                "y": [row[up] for row in mine],
                "marker": {"color": colors[name], "size": 7},
            }
            for name, mine in groups.items()
        ]
        layout = {
            **BASE,
            "height": 380 + top,
            "margin": {**BASE_MARGIN, "t": top + 8},
            "xaxis": axis(across, automargin=True),
            "yaxis": axis(along, automargin=True),
            "annotations": above,
        }
        alt = f"{along} against {across}, {len(rows):,} rows of {table.name}."
        st.plotly_chart(Spec({"data": data, "layout": layout}), key="free-chart", config=CONFIG, alt=alt)
        st.caption(restrict(f"{len(rows):,} rows that have both numbers; the table above has them."))


def describe_columns(table: Table) -> list[dict[str, Any]]:
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


def _draw_table(frame: Frame, table: Table, window: Window) -> None:
    """Draws the rows under the schema's labels; hovering a heading shows what it means. Columns that are mostly empty
    come after the others, then those in which all rows agree, and empty ones last."""
    rows = frame.load(load_page, table.name, frame.selection, window).rows
    found = pd.DataFrame(rows, columns=[column.name for column in table.columns])
    # Whole numbers stay whole where some are unknown.
    found = found.astype({column.name: "Int64" for column in table.columns if column.type is int})
    found = found.astype({column.name: str for column in table.columns if column.sql_type == "UUID"})
    values, blank = found.nunique(), found.isna().mean()
    st.dataframe(
        found,
        hide_index=True,
        column_config={
            # Whole numbers have separators.
            c.name: st.column_config.NumberColumn(c.title, help=f"`{c.name}`: {c.doc}", format="localized")
            if c.type is int
            else st.column_config.Column(c.title, help=f"`{c.name}`: {c.doc}")
            for c in table.columns
        },
        column_order=sorted(
            _order_columns(table),
            key=lambda name: (blank[name] == 1, values[name] == 1 < len(found), blank[name] > 0.5),
        ),
        key=f"rows-{table.name}",
        height=520,
        placeholder="",
        alt=f"Rows of {table.name}.",
    )


#: What tells cells apart at first sight, in the order in which people look for it.
_FIRST = (
    "implementation", "mode", "precision", "backend", "attention", "context", "seq_len", "d_head", "batch", "d_model",
    "layers", "model",
)  # fmt: skip


def _order_columns(table: Table) -> list[str]:
    """Returns the columns in the order of looking: what tells cells apart, how it ended, the numbers that answers rest
    on, what else was asked for, the rest, and ids last."""
    names = [column.name for column in table.columns]
    ids = [c.name for c in table.columns if c.sql_type == "UUID" or c.name.endswith("_key")]
    asked = [name for name in _FIRST if name in table.question]
    told = table.told if table.key else ()
    first = [name for name in (*asked, "status", *told, *table.question) if name in names and name not in ids]
    return list(dict.fromkeys([*first, *(name for name in names if name not in ids), *ids]))
