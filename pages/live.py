"""Keeps pages up to date. The browser asks every two seconds whether the file has changed; if so, the page is drawn
again, and running sweeps are shown.

Asking costs a few file states and runs no script: a script every two seconds would meet readers' clicks in another
thread, where Streamlit loses some. Widgets, zoom and scroll position survive, because nothing is rebuilt.

One reader sees new rows at once. For several, a state is shown for twice the time that drawing it took for all of them,
and for MAX_HELD_S at most. Otherwise every cell of a sweep would restart all their pages before most were drawn once.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from pages.frame import cached
from pages.markdown import literal, quoted, restrict
from runner.errors import StoreError
from runner.formats import format_duration
from runner.store.database import fingerprint, plan_fingerprint
from runner.store.read.runs import SweepProgress, load_progress
from runner.store.spool import STALE_S

EVERY_S = 2
#: The path before every address of this server: nothing, or such as "/team".
BASE = "/".join(["", *filter(None, str(st.get_option("server.baseUrlPath")).split("/"))])
#: The address that the browser polls; `pages.api.routes` answers with the two fingerprints.
ADDRESS = f"{BASE}/api/v1/state"


@st.fragment
def watch(path: Path, state: str, *, drawn_at: float) -> None:
    """Shows running sweeps, and draws the page again when the rows are no longer those of `state`: always, if it is
    empty.

    `drawn_at` is when drawing began: a page gets `EVERY_S` to finish before it is drawn again.
    """
    if choose_shown_state(path) != state and time.monotonic() - drawn_at > EVERY_S * 0.9:
        st.rerun(scope="app")
    plan = plan_fingerprint(path)
    try:
        sweeps = cached(path, plan, load_progress)
    except StoreError:
        sweeps = []
    for sweep in sweeps:
        _draw_sweep(sweep)
    # A sweep that has died changes nothing: it is looked at once more when its last heartbeat is too old.
    again_s = STALE_S if any(sweep.is_alive() for sweep in sweeps) else None
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    component = st.components.v2.component("stepscope_live", js=script)
    data = {"rows": state, "plan": plan, "again_s": again_s, "address": ADDRESS, "every_s": EVERY_S}
    component(key="_live", height=1, data=data, default={"seen": None}, on_seen_change=lambda: None)


def _draw_sweep(sweep: SweepProgress) -> None:
    counts = f"**{sweep.done} of {sweep.total}** cells" + (f", {sweep.failed} without a result" if sweep.failed else "")
    if sweep.is_alive():
        now = f" · now: {literal(sweep.current)}" if sweep.current else ""
        left = "" if sweep.seconds_left is None else f" · about {format_duration(max(1, sweep.seconds_left))} left"
        words = f":material/timer: Sweep running: {counts}{left}{now}"
    else:
        command = f": {quoted(sweep.argv)}" if sweep.argv else ""
        words = f":material/pause_circle: Interrupted after {counts}: run the same command again to go on{command}"
    st.progress(sweep.done / sweep.total, text=restrict(words))


MAX_HELD_S = 30.0


@dataclass(kw_only=True)
class _Shown:
    """A state, since when it is shown and for how long at least, and what it took the server to draw it."""

    state: str
    since: float
    held_s: float
    spent_s: float = 0.0
    readers: set[str] = field(default_factory=set)


_shown: dict[Path, _Shown] = {}
_lock = threading.Lock()


def choose_shown_state(path: Path) -> str:
    """Returns the fingerprint of the file that its readers are to see: its own, or for a while the one before."""
    state, now = fingerprint(path), time.monotonic()
    with _lock:
        before = _shown.get(path)
        if before is None:
            _shown[path] = _Shown(state=state, since=now, held_s=0.0)
        elif before.state != state and now >= before.since + before.held_s:
            held_s = min(2 * before.spent_s, MAX_HELD_S) if len(before.readers) > 1 else 0.0
            _shown[path] = _Shown(state=state, since=now, held_s=held_s)
        return _shown[path].state


@contextlib.contextmanager
def drawing(path: Path, reader: str) -> Iterator[None]:
    """Counts the processor time of what is drawn within for this reader."""
    started = time.thread_time()
    try:
        yield
    finally:
        with _lock:
            if shown := _shown.get(path):
                shown.spent_s += time.thread_time() - started
                shown.readers.add(reader)
