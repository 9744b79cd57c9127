"""The frame around every page: who reads, the file, the filters, the navigation, the sweep. Streamlit's entry point."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import streamlit as st

from pages.compare import compare
from pages.data import sql, tables
from pages.explore import explore
from pages.memory import attention, peak, timeline
from pages.overview import overview
from pages.parts import filters, live, share, sign_in, since, states
from pages.parts.frame import Frame, cached
from pages.parts.zoom import keep_zoom
from pages.training import compile, kernels, mixed_precision, roofline, step
from runner.errors import DatabaseBusy, StoreError
from runner.store.database import default_path, fingerprint
from runner.store.queries.overview import contents

ICON, LOGO = (str(Path(__file__).parent / name) for name in ("icon.svg", "logo.svg"))
#: Lines of text and axes longer than this are hard to follow.
WIDEST = "<style>[data-testid=stMainBlockContainer] { max-width: 1600px; }</style>"

PageFunction = Callable[[Frame], None]

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
    st.html(WIDEST)
    st.logo(LOGO, icon_image=ICON, size="large")
    if closed := sign_in.closed():
        _navigation(lambda _: closed, {}, position="hidden").run()
        return
    path, drawn_at = default_path(), time.monotonic()
    state = fingerprint(path)
    try:
        held = cached(path, state, contents)
        frame = None
        if held.runs:
            frame = Frame(path=path, state=state, contents=held, selection=filters.sidebar(held))
        _draw(frame, partial(live.watch, path, state, drawn_at=drawn_at))
    except StoreError as error:
        # A busy file becomes free without a trace in its state, so that it is tried again in any case.
        again = "" if isinstance(error, DatabaseBusy) else state
        explanation = partial(states.explain, error, path)
        _navigation(lambda _: explanation, {}).run()
        live.watch(path, again, drawn_at=drawn_at)


def _draw(frame: Frame | None, watch: Callable[[], None]) -> None:
    if frame is None:
        _navigation(lambda _: states.empty, {}).run()
        watch()
        return
    chosen = _navigation(lambda run: partial(run, frame), frame.pages)
    watch()
    filters.report_missing()
    tell = since.arrived(frame)
    chosen.run()
    tell()
    share.page_link(frame)
    keep_zoom()


def _navigation(
    shown: Callable[[PageFunction], Callable[[], None]],
    pages: dict[str, st.Page],
    *,
    position: Literal["sidebar", "hidden"] = "sidebar",
) -> st.Page:
    """The navigation. `shown` says what is drawn for a page; every page is put into `pages`, by its address."""
    for entries in NAVIGATION.values():
        for title, address, icon, run in entries:
            pages[address] = st.Page(shown(run), title=title, url_path=address, icon=icon)
    sections = {section: [pages[entry[1]] for entry in entries] for section, entries in NAVIGATION.items()}
    return st.navigation(sections, position=position, expanded=True)


main()
