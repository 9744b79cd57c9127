"""What a page's address says: every choice by its name, and the link that a reader copies.

    begin()              # the choices of the address become the session's
    draw_copy_link(edition, choices)

A link of an earlier version leads to the same thing: its filters have the names of today's choices, but for `RENAMED`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import streamlit as st

from pages.frame import ASKED
from pages.markdown import literal, restrict
from runner.answers.answer import Choice
from runner.schema import TABLES

#: Names of choices in links of before.
RENAMED: Mapping[str, str] = {
    "memory-mode": "mode",
    "memory-precision": "precision",
    "attention-precision": "precision",
    "attention-causal": "causal",
    "d-heads": "d-head",
    "numerics-model": "pass",
    "timeline": "recording",
}
#: Values of choices in links of before, by the name of today.
REWORDED: Mapping[tuple[str, str], str] = {
    ("clock", "waited for"): "latency",
    ("clock", "in a loop"): "throughput",
    ("clock", "device time"): "GPU time",
}
#: The axes of the earlier Explore and what they are called in the chart of a table: `steps-x=Context` is `x=context`.
AXES: Mapping[str, str] = {"x": "x", "y": "measure", "color": "color"}
#: The edition of the data that a link was made from.
DATA = "data"
_LINKED = "linked"


def begin() -> dict[str, str]:
    """Returns the session's choices. Those of the address count once, when the session begins."""
    if ASKED not in st.session_state:
        given = {name: [value for value in st.query_params.get_all(name) if value] for name in st.query_params}
        last = {RENAMED.get(name, name): values[-1] for name, values in given.items() if values}
        st.session_state[ASKED] = _translate_axes({name: REWORDED.get((name, last[name]), last[name]) for name in last})
        st.session_state[_LINKED] = dict(st.session_state[ASKED])
    asked: dict[str, str] = st.session_state[ASKED]
    if dict(st.query_params) != asked:
        st.query_params.from_dict(asked)
    return asked


def _translate_axes(given: dict[str, str]) -> dict[str, str]:
    """Returns the choices with the table and the columns of a link to the earlier Explore, which named the table by its
    words and columns by their labels, for each table apart."""
    words = given.get("of", TABLES["steps"].words)
    table = next((table for table in TABLES.values() if table.words and table.words == words), TABLES["steps"])
    axes = {now: given[old] for name, now in AXES.items() if (old := f"{table.name}-{name}") in given}
    columns = {label: column.name for column in table.columns for label in (column.label, column.title)}
    known = {name: columns[label] for name, label in axes.items() if label in columns}
    return {**given, "table": table.name, **known} if axes else given


def keep(name: str, value: str) -> None:
    """Keeps a choice, for every page and in the address; what another page does not have stays kept."""
    st.session_state[ASKED] |= {name: value}
    st.session_state.get(_LINKED, {}).pop(name, None)
    st.query_params.from_dict(st.session_state[ASKED])


def report_missing(choices: Sequence[Choice]) -> None:
    """Says which values of the link this page does not have, and what is shown instead."""
    linked: dict[str, str] = st.session_state.get(_LINKED, {})
    gone = [one for one in choices if one.name in linked and linked[one.name] not in one.options]
    if gone:
        words = ", ".join(f"{one.label.lower()} “{literal(linked[one.name])}”" for one in gone)
        shown = ", ".join(literal(one.prefix + one.chosen) for one in gone)
        st.warning(restrict(f"Not here: {words} of the link. Shown instead: {shown}."), icon=":material/link_off:")


def report_other_data(edition: str) -> None:
    """Says that the rows are not those of which the link was made."""
    made_of = st.session_state.get(_LINKED, {}).get(DATA)
    if made_of and made_of != edition:
        st.caption(":material/history: The file has other rows than when this link was made.")


def draw_copy_link(edition: str, choices: Sequence[Choice]) -> None:
    """Draws a button that opens to the link to this page, every choice written out, defaults included."""
    shown = st.popover("Copy link", icon=":material/link:", key="_page-link", on_change="rerun", width="stretch")
    if shown.open:
        with shown:
            asked = st.session_state.get(ASKED, {}) | {one.name: one.chosen for one in choices if one.chosen}
            parts = urlsplit(st.context.url or "")
            query = urlencode({name: asked[name] for name in sorted(asked)} | {DATA: edition}, safe=":,")
            whole = f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"
            script = Path(__file__).with_name("copy.js").read_text(encoding="utf-8")
            copy = st.components.v2.component("stepscope_copy", html='<div role="status"></div>', js=script)
            copy(key="_copy-link", data=whole, height="content")
            st.code(whole, language=None, wrap_lines=True)
