"""The headline of each page that answers a question, on Overview: its answer in a sentence, and a way to the page."""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from pages.ui.evidence import is_open, say
from pages.ui.frame import Answer, Frame
from pages.ui.markdown import restrict
from runner.errors import DatabaseDamaged

#: Cards in the first row.
_FIRST_ROW = 3


def headlines(frame: Frame) -> None:
    """A short answer for each question, over what the filters leave."""
    cards = [(address, *_known(answer, frame)) for address, answer in frame.headlines.items()]
    for row in (cards[:_FIRST_ROW], cards[_FIRST_ROW:]):
        # Rows and a query need more room than a sentence.
        widths = [3 if is_open(address) else 1 for address, _, _ in row]
        height: Literal["stretch", "content"] = "content" if 3 in widths else "stretch"
        for column, (address, words, found) in zip(st.columns(widths), row, strict=True):
            page = frame.pages[address]
            # The ways on stand in one line, however long the answers are.
            with column.container(border=True, height=height, vertical_alignment="distribute"):
                with st.container():
                    st.markdown(restrict(f"#### {page.title}"))
                    say(frame, words, found, key=address)
                st.page_link(page, label="Look closer", icon=":material/arrow_forward:", icon_position="right")


def _known(answer: Callable[[Frame], Answer], frame: Frame) -> Answer:
    """The answer, or which table it needs that cannot be read."""
    try:
        return answer(frame)
    except DatabaseDamaged as error:
        return f"Unknown. {error.got}", None
