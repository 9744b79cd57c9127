"""Draws any answer: its headline, its choices in one row, and each view as chart or table with its files."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import streamlit as st

from pages.address import keep, report_missing
from pages.api.files import write_csv
from pages.browser import is_narrow
from pages.frame import Frame
from pages.markdown import literal, mark, quoted, restrict
from pages.panel import COLORS, open_row
from pages.plot import Spec, figure
from pages.plot.parts import Figure, raise_powers, title_of
from runner.answers import QUESTIONS
from runner.answers.answer import Answer, Choice, View
from runner.formats import format_count
from runner.plan.commands import sweep_commands
from runner.render import json as as_json
from runner.render.document import HTML, LATEX, MARKDOWN, Document, Form, order_questions, write_document
from runner.render.grid import scale_of
from runner.results.findings import SEVERITIES
from runner.schema.sizes import title
from runner.store.read.runs import Contents
from runner.store.read.selection import Selection

CONFIG = {"displayModeBar": False, "scrollZoom": False}
#: The most views that are drawn at once.
AT_ONCE = 3
#: How high the cards of a page are together, at most, and a chart before it scrolls inside its card.
MAX_PX, MAX_CHART_PX = 2_250, 1_200
#: Cells that are named where a finding is about many.
MAX_NAMED = 6
_FOLDER = Path(__file__).parent


def draw_answer(frame: Frame, answer: Answer, *, before: Sequence[Choice] = ()) -> None:
    """Draws the answer to a question, its choices after those `before` it."""
    question = QUESTIONS[answer.question]
    st.markdown(restrict(mark(raise_powers(answer.sentence or question.words))))
    draw_choices([*before, *answer.choices])
    report_missing(answer.choices)
    is_wide = question.of_two_columns and bool(answer.views) and not is_narrow()
    if is_wide:
        st.caption(restrict(mark(raise_powers(answer.more))))
        left, right = st.columns(2, gap="xsmall")
        half = max(1, len(answer.views) - 2)
        with left:
            _draw_rest(frame, answer, answer.views[:half], is_small=True)
        with right:
            _draw_rest(frame, answer, answer.views[half:], is_small=True)
    else:
        _draw_rest(frame, answer, answer.views, is_small=False)
    if answer.more and not is_wide:
        st.markdown(restrict(mark(raise_powers(answer.more))))
    if answer.views and "audited" not in question.needs:
        _draw_findings(frame, answer)
    for missing in answer.missing:
        # A command among the words is in backticks.
        parts = [quoted(part) if place % 2 else literal(part) for place, part in enumerate(missing.words.split("`"))]
        st.info(restrict(f"Missing: {' '.join(filter(None, parts))}."), icon=":material/info:")
        for line in sweep_commands(missing.cells, fresh=False):
            st.code(line, language="bash", wrap_lines=True)


def _draw_findings(frame: Frame, answer: Answer) -> None:
    """Draws what the audit found against the rows of the page, once a reader opens it."""
    fold = st.expander("What the audit finds of these rows", key="findings-fold", on_change="rerun")
    if not fold.open:
        return
    with fold:
        doubts = frame.audit(answer).doubts
        if not doubts:
            st.markdown("Nothing was found against any of these rows.")
        for doubt in doubts:
            badge = f":{COLORS[SEVERITIES[doubt.severity]]}-badge[{doubt.severity}]"
            words = f"{badge} **{doubt.code.replace('_', ' ')}** in {format_count(len(doubt.cells), 'cell')}"
            titles = [title(answer.cells[cell]) for cell in answer.cells if cell in doubt.cells][:MAX_NAMED]
            named = "; ".join(titles) + (" …" if len(doubt.cells) > len(titles) else "")
            st.markdown(restrict(f"{words}. For one: {literal(doubt.words)} {doubt.remedy}"))
            st.caption(restrict(literal(named)))


def _draw_rest(frame: Frame, answer: Answer, views: Sequence[View], *, is_small: bool) -> None:
    """Draws as many charts as `MAX_PX` have room for, the others when a reader opens them; so, too, tables that are not
    first, because theirs are a third of a page's scripts."""
    used = 0
    for place, view in enumerate(views):
        spec = None if view.draw.kind == "table" else figure(view, narrow=is_small or is_narrow())
        used += 110 + min(int(spec["layout"].get("height", 450)) if spec else 420, MAX_CHART_PX)
        if not place or (place < AT_ONCE and used <= MAX_PX and spec):
            _draw_view(frame, answer, view, spec)
            continue
        fold = st.expander(restrict(literal(view.title)), key=f"{view.name}-fold", on_change="rerun")
        if fold.open:
            with fold:
                _draw_view(frame, answer, view, spec)


def draw_choices(choices: Sequence[Choice], *, key: str = "filters") -> None:
    """Draws one line of menus that say what is chosen, of those that leave a choice; on a narrow screen one button that
    opens them. A menu takes the browser a quarter of the scripts of a select box, and is as wide as what it says."""
    choices = [one for one in choices if len(one.options) > 1]
    if not choices:
        return
    narrow = is_narrow()
    label = " · ".join(one.prefix + one.chosen for one in choices)
    with st.container(key=key):
        area = (
            st.popover(restrict(literal(label)), width="stretch")
            if narrow
            else st.container(horizontal=True, gap="xsmall")
        )
    for one in choices:
        key = f"choice-{one.name}"
        words = {option: restrict(literal(option if narrow else one.prefix + option)) for option in one.options}
        said = words[one.chosen]
        area.menu_button(
            f"{restrict(literal(one.label))}: {said}" if narrow else said,
            one.options,
            key=key,
            help=None if narrow else restrict(literal(one.label)),
            format_func=(words | {one.chosen: f"**{said}**"}).__getitem__,
            on_click=lambda name=one.name, key=key: keep(name, st.session_state[key]),
            width="stretch" if narrow else "content",
        )


def _draw_view(frame: Frame, answer: Answer, view: View, spec: Figure | None) -> None:
    with st.container(border=True, key=f"card-{view.name}", gap="xxsmall"):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center", horizontal_alignment="distribute"):
            unit = scale_of(view, view.draw.value).unit if view.draw.kind == "matrix" else ""
            st.subheader(
                restrict(literal(f"{view.title}{f' ({unit})' if unit else ''}")),
                anchor=view.name,
                width="stretch",
                help=restrict(literal(view.note)) or None,
            )
            icons = {"Chart": ":material/bar_chart:", "Table": ":material/table_rows:"}
            form = spec and st.segmented_control(
                "Show as",
                tuple(icons),
                default="Chart",
                required=True,
                format_func=icons.__getitem__,
                key=f"{view.name}-as",
                label_visibility="collapsed",
                width="content",
            )
            spec = spec if form == "Chart" else None
            _draw_share(frame, answer, view, is_table=spec is None)
        st.caption(restrict(literal(view.about)))
        if spec:
            _draw_chart(frame, answer, view, spec)
        else:
            _draw_table(frame, answer, view)


def _draw_share(frame: Frame, answer: Answer, view: View, *, is_table: bool) -> None:
    """Draws the files of a view and the command that measures its rows again."""
    box = st.popover(":material/download:", key=f"{view.name}-share", on_change="rerun", width="content", help="Files")
    if not box.open:
        return
    name = f"stepscope-{view.name}-{frame.contents.edition}"
    with box, st.container(horizontal=True, gap="xsmall"):
        whole = as_json.as_json(answer)
        views = [one for one in whole["views"] if one["name"] == view.name]
        lines = [*(row.values for row in view.rows), [f"# {view.title} · {source(frame, view)}"]]
        files = {
            "CSV": (write_csv([one.title for one in view.fields], lines), "text/csv"),
            "JSON": (as_json.to_text({**whole, "views": views, "source": source(frame, view)}), "application/json"),
        }
        for kind, (content, mime) in files.items():
            file = f"{name}.{kind.lower()}"
            label = kind
            st.download_button(label, content, file_name=file, mime=mime, key=f"{view.name}-{kind}", on_click="ignore")
        if not is_table:
            html, css, js = ((_FOLDER / f"picture.{end}").read_text(encoding="utf-8") for end in ("html", "css", "js"))
            picture = st.components.v2.component("stepscope_picture", html=html, css=css, js=js)
            data = {"card": view.name, "title": view.title, "alt": view.about, "name": name}
            picture(key=f"{view.name}-picture", data=data | {"source": source(frame, view)}, height="content")
    with box:
        cells = {cell for row in view.rows for cell in row.cells}
        st.caption("Measure these rows again")
        for line in sweep_commands(cell for cell_id, cell in answer.cells.items() if cell_id in cells):
            st.code(line, language="bash", wrap_lines=True)


def source(frame: Frame, view: View) -> str:
    """Returns what an exported view says of its rows: machine, settings, torch, runs, commits, date and the file."""
    return " · ".join([view.about, *describe_runs(frame.contents, frame.selection)])


def describe_runs(contents: Contents, of: Selection) -> list[str]:
    """Returns the versions of torch, the runs, the commits, the date of the last run, and the edition of the file."""
    runs = [run for run in contents.runs if run.machine == of.machine and of.run in (None, run.run_id)]
    versions = sorted({f"torch {run.torch.partition('+')[0]}" for run in runs if run.torch})
    commits = sorted({run.git_commit[:8] for run in runs if run.git_commit})
    shown = f"commit {commits[0]}" if len(commits) == 1 else f"{len(commits)} commits" if commits else ""
    newest = max((run.started_at for run in runs if run.started_at), default=None)
    named = runs[0].name if len(runs) == 1 else format_count(len(runs), "run")
    parts = (*versions, named, shown, f"{newest:%Y-%m-%d}" if newest else "", f"edition {contents.edition}")
    return [part for part in parts if part]


#: The forms of the report, with the ending and the kind of their files.
REPORTS: dict[str, tuple[Form, str, str]] = {
    "HTML": (HTML, "html", "text/html"),
    "Markdown": (MARKDOWN, "md", "text/markdown"),
    "LaTeX": (LATEX, "tex", "application/x-tex"),
}


def draw_report(frame: Frame) -> None:
    box = st.popover("Report", icon=":material/description:", key="_report", on_change="rerun", width="stretch")
    for name, (form, ending, mime) in REPORTS.items() if box.open else ():
        box.download_button(
            name,
            lambda form=form: write_report(frame, form),  # type: ignore[misc]
            file_name=f"stepscope-report-{frame.contents.edition}.{ending}",
            mime=mime,
            key=f"_report-{name}",
            on_click="ignore",
            width="stretch",
        )


def write_report(frame: Frame, form: Form) -> str:
    """Returns all answers by the usual choices, with what puts them in doubt and where the rows come from."""
    answers = [frame.audit(frame.ask(name, as_usual=True)) for name in order_questions()]
    machine = frame.selection.machine or frame.path.name
    facts = (("Machine", machine), ("Rows", " · ".join(describe_runs(frame.contents, frame.selection))))
    return write_document(Document(title=f"Stepscope report: {machine}", facts=facts, answers=tuple(answers)), form)


def _draw_chart(frame: Frame, answer: Answer, view: View, spec: Figure) -> None:
    """A chart keeps its selection after the panel is closed, and another click on the mark would only take it back. So
    each opened panel gives the chart another key when it is closed, and with it a new start."""
    key = f"{view.name}-chart-{st.session_state.get(f'{view.name}-opened', 0)}"
    if is_high := int(spec["layout"].get("height", 450)) > MAX_CHART_PX:
        st.caption(restrict(f"{len(view.rows)} lines: the chart scrolls."))
    with st.container(height=MAX_CHART_PX, border=False) if is_high else nullcontext():
        chart = st.plotly_chart(
            Spec(spec),
            key=key,
            config=CONFIG,
            on_select="rerun",
            selection_mode="points",
            alt=f"{view.title}. {view.about}",
        )
    place = next((point["customdata"][0] for point in chart.selection.points if point.get("customdata")), None)
    if place is not None and st.session_state.get("_told") != (key, place):
        st.session_state["_told"] = (key, place)
        open_row(frame, answer, view, view.rows[place])


def _draw_table(frame: Frame, answer: Answer, view: View) -> None:
    fields = [item.name for item in view.fields if item.role == "value" or {*view.column(item.name)} - {None, ""}]
    rows = [{name: _raw(view, name, view.get(row, name)) for name in fields} for row in view.rows]
    key = f"{view.name}-table-{st.session_state.get(f'{view.name}-opened', 0)}"
    found = st.dataframe(
        rows,
        hide_index=True,
        column_config={name: column_of(view, name, title_of(view, name)) for name in fields},
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        height=min(38 + 35 * len(rows), 420),
        alt=f"{view.title}. {view.about}",
    )
    if found.selection.rows:
        open_row(frame, answer, view, view.rows[found.selection.rows[0]])


def column_of(view: View, name: str, title: str) -> Any:
    """Returns how a table shows a column: a share as a bar; a number with all digits of its field, where Streamlit's
    four decimals have fewer."""
    values = [_raw(view, name, value) for value in view.column(name)]
    doc = view.field(name).doc or None
    if view.field(name).unit == "%":
        highest = max((value for value in view.column(name) if isinstance(value, float)), default=1.0)
        return st.column_config.ProgressColumn(title, help=doc, format="percent", min_value=0, max_value=highest)
    if any(isinstance(value, float) and round(value, 4) != value for value in values):
        return st.column_config.NumberColumn(title, help=doc, format=f"%.{scale_of(view, name).digits}g")
    return st.column_config.Column(title, help=doc)


def _raw(view: View, name: str, value: Any) -> Any:
    """Returns a number in the unit of its heading, with the digits of its field."""
    scale = scale_of(view, name)
    is_scaled = isinstance(value, float) or (isinstance(value, int) and scale.factor != 1)
    return float(f"{value / scale.factor:.{scale.digits}g}") if is_scaled else value
