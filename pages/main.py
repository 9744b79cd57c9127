"""The frame around every page: who reads, the file, the filters, the navigation, the sweep. Streamlit's entry point."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import streamlit as st

from pages.charts.ink import ink_rules
from pages.compare import compare
from pages.data import sql, tables
from pages.explore import explore
from pages.memory import attention, peak, timeline
from pages.overview import overview
from pages.parts import filters, live, share, sign_in, since, states
from pages.parts.frame import Frame, cached
from pages.parts.zoom import keep_zoom
from pages.training import compile, kernels, mixed_precision, roofline, step
from runner.errors import DatabaseBusy, DatabaseDamaged, StoreError
from runner.store.database import default_path, fingerprint, look_through
from runner.store.queries.overview import contents

ICON, LOGO = (str(Path(__file__).parent / name) for name in ("icon.svg", "logo.svg"))
STYLE = Path(__file__).parent / "parts" / "page.css"

PageFunction = Callable[[Frame], None]
Shown = Callable[[PageFunction], None]

#: What Streamlit calls the address of the page that opens without one.
ROOT = "home"
#: Section -> pages: title, address, icon, function. The first page is the one that opens without an address.
NAVIGATION: dict[str, list[tuple[str, str, str, PageFunction]]] = {
    "": [("Overview", "overview", ":material/dashboard:", overview.page)],
    "Experiments": [
        ("Training step", "training-step", ":material/stacked_bar_chart:", step.page),
        ("Mixed precision", "mixed-precision", ":material/compare_arrows:", mixed_precision.page),
        ("torch.compile", "torch-compile", ":material/bolt:", compile.page),
        ("Kernels", "kernels", ":material/data_usage:", kernels.page),
        ("Roofline", "roofline", ":material/roofing:", roofline.page),
        ("Explore", "explore", ":material/query_stats:", explore.page),
    ],
    "Memory": [
        ("Attention", "attention", ":material/visibility:", attention.page),
        ("Peak memory", "peak-memory", ":material/memory:", peak.page),
        ("Memory timeline", "memory-timeline", ":material/view_timeline:", timeline.page),
    ],
    "Side by side": [("Compare", "compare", ":material/balance:", compare.page)],
    "File": [
        ("Data", "data", ":material/table:", tables.page),
        ("SQL", "sql", ":material/terminal:", sql.page),
    ],
}


def main() -> None:
    """Draw one page."""
    st.set_page_config(page_title="Stepscope", page_icon=ICON, layout="wide")
    st.html(f"<style>{STYLE.read_text(encoding='utf-8')}{ink_rules()}</style>")
    st.logo(LOGO, icon_image=ICON, size="large")
    closed, pages, how = sign_in.closed(), dict[str, st.Page](), list[Shown]()
    chosen = _navigation(pages, lambda run: how[0](run), position="hidden" if closed else "sidebar")
    if closed:
        how.append(lambda _: closed())
        chosen.run()
        return
    path, drawn_at = default_path(), time.monotonic()
    state = fingerprint(path)
    watch = partial(live.watch, path, drawn_at=drawn_at)
    try:
        held = cached(path, state, contents)
        if not held.runs:
            states.empty()
            watch(state)
            return
        frame = Frame(path=path, state=state, contents=held, selection=filters.sidebar(held), pages=pages)
        how.append(lambda run: run(frame))
        _draw(frame, chosen, partial(watch, state))
    except StoreError as error:
        states.explain(error, path)
        # A busy file becomes free without a trace in its state, so that it is tried again in any case.
        watch("" if isinstance(error, DatabaseBusy) else state)


def _draw(frame: Frame, chosen: st.Page, watch: Callable[[], None]) -> None:
    watch()
    states.report(frame.ask(look_through), frame.path)
    filters.report_missing()
    try:
        tell = since.arrived(frame)
        chosen.run()
        tell()
    except DatabaseDamaged as error:
        states.damaged(error)
    share.page_link(frame)
    keep_zoom()


def _navigation(pages: dict[str, st.Page], shown: Shown, *, position: Literal["sidebar", "hidden"]) -> st.Page:
    """The page that is asked for, which `shown` draws. Every page is put into `pages`, by its address."""
    for entries in NAVIGATION.values():
        for title, address, icon, run in entries:
            first = not pages
            url_path = ROOT if first else address
            pages[address] = st.Page(partial(shown, run), title=title, url_path=url_path, icon=icon, default=first)
    sections = {section: [pages[entry[1]] for entry in entries] for section, entries in NAVIGATION.items()}
    # Streamlit serves the first page at the root alone. Its own address leads there, with all that it asks for.
    address, start = next(iter(pages.items()))
    alias = st.Page(states.empty, title=start.title, url_path=address, visibility="hidden")
    chosen = st.navigation({**sections, "Addresses": [alias]}, position=position, expanded=True)
    if chosen == alias:
        st.switch_page(start, query_params=[(name, st.query_params.get_all(name)) for name in st.query_params])
    return chosen


main()
