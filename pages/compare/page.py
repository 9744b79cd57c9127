"""Is B faster than A, and why? Two runs, labels, machines, commits, precisions or backends, over cells they share."""

import shlex

import streamlit as st

from pages.compare.cards import draw_movers, list_left_out
from pages.compare.choose import choose
from pages.compare.environment import draw_environment
from pages.compare.headline import TOPICS
from pages.compare.over_time import draw_over_time
from pages.compare.pinned import draw_pinned
from pages.ui.chosen import chosen
from pages.ui.evidence import of_sides, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import literal, restrict
from pages.ui.pairs import apply_filters, draw_pairs
from pages.ui.pin import pin
from runner.analysis.compare.verdict import Verdict
from runner.analysis.compare.verdict_text import NAMES, RULE, describe_verdict, with_basis
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.sides import choose_sides


def page(frame: Frame) -> None:
    draw_title(frame, "Compare: two runs, machines or settings", question="Is B faster than A, and why?")
    sides = frame.ask(choose_sides)
    if sides is None:
        _draw_empty()
        return
    request = choose(frame, sides)
    if request is None:
        return
    found = frame.ask(load_comparison, request)
    verdicts = [apply_filters(frame, verdict) for verdict in found.verdicts]
    verdicts = [verdict for verdict in verdicts if verdict.pairs or verdict.left_out]
    if not verdicts:
        nothing = frame.say("No cell of A or B passes the filters of the sidebar.")
        st.info(restrict(nothing), icon=":material/filter_alt_off:")
        return
    above = st.container()
    with st.container(key="verdicts"):
        for verdict in verdicts:
            name, rest = describe_verdict(verdict).split(": ", 1)
            say(frame, f"**{name}:** {literal(rest)}", of_sides(frame, verdict), key=verdict.table)
    with above:  # drawn above the answer, but part of the page's sentences after it
        draw_environment(frame, request, found, moved=any(set(verdict.outcomes) - {"same"} for verdict in verdicts))
    st.caption(restrict(with_basis(RULE, (pair for verdict in verdicts for pair in verdict.pairs))))
    shown = _choose_verdict(verdicts)
    if shown.pairs:
        b_against_a = f"{literal(shown.sides[1].title)} against {literal(shown.sides[0].title)}"
        on_click = pin if shown.table != "memory" else None
        draw_pairs(frame, shown, key="compare-pairs", title=b_against_a, on_click=on_click)
        draw_movers(frame, shown)
    list_left_out(shown)
    draw_over_time(frame)
    draw_pinned(frame, shown)
    _draw_command(request)


def _choose_verdict(verdicts: list[Verdict]) -> Verdict:
    """Returns the verdict whose cells are drawn, by default the first that has pairs."""
    by_name = {NAMES[verdict.table]: verdict for verdict in verdicts}
    if len(by_name) == 1:
        return verdicts[0]
    paired = next((name for name, verdict in by_name.items() if verdict.pairs), None)
    return by_name[chosen("compare-cells", "Cells of", list(by_name), default=paired)]


def _draw_command(request: ComparisonRequest) -> None:
    words = ["python", "-m", "runner", "compare", request.a.spec, request.b.spec]
    words += [word for side in request.within for word in ("--within", side.spec)]
    words += [] if request.phase == "step" else ["--phase", request.phase]
    st.caption("The same in a terminal; `--format markdown` for a pull request, `--fail-on-regression` for CI")
    st.code(shlex.join(words), language="bash", wrap_lines=True)
    st.caption("The sidebar's machine and run apply only where precisions or backends are compared.")


def _draw_empty() -> None:
    with st.container(border=True):
        st.markdown(
            "**There is nothing to compare yet: no two runs, precisions or backends share a measured cell.** "
            "Measure the same cells again, under another label:"
        )
        st.code("python -m runner sweep --fresh --label after", language="bash", wrap_lines=True)
        st.caption("Or merge the rows of another machine, or measure another precision: `--precisions fp32,bf16`.")


PAGE = Page(
    title="Compare",
    address="compare",
    icon=":material/balance:",
    draw=page,
    topics=TOPICS,
    filters=("machine", "run", "size", "context", "precision", "backend"),
)
