"""What keeps pages up to date: looks at the file every two seconds, shows the sweep, reruns the page on new rows.

    watch(path, state, drawn_at=time.monotonic())

Looking costs a few file states. Widgets, zoom and scroll position survive the rerun, because nothing is rebuilt.
"""

import time
from pathlib import Path

import streamlit as st

from pages.parts.frame import cached
from runner.errors import StoreError
from runner.store.database import fingerprint, plan_fingerprint
from runner.store.queries.progress import SweepProgress, progress

EVERY_S = 2


@st.fragment(run_every=EVERY_S)
def watch(path: Path, state: str, *, drawn_at: float) -> None:
    """Show running sweeps; rerun the page when the rows are no longer those of `state`. An empty `state` always reruns.

    `drawn_at` is when the page began to be drawn: it gets `EVERY_S` to finish before it is drawn again.
    """
    if fingerprint(path) != state and time.monotonic() - drawn_at > EVERY_S * 0.9:
        st.rerun(scope="app")
    try:
        sweeps = cached(path, plan_fingerprint(path), progress)
    except StoreError:
        return
    for sweep in sweeps:
        _show(sweep)


def _show(sweep: SweepProgress) -> None:
    share = sweep.done / sweep.total
    counts = f"**{sweep.done} of {sweep.total}** cells" + (f", {sweep.failed} without a result" if sweep.failed else "")
    if sweep.is_alive():
        now = f" · now: {sweep.current}" if sweep.current else ""
        st.progress(share, text=f":material/timer: Sweep running: {counts}{_left(sweep.seconds_left)}{now}")
    else:
        st.progress(
            share, text=f":material/pause_circle: Interrupted after {counts}: run the same command again to go on"
        )


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f" · about {seconds / 60:.0f} min left" if seconds >= 90 else f" · about {max(1, seconds):.0f} s left"
