"""What else do the rows show? A reader's own SQL over every table of the file, read-only, as a table and a chart."""

import streamlit as st

from pages.sql.editor import editor
from pages.sql.picture import draw_chart
from pages.ui.evidence import of_answer, of_tables, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.result import ask, columns_of, sentence, show
from pages.ui.sections import draw_heading
from runner.store.queries import tables


def page(frame: Frame) -> None:
    draw_title(frame, "SQL: your own query", question="What else do the rows show?")
    headline = st.empty()
    query = editor(frame)
    answer = ask(frame, query)
    if answer is None:
        counts = {name: count for name, count in frame.ask(tables.count_rows).items() if count}
        words = f"The file holds **{sum(counts.values()):,} rows in {len(counts)} tables** to ask."
        say(frame, words, of_tables(frame), at=headline)
        return
    words = f"{sentence(answer)} The sidebar's filters do not apply here: write them as WHERE."
    say(frame, words, of_answer(query, answer), at=headline)
    columns = columns_of(answer)
    draw_heading(frame, "The answer", anchor="answer")
    show(columns, answer)
    if answer.rows:
        draw_chart(frame, columns, query)


PAGE = Page(title="SQL", address="sql", icon=":material/terminal:", draw=page, filters=())
