"""A page as it is drawn, without server or browser: Streamlit's test harness runs it and returns its elements.

    visits = Visits(Path("results.duckdb"))
    visit = visits.visit("training-step", {"context": ["512"]})

Every page runs three times or more: to see what can be opened, with that open, and with every card as its table.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Node

import pages
from pages.navigation import OPEN, PAGES
from pages.ui.pin import BOX
from pages.ui.states import NEEDS_MORE
from runner.errors import DatabaseDamaged, StepscopeError, StoreError, UsageError

_MAIN = Path(pages.__file__).parent / "main.py"
_SECONDS = 600
#: Parameters of the URL that no widget holds: the pinned cell and the edition that a link meant.
_WITHOUT_WIDGET = ("cell", "data")
Parameters = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A page that has run: its elements with everything open, and the rows of each card, by the card's key."""

    address: str
    title: str
    main: Node
    sidebar: Node
    rows: Mapping[str, pd.DataFrame]


class Visits:
    """The pages over one file. `places` are the titles of all pages by address, in the order of the navigation."""

    def __init__(self, path: Path, *, origin: str = "") -> None:
        os.environ["STEPSCOPE_DB"] = str(path)
        # Outside of a server every access to the state of a session is remarked upon.
        logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context").disabled = True
        self._origin = origin.rstrip("/")
        self.places = {address: page.title for address, page in PAGES.items()}

    def visit(self, address: str, parameters: Parameters) -> Visit:
        """Runs one page with these parameters of the URL. Raises UsageError for one that it does not know."""
        app = _app()
        app.session_state[OPEN] = address
        app.context = {"url": f"{self._origin}/{address}"}
        app.query_params.update({name: list(values) for name, values in parameters.items()})
        _run(app)
        if unread := [shown.value for shown in app.error if NEEDS_MORE in shown.value]:
            raise DatabaseDamaged(unread[0].replace("**", ""))
        self._check(address, [*nodes(app.main), *nodes(app.sidebar)], parameters)
        views = _open_everything(app)
        opened = app.main
        for key in views:
            app.session_state[key] = "Table"
        rows = dict(_tables(_run(app).main, views)) if views else {}
        return Visit(address=address, title=app.title[0].value, main=opened, sidebar=app.sidebar, rows=rows)

    def _check(self, address: str, found: list[Any], parameters: Parameters) -> None:
        widgets = {name: node for node in found if (name := _parameter(node))}
        for node in found:
            is_box = (getattr(node, "key", None) or "").startswith(BOX)
            if is_box and "cell" in parameters and node.value is None:
                raise UsageError(
                    f"{address} has no cell “{', '.join(parameters['cell'])}”.",
                    expected="the id of a cell in this file",
                    do="The URL of a page on which one was clicked has it.",
                )
        for name, values in parameters.items():
            options = _options(widgets[name]) if name in widgets else []
            if missing := [value for value in values if options and value not in options]:
                raise UsageError(
                    f"{address} has no {name} “{'”, “'.join(missing)}”.",
                    expected=f"of {', '.join(options)}",
                    do="The values are those of the file and of the other filters.",
                )
            if name not in widgets and name not in _WITHOUT_WIDGET:
                names = sorted(set(widgets) | {"cell"})
                raise UsageError(
                    f"{address} has no filter or choice “{name}”.",
                    expected=f"one of {', '.join(names)}",
                    do="They are the parameters of the page's URL.",
                )


def nodes(node: Node) -> Iterator[Any]:
    """Yields the node and everything inside, in the order of the page."""
    yield node
    for child in getattr(node, "children", {}).values():
        yield from nodes(child)


def _app() -> AppTest:
    """Returns the app for a reader of the file, who needs no sign-in."""
    app = AppTest.from_file(_MAIN, default_timeout=_SECONDS)
    app.secrets = {"reader": "of the file"}
    return app


def _run(app: AppTest) -> AppTest:
    """Runs the app. Raises StoreError unless it drew a page: below every page's title stands a question."""
    app.run()
    if app.exception:
        raise StepscopeError("A page failed; the traceback above says where.", do="That is a fault of Stepscope.")
    title = app.title[0].value if app.title else "The page has no title"
    below = app.main.caption
    if not below or not below[0].value.endswith("?"):
        raise StoreError(f"{title}.", do="Look at the file with `python -m runner doctor`, then export again.")
    return app


def _open_everything(app: AppTest) -> list[str]:
    """Opens popovers and expanders, also those inside, and shows cards as charts. Returns the keys of the cards'
    choosers."""
    views: set[str] = set()
    opened: set[str] = set()
    while True:
        found = [node for node in nodes(app.main) if getattr(node, "key", None)]
        closed = {node.key for node in found if node.type in ("popover", "expander")} - opened
        charts = {node.key for node in found if node.type == "button_group" and _options(node) == ["Chart", "Table"]}
        if not closed and charts <= views:
            return sorted(views)
        for key in closed:
            app.session_state[key] = True
        for key in charts - views:
            app.session_state[key] = "Chart"
        opened |= closed
        views |= charts
        _run(app)


def _tables(main: Node, views: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the own table of every card that shows one: the evidence of its answer lies in an expander."""
    cards = {f"card-{view.removesuffix('-as')}" for view in views}
    for card in nodes(main):
        if getattr(card, "key", None) in cards:
            folded = {id(inner) for box in _of_type(card, "expander") for inner in nodes(box)}
            own = (node for node in _of_type(card, "dataframe") if id(node) not in folded)
            yield from ((card.key, node.value) for node in islice(own, 1))


def _of_type(node: Node, kind: str) -> Iterator[Any]:
    return (inner for inner in nodes(node) if inner.type == kind)


def is_card(node: Node) -> bool:
    """Returns whether the node is the frame around a chart."""
    return str(getattr(node, "key", None) or "").startswith("card-")


def _parameter(node: Node) -> str | None:
    return getattr(getattr(node, "proto", None), "query_param_key", None) or None


def _options(node: Any) -> list[str]:
    return [getattr(option, "content", option) for option in getattr(node.proto, "options", ())]
