"""Draws the frame around every page: sign-in, navigation, running sweeps. Streamlit's entry point."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import streamlit as st

from pages import address, browser, live, sign_in, states
from pages.address import keep
from pages.draw import draw_answer, draw_report
from pages.frame import ALL_RUNS, MACHINE, RUN, Frame, cached
from pages.list import MOVED, PAGES, Page
from pages.markdown import literal, restrict
from pages.plot.colors import ink_rules
from pages.sql import draw_sql
from runner.answers import QUESTIONS
from runner.answers.answer import Choice, choose
from runner.errors import DatabaseBusy, DatabaseDamaged, StoreError
from runner.places import default_path
from runner.store.database import fingerprint, look_through
from runner.store.packing import MEASURE, choose_file, describe_reference, is_reference
from runner.store.read.runs import Contents, load_contents

_FOLDER = Path(__file__).parent
ICON, LOGO = str(_FOLDER / "icon.svg"), str(_FOLDER / "logo.svg")
#: The choice of what a page shows: a question, or a part of its own.
SHOW = "show"


def main() -> None:
    st.set_page_config(page_title="Stepscope", page_icon=ICON, layout="wide", initial_sidebar_state=200)
    st.html(f"<style>{ink_rules()}{(_FOLDER / 'page.css').read_text(encoding='utf-8')}</style>")
    st.logo(LOGO, icon_image=ICON, size="large")
    closed = sign_in.sign_in_page()
    drawers: list[Callable[[Page], None]] = []
    chosen = _navigate(lambda page: drawers[0](page), is_closed=closed is not None)
    if closed:
        drawers.append(lambda _: closed())
        chosen.run()
        return
    own = default_path()
    with live.drawing(own, st.session_state.setdefault("_reader", uuid4().hex)):
        _draw_file(own, drawers, chosen)
    browser.watch()


def _navigate(shown: Callable[[Page], None], *, is_closed: bool) -> st.Page:
    """Returns the page that is asked for, which `shown` draws; an address of before leads on to its new one."""
    pages = {
        page.address: st.Page(
            partial(shown, page),
            title=page.title,
            url_path="home" if page is PAGES[0] else page.address,
            icon=f":material/{page.icon}:",
            default=page is PAGES[0],
        )
        for page in PAGES
    }
    # Streamlit serves the first page at the root alone: its own address leads there.
    moved = {PAGES[0].address: (PAGES[0].address, ""), **MOVED}
    old = {name: st.Page(states.empty, title=name, url_path=name, visibility="hidden") for name in moved}
    chosen = st.navigation([*pages.values(), *old.values()], position="hidden" if is_closed else "sidebar")
    for name, page in old.items():
        if chosen == page:
            target, part = moved[name]
            asked = address.begin()
            asked |= {SHOW: part} if part else {}
            st.switch_page(pages[target], query_params=asked)
    return chosen


def _draw_file(own: Path, drawers: list[Callable[[Page], None]], chosen: st.Page) -> None:
    path, state, drawn_at = own, live.choose_shown_state(own), time.monotonic()
    # The reader's own file is watched even where reference rows are shown: until it has some.
    watch = partial(live.watch, own, drawn_at=drawn_at)
    try:
        path = choose_file()
        shown = state if path == own else fingerprint(path)
        contents = cached(path, shown, load_contents)
        if not contents.runs and not contents.published:
            states.empty()
            watch(state)
            return
        address.begin()
        watch(state)
        states.report(cached(path, shown, look_through), path)
        drawers.append(partial(_draw_page, path, shown, contents))
        try:
            chosen.run()
        except DatabaseDamaged as error:
            st.error(restrict(f"**{states.NEEDS_MORE}** {literal(str(error))}"), icon=":material/broken_image:")
    except StoreError as error:
        states.explain(error, path)
        # A busy file becomes free without a trace in its state, so that it is tried again in any case.
        watch("" if isinstance(error, DatabaseBusy) else state)


def _draw_page(path: Path, state: str, contents: Contents, page: Page) -> None:
    draw = _draw_parts if _is_query(page) else _draw_fragment
    frame, choices = draw(path, state, contents, page)
    with st.sidebar:
        address.draw_copy_link(contents.edition, choices)
        draw_report(frame)


@st.fragment
def _draw_fragment(path: Path, state: str, contents: Contents, page: Page) -> tuple[Frame, list[Choice]]:
    """Draws what `_draw_parts` does; a changed choice draws it again, and nothing else."""
    if _is_query(page):
        st.rerun()
    return _draw_parts(path, state, contents, page)


def _is_query(page: Page) -> bool:
    """Returns whether the page shows the reader's query, which is no fragment: Streamlit lets the rerun of one wait for
    the run before, so that "Cancel" would wait for the query."""
    return page.parts.get(_choose_part(page).chosen) is draw_sql


def _choose_part(page: Page) -> Choice:
    return choose(address.begin(), SHOW, "Show", [*page.questions, *page.parts])


def _draw_parts(path: Path, state: str, contents: Contents, page: Page) -> tuple[Frame, list[Choice]]:
    """Draws the part of a page that is asked for, from its title on. Returns what it drew."""
    asked, parts = address.begin(), _choose_part(page)
    of_file = parts.chosen in QUESTIONS and QUESTIONS[parts.chosen].of_file
    sides: list[Choice] = []
    if not of_file:  # without a run the latest rows of each cell count
        machine = choose(asked, MACHINE, "Machine", contents.machines)
        names = [run.name for run in contents.runs if run.machine == machine.chosen]
        sides = [machine, choose(asked, RUN, "Run", [ALL_RUNS, *names] if len(names) > 1 else [])]
    chosen = {one.name: one.chosen for one in sides}
    runs = {run.name: run.run_id for run in contents.runs}
    frame = Frame(
        path=path,
        state=state,
        contents=contents,
        selection=contents.select(chosen.get(MACHINE), runs.get(chosen.get(RUN, ""))),
    )
    st.set_page_config(page_title=" · ".join(part for part in (page.title, frame.device, "Stepscope") if part))
    shown = [parts, *sides]
    with st.container(gap="xsmall"):
        if parts.chosen in page.parts:
            _draw_title(frame, page, parts, ())
            page.parts[parts.chosen](frame, sides)
        else:
            answer = frame.ask(parts.chosen)
            _draw_title(frame, page, parts, answer.choices)
            draw_answer(frame, answer, before=sides)
            shown += answer.choices
        address.report_other_data(contents.edition)
    return frame, shown


def _draw_title(frame: Frame, page: Page, parts: Choice, choices: Sequence[Choice]) -> None:
    """Draws the title, of what machine, precision and mode the page is, and the parts of the page."""
    shown = [one.chosen for one in choices if one.name in ("precision", "mode")]
    machine, help_text = " · ".join(map(literal, [frame.device, *shown])), None
    if is_reference(frame.path):
        machine = f"{machine} · :material/bookmark: reference rows"
        words = describe_reference([run.device_name for run in frame.contents.runs])
        help_text = restrict(f"{literal(words)} Measure your own: `{MEASURE}`")
    with st.container(horizontal=True, vertical_alignment="center", key="_head"):
        st.title(restrict(f"{page.title}"), anchor=False, width="content")
        st.caption(restrict(machine), width="content", help=help_text)
        if len(parts.options) > 1:
            key = f"_show-{page.address}"
            st.session_state[key] = parts.chosen
            st.segmented_control(
                "Show",
                parts.options,
                key=key,
                format_func=lambda name: page.questions.get(name, name[0].upper() + name[1:]),
                label_visibility="collapsed",
                required=True,
                on_change=lambda: keep(SHOW, st.session_state[key]),
            )


main()
