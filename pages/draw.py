"""Draws any answer: its headline, its choices in one row, and each view as chart or table with its files and
commands."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from pages.plot import Spec, figure
from pages.ui.markdown import restrict
from pages.width import is_narrow
from runner.answers.answer import Answer, Asked, Choice, Row, View
from runner.plan.commands import sweep_commands
from runner.render.grid import interval_of, scale_of
from runner.schema.titles import title

CONFIG = {"displayModeBar": False, "scrollZoom": False}
OpenRow = Callable[[Answer, View, Row], None]


def draw(ask: Callable[[Asked], Answer], *, open_row: OpenRow, words: str, in_columns: bool = False) -> None:
    """Draws the answer; `open_row` is called with a clicked row. With `in_columns` the first view stands on the left
    and the others on the right, where there is room."""
    answer = ask(st.session_state.setdefault("asked", st.query_params.to_dict()))
    st.markdown(restrict(answer.sentence or words))
    _draw_choices([one for one in answer.choices if len(one.options) > 1])
    for missing in answer.missing:
        st.info(restrict(f"Missing: {missing.words}."), icon=":material/info:")
    columns = (
        st.columns(2, gap="xsmall") if in_columns and answer.views and not is_narrow() else [st.container(gap="xsmall")]
    )
    for place, view in enumerate(answer.views):
        with columns[min(place, len(columns) - 1)]:
            _draw_view(answer, view, open_row, is_small=len(columns) > 1)
    if answer.more:
        st.markdown(restrict(answer.more))


# ------------------------------------------------------------------------------------------------------------- choices


def _draw_choices(choices: Sequence[Choice]) -> None:
    """Draws one line of select boxes that say what is chosen; on a narrow screen one button that opens them."""
    if not choices:
        return
    narrow = is_narrow()
    label = " · ".join(one.prefix + one.chosen for one in choices)
    with st.container(key="filters"):
        area = st.popover(label, width="stretch") if narrow else st.container(horizontal=True, wrap=False, gap="xsmall")
    with area:
        for one in choices:
            _draw_choice(one, with_label=narrow)


def _draw_choice(one: Choice, *, with_label: bool) -> None:
    """What is chosen here is kept for every page and in the address; what a page does not have stays kept."""
    key = f"choice-{one.name}"
    if st.session_state.get(key) != one.chosen:
        st.session_state[key] = one.chosen

    def keep() -> None:
        st.session_state["asked"] |= {one.name: st.session_state[key]}
        st.query_params.from_dict(st.session_state["asked"])

    words = {option: option if with_label else one.prefix + option for option in one.options}
    longest = max(len(words[option]) for option in one.options)
    st.selectbox(
        one.label,
        one.options,
        key=key,
        format_func=words.__getitem__,
        on_change=keep,
        filter_mode=None,
        label_visibility="visible" if with_label else "collapsed",
        width="stretch" if with_label else 54 + 8 * min(longest, 22),
    )


# --------------------------------------------------------------------------------------------------------------- views


def _draw_view(answer: Answer, view: View, open_row: OpenRow, *, is_small: bool) -> None:
    with st.container(border=True, key=f"card-{view.name}", gap="xxsmall"):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center", horizontal_alignment="distribute"):
            unit = scale_of(view, view.draw.value).unit if view.draw.kind == "matrix" else ""
            st.subheader(
                restrict(f"{view.title}{f' ({unit})' if unit else ''}"),
                anchor=view.name,
                width="stretch",
                help=view.note or None,
            )
            is_table = view.draw.kind == "table" or _draw_switch(view)
        st.caption(restrict(view.about))
        if is_table:
            _draw_table(answer, view, open_row)
        else:
            _draw_chart(answer, view, open_row, is_small=is_small)


def _draw_switch(view: View) -> bool:
    icons = {"Chart": ":material/bar_chart:", "Table": ":material/table_rows:"}
    chosen = st.segmented_control(
        "Show as",
        tuple(icons),
        default="Chart",
        required=True,
        format_func=icons.__getitem__,
        key=f"{view.name}-as",
        label_visibility="collapsed",
        width="content",
    )
    return bool(chosen == "Table")


def _draw_chart(answer: Answer, view: View, open_row: OpenRow, *, is_small: bool) -> None:
    """A chart keeps its selection after the panel is closed, and another click on the mark would only take it back. So
    each opened panel gives the chart another key when it is closed, and with it a new start."""
    key = f"{view.name}-chart-{st.session_state.get(f'{view.name}-opened', 0)}"
    chart = st.plotly_chart(
        Spec(figure(view, narrow=is_small or is_narrow())),
        key=key,
        config=CONFIG,
        on_select="rerun",
        selection_mode="points",
        alt=f"{view.title}. {view.about}",
    )
    place = next((point["customdata"][0] for point in chart.selection.points if point.get("customdata")), None)
    if place is not None and st.session_state.get("_told") != (key, place):
        st.session_state["_told"] = (key, place)
        open_row(answer, view, view.rows[place])


def forget_selection(view_name: str) -> None:
    """Called when the panel of a row of this view was closed."""
    st.session_state[f"{view_name}-opened"] = st.session_state.get(f"{view_name}-opened", 0) + 1


def _draw_table(answer: Answer, view: View, open_row: OpenRow) -> None:
    config: dict[str, Any] = {}
    for item in view.fields:
        scale = scale_of(view, item.name)
        name = f"{item.label} ({scale.unit})" if scale.unit else item.label
        if item.unit == "%":
            highest = max((value for value in view.column(item.name) if isinstance(value, float)), default=1.0)
            config[item.name] = st.column_config.ProgressColumn(
                name, help=item.doc or None, format="percent", min_value=0, max_value=highest
            )
        else:
            config[item.name] = st.column_config.Column(name, help=item.doc or None)
    rows = [
        {name: _raw(view, name, value) for name, value in zip(view.names, row.values, strict=True)} for row in view.rows
    ]
    key = f"{view.name}-table-{st.session_state.get(f'{view.name}-opened', 0)}"
    found = st.dataframe(
        rows,
        hide_index=True,
        column_config=config,
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        height=_height(rows),
    )
    st.download_button(
        "CSV", lambda: write_csv(view), file_name=f"{view.name}.csv", key=f"{view.name}-csv", on_click="ignore"
    )
    if found.selection.rows:
        open_row(answer, view, view.rows[found.selection.rows[0]])


def _raw(view: View, name: str, value: Any) -> Any:
    """Returns a number in the unit of its heading, with three digits."""
    return float(f"{value / scale_of(view, name).factor:.3g}") if isinstance(value, float) else value


def _height(rows: Sequence[Any]) -> int:
    return min(38 + 35 * len(rows), 420)


def write_csv(view: View) -> str:
    out = io.StringIO()
    lines = csv.writer(out)
    lines.writerow(item.title for item in view.fields)
    lines.writerows(row.values for row in view.rows)
    return out.getvalue()


# ---------------------------------------------------------------------------------------------------- panel of one row


def draw_row(answer: Answer, view: View, row: Row, *, samples: Callable[[Any, Any], Answer | None]) -> None:
    """Draws what is known of a row: every value, each cell's samples, and the commands that measure it again."""
    scale, value = scale_of(view, view.draw.value), view.get(row, view.draw.value)
    where = [scale_of(view, name).write(view.get(row, name)) for name in view.places if view.get(row, name) is not None]
    st.markdown(restrict(f"**{' · '.join(where)}**  \n{view.title} · {view.about}"))
    if value is None:
        st.info("Nothing has measured this cell yet.") if row.wanted else st.error(restrict(view.ended(row)))
    else:
        shown = interval_of(view, row, scale)
        st.metric(view.field(view.draw.value).label, scale.with_unit(value), border=True)
        st.caption(restrict(f"95% interval {shown} {scale.unit}" if shown else "no interval"))
        notes = [item for item in view.fields if item.role == "note" and view.get(row, item.name) is not None]
        said = [f"{item.label}: **{scale_of(view, item.name).with_unit(view.get(row, item.name))}**" for item in notes]
        st.markdown(restrict("  \n".join(said)))
    for cell_id in row.cells[:4]:
        made = samples(cell_id, answer.cells[cell_id])
        st.markdown(restrict(f"**{title(answer.cells[cell_id])}**"))
        if made is None or not made.views:
            st.caption("It kept no samples.")
            continue
        st.caption(restrict(made.sentence))
        st.plotly_chart(Spec(figure(made.views[0])), key=f"samples-{cell_id}", config=CONFIG)
    for words, cells in (
        ("Measure it again", [answer.cells[one] for one in row.cells]),
        ("Measure what is missing", row.wanted),
    ):
        if cells:
            st.caption(restrict(words))
            for line in sweep_commands(cells):
                st.code(line, language="bash", wrap_lines=True)
