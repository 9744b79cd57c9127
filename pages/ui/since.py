"""What has changed since a link was made: missing values, new rows, and the page's answer then and now.

    notify = announce_changes(frame)   # before the page is drawn: keeps a place above it
    page(frame)
    notify()                           # after the page has written its answer

Nothing is written when nothing has changed. Answers are only compared while the reader sees what the link showed.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import streamlit as st

from pages.ui import permalink
from pages.ui.chosen import forget_missing, missing_choices
from pages.ui.filters import run_name
from pages.ui.frame import Frame
from pages.ui.markdown import literal, plain, restrict
from runner.formats import cut_text, format_count
from runner.store.queries.changes import load_counts, load_runs_since

_SHOWN = "_choices of the link"
_MAX_RUNS, _MAX_LETTERS = 3, 120


def announce_changes(frame: Frame) -> Callable[[], None]:
    """Keeps a place for the notice, and returns what fills it."""
    permalink.forget_other_pages()
    place = st.empty()

    def notify() -> None:
        missing = [_describe_missing(label, values) for label, values in missing_choices()]
        changed = _describe_changes(frame)
        if not missing and not changed:
            return
        with place.container(gap="xsmall"):
            if missing:
                st.warning(restrict("  \n".join(missing)), icon=":material/link_off:")
                st.button("Understood", on_click=forget_missing, key="_understood gone", type="tertiary")
            if changed:
                st.info(restrict("  \n".join(changed)), icon=":material/history:")
                st.button("Understood", on_click=_forget, key="_understood since", type="tertiary")

    return notify


def _describe_missing(label: str, values: Sequence[str]) -> str:
    wanted = "”, “".join(literal(cut_text(value, longest=_MAX_LETTERS)) for value in values)
    return f"{label}: the link asks for “{wanted}”, which is not here."


def _describe_changes(frame: Frame) -> list[str]:
    """Returns sentences about what the file has gained or lost since the link was made."""
    meant = st.query_params.get("data")
    if not meant:
        return []
    same_view = _shows_same_view(meant)
    if meant == frame.contents.edition:
        return []
    return [_describe_rows(frame), *(_describe_answers(frame) if same_view else ())]


def _shows_same_view(meant: str) -> bool:
    """Returns whether the reader still sees what the link showed at first."""
    link = (st.context.url, meant, st.query_params.get("said"))
    known = st.session_state.get(_SHOWN)
    if known is None or known[0] != link:
        known = st.session_state[_SHOWN] = (link, permalink.choices())
    return bool(known[1] == permalink.choices())


def _forget() -> None:
    for name in permalink.THEN:
        st.query_params.pop(name, None)


def _describe_rows(frame: Frame) -> str:
    """Says how many cells came or went, of which tables, in which runs."""
    then = permalink.unpack_counts(st.query_params.get("held", ""))
    if then is None:
        return "This link was made when the file held other rows; the numbers below may differ from those it meant."
    before, moment = then
    after = frame.ask(load_counts).cells
    more = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    gained = [f"{count:,} in {name}" for name, count in more.items() if count > 0]
    lost = [f"{-count:,} in {name}" for name, count in more.items() if count < 0]
    if lost:
        came = f", and has {', '.join(gained)} that it had not" if gained else ""
        return f"**Since this link was made** the file has lost cells, or is another one: {', '.join(lost)}{came}."
    if not gained:
        return "**Since this link was made** the rows of the file have changed, though the number of cells has not."
    total = format_count(sum(more.values()), "cell")
    return f"**Since this link was made, {total} came in:** {', '.join(gained)}{_describe_runs(frame, moment)}."


def _describe_runs(frame: Frame, moment_ms: int) -> str:
    # The link holds whole milliseconds: the moment's own rows must not count as later.
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment_ms + 1)
    names = {run.run_id: run_name(run) for run in frame.contents.runs}
    runs = [literal(names[run]) for run in frame.ask(load_runs_since, moment.replace(tzinfo=None)) if run in names]
    if not runs:
        return ""
    if len(runs) > _MAX_RUNS:
        return f", by {len(runs)} runs, the last of them {runs[-1]}"
    return f", by the run{'s' if len(runs) > 1 else ''} {', '.join(runs)}"


def _describe_answers(frame: Frame) -> list[str]:
    """Returns the answer then and now. A link's text is a stranger's: it is shown letter by letter."""
    then = permalink.unpack_sentence(st.query_params.get("said", ""))
    if then is None or not frame.said:
        return []
    now = " ".join(plain(" ".join(frame.said)).split())
    if now.startswith(then.removesuffix(permalink.CUT)):
        return ["The answer is the same."]
    return [f"The answer then: {literal(then)}", f"The answer now: {literal(permalink.cut(now, longest=len(then)))}"]
