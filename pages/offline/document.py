"""One page as one HTML file that opens offline: its sentences, charts, tables, choices, commands and timelines.

    html = document(visit, Origin(file="results.duckdb", edition="1f2e3d4c", pages={"kernels": "Kernels"}, written=now))

Charts stay interactive, with Plotly inside the file; tables are plain HTML; a component of our own (the memory
timeline) comes with its script and data. A content policy forbids requests. Limits: what needs a server (filters,
clicks that pin a cell) is shown as it was.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs
from streamlit.testing.v1.element_tree import Node

from pages.figures.colors import PALETTE
from pages.figures.ink import ink_rules
from pages.figures.small import STYLE
from pages.offline.prose import inline, prose
from pages.offline.tables import html_table
from pages.offline.visit import Visit, is_card, nodes
from pages.ui.evidence import OPEN_IN_FILE
from pages.ui.filters import UNSEEN
from pages.ui.sections import FOLDED

_FOLDER = Path(__file__).parent
#: What a reader can do in the dashboard alone.
_CLICKS = re.compile(r" ?Click an? [^.]*\.")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a file comes from. `pages` are those exported beside it: address and title."""

    file: str
    edition: str
    pages: Mapping[str, str]
    written: datetime


def document(visit: Visit, origin: Origin) -> str:
    """Returns the whole file as text, to be written as UTF-8."""
    links = [
        f"<b>{escape(title)}</b>" if address == visit.address else f'<a href="{address}.html">{escape(title)}</a>'
        for address, title in origin.pages.items()
    ]
    return Template(_read("offline.html")).substitute(
        title=escape(visit.title),
        navigation=f'<nav aria-label="Pages">{"".join(links)}</nav>' if len(links) > 1 else "",
        filters="".join(_write_choice(node, nothing="all") for node in _list_filters(visit.sidebar)),
        body=_Writer(visit, origin).all_of(visit.main),
        file=escape(origin.file),
        edition=escape(origin.edition),
        written=f"{origin.written:%Y-%m-%d %H:%M} UTC",
        palette=escape(json.dumps(PALETTE), quote=True),
        style=_read("offline.css") + STYLE.read_text(encoding="utf-8") + ink_rules(),
        script=_read("offline.js"),
        plotly=get_plotlyjs(),
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _list_filters(sidebar: Node) -> Iterator[Any]:
    """Yields the widgets of the sidebar but those of filters that do nothing on the page."""
    for child in getattr(sidebar, "children", {}).values():
        if getattr(child, "key", None) != UNSEEN:
            yield child
            yield from _list_filters(child)


class _Writer:
    """Writes the elements of one page, in the order of the page."""

    def __init__(self, visit: Visit, origin: Origin) -> None:
        self._visit, self._origin, self._inside_card = visit, origin, False
        self._writers: Mapping[str, Callable[[Any], str]] = {
            "title": lambda node: f"<h1>{inline(node.value)}</h1>",
            "header": lambda node: f'<h2 id="{escape(node.proto.anchor)}">{inline(node.value)}</h2>',
            "subheader": lambda node: f'<h3 id="{escape(node.proto.anchor)}">{inline(node.value)}</h3>',
            "markdown": lambda node: prose(node.proto.body),
            "caption": lambda node: f'<div class="caption">{prose(_CLICKS.sub("", node.proto.body))}</div>',
            "code": lambda node: f"<pre><code>{escape(node.proto.code_text)}</code></pre>",
            "metric": _write_metric,
            "html": lambda node: node.proto.body,
            "dataframe": lambda node: html_table(node.value, proto=node.proto),
            "plotly_chart": _write_chart,
            "bidi_component": _write_component,
            "page_link": self._page_link,
            **dict.fromkeys(("info", "warning", "error", "success"), _write_alert),
            "expander": self._expander,
            "popover": lambda node: "" if self._inside_card else self._shared(node),
        }

    def all_of(self, node: Node) -> str:
        return "".join(self._one(child) for child in getattr(node, "children", {}).values())

    def _one(self, node: Node) -> str:
        if writer := self._writers.get(node.type):
            return writer(node)
        if not hasattr(node, "children"):
            return _write_choice(node)
        if is_card(node):
            return self._card(node)
        inside = self.all_of(node)
        return f'<div class="{_classes_of(node)}">{inside}</div>' if inside else ""

    def _card(self, node: Any) -> str:
        self._inside_card = True
        inside = self.all_of(node)
        self._inside_card = False
        rows = self._visit.rows.get(node.key)
        table = "" if rows is None else _fold(f"Table · {len(rows):,} rows", html_table(rows))
        shared = "".join(self._shared(inner) for inner in nodes(node) if inner.type == "popover")
        return f'<section class="card">{inside}{table}{shared}</section>'

    def _shared(self, popover: Node) -> str:
        """Writes the links and commands of Share, each with its caption; downloads need the dashboard."""
        inside = list(nodes(popover))
        parts = [
            (self._one(before) if before.type == "caption" else "") + self._one(node)
            for before, node in pairwise(inside)
            if node.type == "code"
        ]
        return _fold("Link and command", "".join(parts))

    def _expander(self, node: Any) -> str:
        is_open = str(node.key or "").startswith((OPEN_IN_FILE, FOLDED))
        return _fold(inline(node.proto.label), self.all_of(node), is_open=is_open)

    def _page_link(self, node: Any) -> str:
        address = node.proto.page
        if address not in self._origin.pages:
            return ""
        return f'<p><a href="{escape(address)}.html">{escape(node.proto.label)} →</a></p>'


def _fold(summary: str, inside: str, *, is_open: bool = False) -> str:
    return f"<details{' open' * is_open}><summary>{summary}</summary>{inside}</details>" if inside else ""


def _classes_of(node: Any) -> str:
    """Returns the CSS classes: side by side or below one another, framed or not, as on the page."""
    if node.type == "column":
        return "column"
    flex = getattr(node.proto, "flex_container", None)
    if flex is None:
        return "stack"
    return ("row" if flex.direction == flex.HORIZONTAL else "stack") + (" framed" if flex.border else "")


def _write_choice(node: Any, *, nothing: str = "") -> str:
    """Writes the value of a filter or a chooser; one without a visible label belongs to the page's own controls."""
    proto: Any = getattr(node, "proto", None)
    if not hasattr(node, "value") or not hasattr(proto, "label_visibility") or proto.label_visibility.value:
        return ""
    data = node.value if isinstance(node.value, list | tuple) else [node.value]
    words = ", ".join(str(value) for value in data if value is not None) or nothing
    if "\n" in words:
        return f'<p class="choice"><span>{inline(proto.label)}</span></p><pre><code>{escape(words)}</code></pre>'
    return f'<p class="choice"><span>{inline(proto.label)}</span> {escape(words)}</p>' if words else ""


def _write_metric(node: Any) -> str:
    return f'<div class="metric"><span>{inline(node.proto.label)}</span><b>{escape(node.proto.body)}</b></div>'


def _write_alert(node: Any) -> str:
    return f'<div class="alert {node.type}" role="note">{prose(node.proto.body)}</div>'


def _write_chart(node: Any) -> str:
    """Writes the figure as data, which the file's script draws."""
    figure, config = json.loads(node.proto.spec), json.loads(node.proto.config or "{}")
    figure["layout"].pop("template", None)
    height = int(figure["layout"].get("height", 450))
    script = _write_data({"figure": figure, "config": config})
    return (
        f'<div class="chart" role="img" aria-label="{escape(node.proto.alt)}" style="height:{height}px">{script}</div>'
    )


def _write_component(node: Any) -> str:
    """Writes a component that draws something; one without HTML only serves the dashboard."""
    proto = node.proto
    if not proto.html_content:
        return ""
    kind = proto.WhichOneof("data")
    data = {"bytes": base64.b64encode(proto.bytes).decode()} if kind == "bytes" else {"json": proto.json}
    script = _write_data({"html": proto.html_content, "css": proto.css_content, "js": proto.js_content, **data})
    return f'<div class="component">{script}</div>'


def _write_data(value: Any) -> str:
    """Returns JSON in which no HTML parser finds a tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'
