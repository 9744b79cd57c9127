"""What do these rows answer? Every question of the assignment with its sentence, chart, tables, findings and commands,
and at the end what is missing. `runner.report` has the answers; the same as Markdown, LaTeX and HTML to download."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import streamlit as st

from pages.report.chart import Chart
from pages.report.charts import make_chart
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.evidence import OPEN_IN_FILE, of_cells, of_runs, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import literal, restrict
from pages.ui.sections import draw_heading
from pages.ui.states import no_rows
from runner.report.document import Answered, Open, Report, ReportTable, name_table, say_lack
from runner.report.html import render_html
from runner.report.latex import render_latex
from runner.report.markdown import align, render_markdown
from runner.report.report import load_report
from runner.report.rows import Edition, Rows, Scope

EVERY = "all sizes"
#: The charts of so many questions are drawn at once; the others when a reader opens them.
_MAX_UNFOLDED = 3


def page(frame: Frame) -> None:
    draw_title(
        frame, "Report: every question of the assignment", question="What do these rows answer, and what not yet?"
    )
    if frame.selection.machine not in {run.machine for run in frame.contents.runs if run.source in (None, "measured")}:
        no_rows("Nothing was measured on this machine: its rows were imported.", "Choose another machine.")
        return
    lead = st.empty()
    picked = chosen("edition", "Sizes and contexts", (EVERY, *get_args(Edition)))
    edition = next((name for name in get_args(Edition) if name == picked), None)
    scope = Scope(machine=frame.selection.machine, run=frame.selection.run, edition=edition)
    report = frame.ask(load_report, scope)
    say(frame, _describe(report), of_runs(frame), at=lead)
    st.caption("An edition of the assignment limits the report to its own sizes and contexts.")
    _draw_downloads(frame, report, scope)
    top, rows = st.container(border=True), frame.ask(Rows, scope)
    for number, answered in enumerate(report.answered):
        chart = make_chart(frame, rows, answered.id)
        _draw_question(frame, answered, chart, folded=number >= _MAX_UNFOLDED)
    words = "\n".join(f"- **{literal(name)}:** {literal(text)}" for name, text in report.facts)
    say(frame, words, of_runs(frame), at=top, key="facts")  # last, so that links begin with the answers
    _draw_open(frame, report.open)


def _describe(report: Report) -> str:
    answered, still_open = {item.id for item in report.answered}, {item.id for item in report.open}
    whole = answered - still_open
    parts = len(answered & still_open)
    start = f"**{len(whole)} of {len(answered | still_open)}** questions of the assignment are answered here"
    start += f", **{parts}** in part" if parts else ""
    missing = [item.id for item in report.open if item.id not in answered]
    return f"{start}; not yet: {', '.join(missing)}." if missing else f"{start}."


@dataclass(frozen=True, kw_only=True)
class _Download:
    """A button: its words, the ending of its file, the media type, and what makes it."""

    words: str
    ending: str
    mime: str
    make: Callable[[], str]


def _draw_downloads(frame: Frame, report: Report, scope: Scope) -> None:
    """Draws one button a format. The HTML file is this page without a server, which takes half a minute to draw."""
    buttons = (
        _Download(words="Markdown", ending="md", mime="text/markdown", make=lambda: render_markdown(report)),
        _Download(words="LaTeX tables", ending="tex", mime="application/x-tex", make=lambda: render_latex(report)),
        _Download(
            words="HTML with charts", ending="html", mime="text/html", make=lambda: _save_page(frame.path, scope)
        ),
    )
    with st.container(horizontal=True, gap="small"):
        for button in buttons:
            st.download_button(
                restrict(button.words),
                data=button.make,
                file_name=f"stepscope-report-{frame.contents.edition}.{button.ending}",
                mime=button.mime,
                key=f"_report-{button.ending}",
                icon=":material/download:",
                on_click="ignore",
            )


def _save_page(path: Path, scope: Scope) -> str:
    return render_html(Rows(path, scope))


def _draw_question(frame: Frame, answered: Answered, chart: Chart | None, *, folded: bool) -> None:
    answer, key = answered.answer, answered.id.lower()
    draw_heading(frame, f"{literal(answered.id)}. {literal(answered.text)}", anchor=key, short=answered.id)
    say(frame, literal(answer.sentence), of_cells(frame, answer.behind), key=key)
    first, *others = answer.tables
    if chart:
        card = Card(
            key=f"report-{key}",
            folded=folded,
            title=literal(chart.title),
            note=literal(chart.note),
            alt=f"{chart.title}. {answer.sentence}",
            rows=_make_rows(first),
            cells=[row.cell for row in answer.behind],
        )
        draw(frame, card, chart.figure)
    elif not folded:
        _draw_table(first, name=name_table(answered, 1))
    hidden = (first, *others) if chart or folded else tuple(others)
    words = "Tables, findings and commands" if hidden else "Findings and commands"
    more = st.expander(restrict(words), key=f"{OPEN_IN_FILE}{key}", on_change="rerun")
    if more.open:
        with more:
            for number, table in enumerate(hidden, start=1 if chart or folded else 2):
                _draw_table(table, name=name_table(answered, number))
            _draw_rest(answered)
    name = frame.pages[answered.page]
    st.page_link(name, label=f"More on the page {name.title}", icon=":material/arrow_forward:", icon_position="right")


def _draw_table(table: ReportTable, *, name: str) -> None:
    st.caption(restrict(f"**{literal(name)}. {literal(table.caption)}.** {literal(table.note)}"))
    numbers = [heading for heading, right in zip(table.headings, align(table), strict=True) if right]
    st.dataframe(
        _make_rows(table),
        hide_index=True,
        key=f"_report-{name.lower().replace(' ', '-')}",
        alt=f"{name}. {table.caption}",
        column_config={heading: st.column_config.Column(alignment="right") for heading in numbers},
    )


def _make_rows(table: ReportTable) -> list[dict[str, str]]:
    """Returns one dict a line; the numbers of its footnotes come last."""
    marked = any(line.marks for line in table.lines)
    return [
        {
            **dict(zip(table.headings, line.values, strict=True)),
            **({"Findings": ", ".join(map(str, line.marks))} if marked else {}),
        }
        for line in table.lines
    ]


def _draw_rest(answered: Answered) -> None:
    """Draws the findings, and the commands that measure the rows again."""
    if answered.answer.footnotes:
        notes = enumerate(answered.answer.footnotes, start=1)
        st.markdown("**Findings**")
        st.markdown(restrict("\n".join(f"- **{number}** {literal(text)}" for number, text in notes)))
    if answered.commands:
        st.caption("Measure these rows again")
        st.code("\n".join(answered.commands), language="bash", wrap_lines=True)


def _draw_open(frame: Frame, still_open: tuple[Open, ...]) -> None:
    draw_heading(frame, "Which questions are not answered yet?", anchor="open", short="Not answered yet")
    if not still_open:
        st.caption("Every question is answered.")
        return
    rows = [{"Question": f"{item.id}. {item.text}", "Missing": say_lack(item)} for item in still_open]
    st.dataframe(
        rows, hide_index=True, key="_report-open", alt="The questions that are not answered yet, and what is missing."
    )
    if commands := dict.fromkeys(command for item in still_open for command in item.commands):
        st.caption("What measures it")
        st.code("\n".join(commands), language="bash", wrap_lines=True)


PAGE = Page(title="Report", address="report", icon=":material/description:", draw=page, filters=("machine", "run"))
