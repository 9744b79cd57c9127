"""The panel of one row: its value with interval, what is known beside it, findings, every sample, and its command."""

from uuid import UUID

import streamlit as st

from pages.frame import Frame
from pages.markdown import literal, mark, restrict
from pages.plot import Spec, figure
from runner.answers.answer import Answer, Row, View
from runner.answers.variability import answer_samples
from runner.plan.commands import sweep_commands
from runner.render.grid import scale_of, write_measured
from runner.results.findings import Grade, grade
from runner.schema import AttentionCell, Cell, StepCell, table_of
from runner.schema.sizes import title
from runner.store.read.findings import AUDITED, load_findings
from runner.store.read.selection import load_samples

#: The cells of a row that are shown one by one; a ratio has two, a fit all of its points.
MAX_CELLS = 4
COLORS: dict[Grade, str] = {"A": "green", "B": "blue", "C": "orange", "D": "red"}


def open_row(frame: Frame, answer: Answer, view: View, row: Row) -> None:
    """Opens the panel from the right; on a phone it fills the screen. Once it is closed the chart starts anew, so that
    one click opens the same row again."""
    key = f"{view.name}-opened"

    def forget_selection() -> None:
        st.session_state[key] = st.session_state.get(key, 0) + 1

    panel = st.dialog("One row", width="medium", position="right", on_dismiss=forget_selection)
    panel(_draw_row)(frame, answer, view, row)


def _draw_row(frame: Frame, answer: Answer, view: View, row: Row) -> None:
    scale, value = scale_of(view, view.draw.value), view.get(row, view.draw.value)
    places = [
        scale_of(view, name).write(view.get(row, name)) for name in view.places if view.get(row, name) is not None
    ]
    st.markdown(restrict(f"**{literal(' · '.join(places))}**  \n{literal(f'{view.title} · {view.about}')}"))
    if value is None and row.wanted:
        st.info("Nothing has measured this cell yet.")
    elif value is None:
        st.error(restrict(literal(view.ended(row))))
    else:
        number, shown = write_measured(view, row, scale)
        st.metric(view.field(view.draw.value).label, scale.add_unit(number), border=True)
        level = view.field(view.of_role("low")).doc.replace("Lower end of the", "The") if shown else ""
        st.caption(restrict(literal(f"interval {shown} {scale.unit}. {level}" if shown else "no interval")))
        lines = [
            f"{literal(item.label)}: **{literal(scale_of(view, item.name).with_unit(known))}**"
            for item in view.fields
            if item.role == "note" and (known := view.get(row, item.name)) is not None
        ]
        st.markdown(restrict("  \n".join(lines)))
    for cell_id in row.cells[:MAX_CELLS]:
        if cell := answer.cells.get(cell_id):
            _draw_cell(frame, cell_id, cell)
    if len(row.cells) > MAX_CELLS:
        st.caption(restrict(f"And {len(row.cells) - MAX_CELLS} more cells."))
    again = [answer.cells[one] for one in row.cells if one in answer.cells]
    for words, lines in (
        ("Measure it again", sweep_commands(again)),
        ("Measure what is missing", sweep_commands(row.wanted, fresh=False)),
    ):
        if lines:
            st.caption(restrict(words))
        for line in lines:
            st.code(line, language="bash", wrap_lines=True)


def _draw_cell(frame: Frame, cell_id: UUID, cell: Cell) -> None:
    """Draws the grade of one cell with its findings, what people said of it, and its samples."""
    st.markdown(restrict(f"**{literal(title(cell))}**"))
    table = table_of(cell).name
    if table in AUDITED:
        findings = frame.load(load_findings, (cell_id,), table).get(cell_id, [])
        letter = grade(findings)
        words = " ".join(literal(one.sentence) for one in findings) or "Nothing was found against this row."
        st.markdown(restrict(f":{COLORS[letter]}-badge[Grade {letter}] {words}"))
    for text in frame.contents.notes.of_cells.get(cell_id, ()):
        st.info(restrict(literal(text)), icon=":material/sticky_note_2:")
    if isinstance(cell, StepCell | AttentionCell):
        kept = frame.load(load_samples, "attention" if isinstance(cell, AttentionCell) else "steps", cell_id)
        made = answer_samples(cell_id, cell, kept)
        st.caption(restrict(mark(made.sentence)))
        for view in made.views:
            st.plotly_chart(
                Spec(figure(view)),
                key=f"samples-{cell_id}",
                config={"displayModeBar": False},
                alt=f"Every sample of {title(cell)}",
            )
    st.caption(restrict(f"Row `{cell_id}` of `{table}`"))
