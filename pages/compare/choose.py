"""The choosers of Compare: the kind of sides, A, B and the phase, each in the URL.

    request = choose(frame, usual)           # None where A and B are the same

Limits: the sidebar's machine and run narrow only precisions and backends; otherwise A and B name the rows.
"""

from collections.abc import Sequence

import streamlit as st

from pages.ui.chosen import chosen, select_one
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from runner.analysis.compare.verdict import ComparedPhase, Kind, Side
from runner.store.queries.compare import ComparisonRequest
from runner.store.queries.sides import OF_RUNS, choose_pair, load_sides

_KINDS: dict[str, Kind] = {
    "Runs": "run",
    "Labels": "label",
    "Machines": "machine",
    "Commits": "commit",
    "Precisions": "precision",
    "Backends": "backend",
}
_PHASES: dict[str, ComparedPhase] = {"Whole step": "step", "Forward": "forward", "Backward": "backward"}


def choose(frame: Frame, usual: tuple[Side, Side]) -> ComparisonRequest | None:
    """Draws the choosers and returns the comparison. `usual` are the sides until the reader chooses others."""
    known = frame.ask(load_sides)
    kinds = [word for word, kind in _KINDS.items() if len(known[kind]) > 1]
    default = next(word for word, kind in _KINDS.items() if kind == usual[0].kind)
    kind = _KINDS[chosen("compare", "Compare", kinds, default=default)]
    # The latest run comes first, and so does the precision or backend that others are compared with.
    older, newer = (1, 0) if kind in OF_RUNS else (0, 1)
    start = usual if kind == usual[0].kind else frame.ask(choose_pair, kind)
    start = start or (known[kind][older], known[kind][newer])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        a = _choose_side(f"{kind}-a", "A, the baseline", known[kind], default=start[0])
        st.button("Swap", icon=":material/swap_horiz:", on_click=_swap, args=(kind,), key="_swap", width="content")
        b = _choose_side(f"{kind}-b", "B, compared with it", known[kind], default=start[1])
        with st.container(width="content"):
            phase = _PHASES[chosen("compare-phase", "Time of", list(_PHASES))]
    if a == b:
        words = frame.say("A and B are the same: choose two different ones.")
        st.info(restrict(words), icon=":material/compare_arrows:")
        return None
    return ComparisonRequest(a=a, b=b, within=_find_narrowing(frame, kind), phase=phase)


def _choose_side(key: str, label: str, options: Sequence[Side], *, default: Side) -> Side:
    """Returns the chosen side. The page reports a value in the link that does not exist."""
    by_words = {_name_side(side): side for side in options}
    return by_words[select_one(key, label, list(by_words), default=_name_side(default), width=260)]


def _name_side(side: Side) -> str:
    return f"{side.title} · {side.when}" if side.when else side.title


def _swap(kind: Kind) -> None:
    state = st.session_state
    state[f"{kind}-a"], state[f"{kind}-b"] = state[f"{kind}-b"], state[f"{kind}-a"]


def _find_narrowing(frame: Frame, kind: Kind) -> tuple[Side, ...]:
    """Returns the sidebar's machine and run, unless sides that name rows are compared."""
    if kind in OF_RUNS:
        return ()
    machine, run = frame.selection.machine, frame.selection.run
    found = [Side(kind="machine", value=machine, title=machine)] if machine else []
    return (*found, Side(kind="run", value=str(run), title=str(run))) if run else tuple(found)
