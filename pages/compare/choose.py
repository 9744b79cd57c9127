"""What is compared with what: the kind, A, B and the phase, each in the URL.

    question = choose(frame, usual)          # None where A and B are the same

Limits: the sidebar's machine and run narrow only precisions and backends; otherwise A and B say which rows are meant.
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
    """Draw the choosers. `usual` is what is compared unless the reader says otherwise."""
    known = frame.ask(load_sides)
    kinds = [word for word, kind in _KINDS.items() if len(known[kind]) > 1]
    default = next(word for word, kind in _KINDS.items() if kind == usual[0].kind)
    kind = _KINDS[chosen("compare", "Compare", kinds, default=default)]
    # Of runs the latest comes first, of precisions and backends what others are compared with.
    older, newer = (1, 0) if kind in OF_RUNS else (0, 1)
    start = usual if kind == usual[0].kind else frame.ask(choose_pair, kind)
    start = start or (known[kind][older], known[kind][newer])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        a = _one(f"{kind}-a", "A, the baseline", known[kind], default=start[0])
        st.button("Swap", icon=":material/swap_horiz:", on_click=_swap, args=(kind,), key="_swap", width="content")
        b = _one(f"{kind}-b", "B, compared with it", known[kind], default=start[1])
        with st.container(width="content"):
            phase = _PHASES[chosen("compare-phase", "Time of", list(_PHASES))]
    if a == b:
        words = frame.say("A and B are the same: choose two different ones.")
        st.info(restrict(words), icon=":material/compare_arrows:")
        return None
    return ComparisonRequest(a=a, b=b, within=_within(frame, kind), phase=phase)


def _one(key: str, label: str, options: Sequence[Side], *, default: Side) -> Side:
    """One of the sides; a value of the link that is not there is reported."""
    by_words = {_words(side): side for side in options}
    return by_words[select_one(key, label, list(by_words), default=_words(default), width=260)]


def _words(side: Side) -> str:
    return f"{side.title} · {side.when}" if side.when else side.title


def _swap(kind: Kind) -> None:
    state = st.session_state
    state[f"{kind}-a"], state[f"{kind}-b"] = state[f"{kind}-b"], state[f"{kind}-a"]


def _within(frame: Frame, kind: Kind) -> tuple[Side, ...]:
    """The sidebar's machine and run, where they are not what is compared."""
    if kind in OF_RUNS:
        return ()
    machine, run = frame.selection.machine, frame.selection.run
    found = [Side(kind="machine", value=machine, title=machine)] if machine else []
    return (*found, Side(kind="run", value=str(run), title=str(run))) if run else tuple(found)
