"""Draws the frame around every page: sign-in, filters, navigation, running sweeps. Streamlit's entry point."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal
from uuid import uuid4

import streamlit as st

from pages.figures import small
from pages.figures.ink import ink_rules
from pages.navigation import NAVIGATION, OPEN, PAGES
from pages.ui import filters, live, pace, permalink, reference, sign_in, since, states
from pages.ui.frame import Frame, Page, cached
from pages.ui.sections import draw_contents
from pages.ui.zoom import keep_zoom
from runner.errors import DatabaseBusy, DatabaseDamaged, StoreError
from runner.store.database import default_path, fingerprint, look_through
from runner.store.queries.overview import load_contents
from runner.store.reference import choose_file

ICON, LOGO = (str(Path(__file__).parent / name) for name in ("icon.svg", "logo.svg"))
STYLES = (Path(__file__).parent / "ui" / "page.css", small.STYLE)

DrawPage = Callable[[Page], None]

#: Streamlit's address of the first page.
ROOT = "home"
TOPICS = {name: topic for page in PAGES.values() for name, topic in page.topics.items()}


def main() -> None:
    st.set_page_config(page_title="Stepscope", page_icon=ICON, layout="wide")
    st.html(f"<style>{''.join(file.read_text(encoding='utf-8') for file in STYLES)}{ink_rules()}</style>")
    st.logo(LOGO, icon_image=ICON, size="large")
    closed, pages, drawers = sign_in.sign_in_page(), dict[str, st.Page](), list[DrawPage]()
    chosen = _navigate(pages, lambda page: drawers[0](page), position="hidden" if closed else "sidebar")
    if closed:
        drawers.append(lambda _: closed())
        chosen.run()
        return
    own = default_path()
    with pace.drawing(own, st.session_state.setdefault("_reader", uuid4().hex)):
        _draw_file(own, pages, drawers, chosen)


def _draw_file(own: Path, pages: dict[str, st.Page], drawers: list[DrawPage], chosen: st.Page) -> None:
    path, state, drawn_at = own, pace.choose_shown_state(own), time.monotonic()
    # The reader's own file is watched even where reference rows are shown: until it has some.
    watch = partial(live.watch, own, drawn_at=drawn_at)
    try:
        path = choose_file()
        shown = state if path == own else fingerprint(path)
        if permalink.shows_other_file(path):
            states.announce_own()
            watch("")
            return
        file_contents = cached(path, shown, load_contents)
        if not file_contents.runs and not file_contents.published:
            states.empty()
            watch(state)
            return
        heeded = next((PAGES[at].filters for at, page in pages.items() if page == chosen), filters.FILTERS)
        frame = Frame(
            path=path,
            state=shown,
            contents=file_contents,
            selection=filters.sidebar(file_contents, heeded),
            pages=pages,
            topics=TOPICS,
            filters=heeded,
        )
        drawers.append(lambda page: page.draw(frame))
        _draw(frame, chosen, partial(watch, state))
    except StoreError as error:
        states.explain(error, path)
        # A busy file becomes free without a trace in its state, so that it is tried again in any case.
        watch("" if isinstance(error, DatabaseBusy) else state)


def _draw(frame: Frame, chosen: st.Page, watch: Callable[[], None]) -> None:
    watch()
    reference.mark_page(frame)
    states.report(frame.ask(look_through), frame.path)
    filters.report_missing()
    try:
        tell = since.announce_changes(frame)
        chosen.run()
        draw_contents(frame)
        tell()
    except DatabaseDamaged as error:
        states.explain_damage(error)
    permalink.draw_page_link(frame)
    keep_zoom()


def _navigate(pages: dict[str, st.Page], shown: DrawPage, *, position: Literal["sidebar", "hidden"]) -> st.Page:
    """Returns the page that is asked for, which `shown` draws. Puts every page into `pages`, by its address."""
    for entries in NAVIGATION.values():
        for page in entries:
            first = not pages
            url_path = ROOT if first else page.address
            pages[page.address] = st.Page(
                partial(shown, page), title=page.title, url_path=url_path, icon=page.icon, default=first
            )
    sections = {section: [pages[page.address] for page in entries] for section, entries in NAVIGATION.items()}
    # Streamlit serves the first page at the root alone. Its own address leads there, with all that it asks for.
    address, start = next(iter(pages.items()))
    alias = st.Page(states.empty, title=start.title, url_path=address, visibility="hidden")
    chosen = st.navigation({**sections, "Addresses": [alias]}, position=position, expanded=True)
    meant = start if chosen == alias else pages.get(st.session_state.pop(OPEN, ""), chosen)
    if meant != chosen:
        st.switch_page(meant, query_params=[(name, st.query_params.get_all(name)) for name in st.query_params])
    return chosen


main()
