"""The memory timeline on a canvas: a component of our own, whose data is one block of bytes and whose script is local.

    timeline(Drawing(columns=columns, about=found, fold_bytes=65536), key="left", on_cursor=moved)

`pack` puts the columns behind a JSON head, sorted as the script needs them: by address, by size, by free. Names and
stacks are only ever set as text. Limits: recordings up to 2³¹ µs (35 minutes), addresses up to 2⁵³.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from pages.plot.colors import color_of
from runner.analysis.timeline.snapshot import frames_of
from runner.results import Timeline
from runner.store.read.memory import CATEGORIES, Columns

_FOLDER = Path(__file__).parent
_SCRIPTS = ("model.js", "raster.js", "picture.js", "controls.js", "view.js")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What is drawn. Blocks below `fold_bytes` are drawn as one, and so are those allocated before the recording if
    `folds_held`; `scale_bytes` is the top of the total's axis."""

    columns: Columns
    about: Timeline
    fold_bytes: int
    scale_bytes: int
    alt: str
    folds_held: bool = False


def timeline(drawing: Drawing, *, key: str, on_cursor: Callable[[], None]) -> dict[str, Any] | None:
    """Draws the timeline. Returns where the reader put the cursor, `{"timeline": its id, "at": µs}`, or None."""
    script = "\n".join(_read(name) for name in _SCRIPTS)
    component = st.components.v2.component(
        "stepscope_timeline", html=_read("timeline.html"), css=_read("timeline.css"), js=script
    )
    state = component(
        key=key, data=pack(drawing), height="content", default={"cursor": None}, on_cursor_change=on_cursor
    )
    cursor: dict[str, Any] | None = state.cursor
    return cursor


def picture_button(side: str) -> None:
    """Draws a button that saves the picture of the pane as the reader sees it, like the one in its own bar."""
    css = (_FOLDER.parent / "picture.css").read_text(encoding="utf-8")
    button = '<button type="button" title="The timeline as you see it, with its title and colors">PNG</button>'
    html = f'<div class="pictures">{button}</div>'
    script = """export default ({data, parentElement}) => { parentElement.querySelector("button").onclick = () =>
        window.dispatchEvent(new CustomEvent("stepscope-save", {detail: data})) }"""
    component = st.components.v2.component("stepscope_timeline_picture", html=html, css=css, js=script)
    component(key=f"timeline-{side}-picture", data=f"timeline-{side}", height="content")


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def pack(drawing: Drawing) -> bytes:
    """Returns the length of the head, the head as JSON, and from the next multiple of 8 on the columns, each aligned
    so."""
    arrays = _sort_arrays(drawing.columns)
    places, parts, offset = [], [], 0
    for name, array in arrays.items():
        places.append((name, array.dtype.name, offset, len(array)))
        padding = -array.nbytes % 8
        parts += [array.tobytes(), bytes(padding)]
        offset += array.nbytes + padding
    head = json.dumps({**_make_head(drawing), "columns": places}).encode()
    start = len(head).to_bytes(4, "little") + head
    return b"".join([start, bytes(-len(start) % 8), *parts])


def _sort_arrays(columns: Columns) -> dict[str, Any]:
    arrays = columns.arrays
    died = arrays["died"]
    by_death = np.argsort(died, kind="stable")
    return {
        "address": arrays["address"].astype(np.float64),
        "bytes": arrays["bytes"].astype(np.float64),
        **{name: arrays[name].astype(np.int32) for name in ("born", "died", "stack", "module", "operation", "phase")},
        "category": arrays["category"].astype(np.uint8),
        "byAddress": np.argsort(arrays["address"], kind="stable").astype(np.int32),
        "bySize": np.argsort(arrays["bytes"], kind="stable").astype(np.int32),
        "byDeath": by_death[died[by_death] >= 0].astype(np.int32),
    }


def _make_head(drawing: Drawing) -> dict[str, Any]:
    columns, about = drawing.columns, drawing.about
    frames: dict[str, int] = {}
    stacks = [[frames.setdefault(frame, len(frames)) for frame in frames_of(text)] for text in columns.stacks]
    present = np.bincount(columns.arrays["category"], minlength=len(CATEGORIES))
    return {
        "key": str(about.cell_id), "title": about.label, "alt": drawing.alt, "duration": about.duration_us,
        "peak": about.peak_bytes, "peakAt": about.peak_at_us, "scale": drawing.scale_bytes, "fold": drawing.fold_bytes,
        "foldHeld": drawing.folds_held,
        "categories": CATEGORIES, "colors": [color_of(name) for name in CATEGORIES], "present": present.tolist(),
        "phases": columns.names["phase"], "modules": columns.names["module"], "operations": columns.names["operation"],
        "frames": list(frames), "stacks": stacks, "marks": columns.marks,
    }  # fmt: skip
