"""Every string that pages show: those of a visit, charts and tables included, and those in the sources.

    python -m tests.pages.words results.duckdb > words.txt        # a line each, sorted, numbers as #

The sources have strings that no file leads to: empty states, warnings, errors.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages.navigation import PAGES
from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain

ROOT = Path(__file__).parents[2]
#: Folders of sources whose strings pages show.
SOURCES = ("pages", "runner/analysis", "runner/report")
_NUMBER = re.compile(r"\d[\d,.]*")
_FIELDS = ("label", "help", "placeholder", "value", "alt")


def words_of(path: Path) -> list[str]:
    """Returns every string that the pages show for a file, each once, with its numbers as #."""
    visits, found = Visits(path), set[str]()
    for address in PAGES:
        visit = visits.visit(address, {})
        for node in [*nodes(visit.main), *nodes(visit.sidebar)]:
            found.update(_texts_of(node))
        for rows in visit.rows.values():
            found.update(map(str, rows.columns))
    return sorted({_normalize(text) for text in found if any(map(str.isalpha, text))})


def _texts_of(node: Any) -> Iterator[str]:
    proto = getattr(node, "proto", None)
    for holder in (node, proto):
        for name in _FIELDS:
            if isinstance(value := getattr(holder, name, None), str):
                yield from plain(value).split("\n")
    yield from (str(getattr(option, "content", option)) for option in getattr(proto, "options", ()))
    if node.type == "plotly_chart":
        figure = json.loads(node.proto.spec)
        yield from _texts_in(figure["layout"])
        for trace in figure["data"]:
            yield from _texts_in({name: trace[name] for name in ("name", "text", "hovertemplate") if name in trace})
    if node.type == "dataframe":
        yield from map(str, node.value.columns)


def _texts_in(value: Any) -> Iterator[str]:
    """Yields the texts of a chart: titles, legends, tick labels, annotations, tooltips."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("uirevision", "template", "color", "family", "dash", "symbol", "bdata", "dtype"):
                yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)


def _normalize(text: str) -> str:
    return " ".join(_NUMBER.sub("#", text).split())


def words_of_sources() -> list[str]:
    """Returns every text of more than one word in the sources that is not a docstring, each once, sorted."""
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    found = {text for path in files for text in _strings_in(ast.parse(path.read_text(encoding="utf-8")))}
    return sorted(text for text in map(_normalize, found) if re.search(r"[A-Za-z]{2,} [A-Za-z]", text))


def _strings_in(tree: ast.AST) -> Iterator[str]:
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


if __name__ == "__main__":
    print("\n".join([*words_of(Path(sys.argv[1])), "", *words_of_sources()]))
