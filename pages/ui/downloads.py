"""The rows of a card as files, its chart as a picture.

    downloads(card_rows, name="stepscope-training-step-phases-1f2e3d4c", key="phases")
    pictures(Picture(card="phases", title="Where the time goes", alt="…", name="…", source="…"))

Files are made on a click, pictures in the browser; neither requests anything from outside.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import streamlit as st

from pages.ui.formats import FORMATS, Rows
from pages.ui.markdown import restrict

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A card's chart with the text around it: its title above, its source below."""

    card: str
    title: str
    alt: str
    name: str
    source: str


def downloads(rows: Rows | Callable[[], Rows], *, name: str, key: str) -> None:
    """Draws one button a format; the file is `name` with the format's ending. Callable `rows` are only called when a
    button is pressed."""
    for word, (make, ending, mime) in FORMATS.items():
        st.download_button(
            restrict(f"Download {word}" if word == "CSV" else word),
            data=partial(_make_file, make, rows),
            file_name=f"{name}.{ending}",
            mime=mime,
            key=f"{key}-{ending}",
            icon=":material/download:" if word == "CSV" else None,
            on_click="ignore",
            help=f"The rows as {word}",
        )


def _make_file(make: Callable[[Rows], str | bytes], rows: Rows | Callable[[], Rows]) -> str | bytes:
    return make(rows() if callable(rows) else rows)


def pictures(picture: Picture) -> None:
    """Draws buttons that save the chart as the reader sees it, zoomed, light or dark: SVG, and PNG of twice its
    size."""
    html, css, js = ((_FOLDER / f"picture.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    component = st.components.v2.component("stepscope_picture", html=html, css=css, js=js)
    component(key=f"{picture.card}-picture", data=asdict(picture), height="content")
