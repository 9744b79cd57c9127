"""The answers of all pages on the front page: each with its sentence, its small picture, its doubt and its page.

told = draw_answers(frame); …; tell_doubts(frame, told)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import streamlit as st

from pages.figures.small import small_bars
from pages.overview.answers import command_for, describe_basis, describe_grades
from pages.ui.evidence import is_open, of_cells, say
from pages.ui.frame import Frame, Headline, Topic
from pages.ui.markdown import plain, quoted, restrict
from runner.errors import DatabaseDamaged
from runner.store.queries.audit import load_audit

#: Cards in a row.
_ROW = 3
#: The topic that stands on top of the page, and has no card.
TRUST = "trust"
_MISSING = {"frontier": "the largest size that fits"}


@dataclass(frozen=True, kw_only=True)
class Told:
    """A card that has been drawn: its answer, and the place for what limits it."""

    name: str
    headline: Headline
    place: Any


def draw_answers(frame: Frame) -> list[Told]:
    """Draws a card for each topic with an answer, and one line with one command for those not measured."""
    found = {name: ask(topic, frame) for name, topic in frame.topics.items() if name != TRUST}
    answered = {name: headline for name, headline in found.items() if headline.words and not headline.missing}
    told = []
    names = list(answered)
    for start in range(0, len(names), _ROW):
        told += _draw_row(frame, {name: answered[name] for name in names[start : start + _ROW]})
    missing = [headline.missing for headline in found.values() if headline.missing]
    if missing:
        what = ", ".join(_MISSING.get(name, name.replace("-", " ")) for name in dict.fromkeys(missing))
        st.markdown(restrict(f"**Not measured {frame.where}:** {what}. {quoted(command_for(frame, missing))}"))
    return told


def ask(topic: Topic, frame: Frame, *, otherwise: str = "Unknown. {}") -> Headline:
    """Returns the answer, or `otherwise` with what cannot be read."""
    try:
        return topic.ask(frame)
    except DatabaseDamaged as error:
        return Headline(words=otherwise.format(error.got))


def _draw_row(frame: Frame, cards: Mapping[str, Headline]) -> list[Told]:
    # Rows and a query need more room than a sentence.
    widths = [3 if is_open(name) else 1 for name in cards] + [1] * (_ROW - len(cards))
    height: Literal["stretch", "content"] = "content" if 3 in widths else "stretch"
    told = []
    for column, (name, headline) in zip(st.columns(widths), cards.items(), strict=False):
        topic = frame.topics[name]
        # The ways on stand in one line, however long the answers are.
        with column.container(border=True, height=height, vertical_alignment="distribute"):
            with st.container():
                st.markdown(restrict(f"#### {topic.title}"))
                say(frame, headline.words, headline.evidence, key=name)
                if picture := small_bars(headline.bars, alt=plain(headline.words), mark=headline.mark):
                    st.html(picture)
                place = st.empty()
            page = frame.pages[topic.address]
            st.page_link(page, label=f"Open {page.title}", icon=":material/arrow_forward:", icon_position="right")
        told.append(Told(name=name, headline=headline, place=place))
    return told


def tell_doubts(frame: Frame, told: Sequence[Told]) -> None:
    """Writes below each answer what limits it, how many samples it rests on and how the audit grades its rows, which
    takes longest to load."""
    try:
        audit = frame.ask(load_audit, replace(frame.selection, mode=None))
        audited = {row.cell_id: row for row in audit.rows}
    except DatabaseDamaged:
        audited = {}
    for one in told:
        graded = list({row.cell_id: row for row in one.headline.graded}.values())
        parts = [one.headline.doubt, describe_basis(graded), describe_grades(graded, audited)]
        evidence = of_cells(frame, graded) if any(parts[1:]) else one.headline.evidence
        words = " ".join(part for part in parts if part)
        say(frame, words, evidence, at=one.place, key=f"doubt-{one.name}", drawn_by=st.caption)
