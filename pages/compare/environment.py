"""The two sides and the differences of their environments, with a warning where these can explain the result.

draw_environment(frame, request, found, moved=True)
"""

import streamlit as st

from pages.ui.evidence import of_environments, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.notes import draw_run_notes
from runner.analysis.compare.environments import (
    both_uncommitted,
    describe_differences,
    describe_environment,
)
from runner.store.queries.compare import Comparison, ComparisonRequest

#: The most differences in a sentence; more of them make a table.
MAX_SHOWN = 3


def draw_environment(frame: Frame, request: ComparisonRequest, found: Comparison, *, moved: bool) -> None:
    """Draws the environments of both sides, with evidence that opens to their runs. `moved` says that some cell is
    better or worse, which a difference of the environments may explain."""
    a, b = request.sides
    ran_on = [literal(describe_environment(runs)) for runs in (found.a_runs, found.b_runs)]
    sides = f"A and B: {ran_on[0]}" if ran_on[0] == ran_on[1] else f"A: {ran_on[0]}  \nB: {ran_on[1]}"
    differ = found.differences
    code = " Both checkouts had uncommitted changes: the same commit may be different code."
    dirty = code if both_uncommitted(found.a_runs, found.b_runs) else ""
    calm = not differ or not moved
    words = f"{sides}  \n{literal(describe_differences(differ))}{dirty}" if calm else sides
    say(frame, words, of_environments(frame, found.a_runs, found.b_runs), key="environment", drawn_by=st.caption)
    draw_run_notes(frame, list(dict.fromkeys(run.run_id for run in (*found.a_runs, *found.b_runs))))
    if calm:
        return
    short = len(differ) <= MAX_SHOWN
    words = literal(describe_differences(differ)) if short else f"The environments differ in {len(differ)} ways."
    st.warning(restrict(f"{words} This may explain what follows.{dirty}"), icon=":material/difference:")
    if not short:
        rows = [{"Of the environment": item.label, f"A: {a.title}": item.a, f"B: {b.title}": item.b} for item in differ]
        st.dataframe(rows, hide_index=True, key="_environment", alt=describe_differences(differ))
