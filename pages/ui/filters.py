"""The sidebar's filters. Each lives in the URL under its own name; a value that is not in the file is reported.

    selection = sidebar(contents)

Empty means "all". The names of the URL's parameters are those of `FILTERS`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages.ui.frame import FILTERS as FILTERS
from pages.ui.markdown import is_plain, literal, restrict
from runner.results import RunSummary
from runner.schema import TABLES
from runner.schema.own import is_unread
from runner.schema.sizes import name_models
from runner.store.queries import selection as queries
from runner.store.queries.overview import Contents
from runner.store.queries.selection import Model, Selection

ALL_RUNS = "All, latest first"
#: The context of models whose samples have no length.
NO_CONTEXT = "no length"
#: The key of the box around filters that do nothing on a page: `page.css` hides it, and an offline file leaves it out.
UNSEEN = "_unseen-filters"
_NOTES = "values that the link asked for"


def sidebar(contents: Contents, heeded: Sequence[str] = FILTERS) -> Selection:
    """Draws the filters and returns what those select that the page heeds. The others are not seen and leave nothing
    out, but keep their values for the next page; only the mode remains, because choosers of a page begin with it."""
    runs = {run_name(run): run for run in contents.runs}
    with st.sidebar:
        seen, unseen = st.container(), st.container(key=UNSEEN)

        def place(name: str) -> Any:
            return seen if name in heeded else unseen

        with place("machine"):
            machine = _draw_select("machine", "Machine", contents.machines)
        with place("run"):
            _follow_renamed(runs)
            names = (name for name, run in runs.items() if run.machine == machine)
            run = _draw_select("run", "Run", (ALL_RUNS, *names))
        chosen = {}
        for name in queries.FILTERS:
            with place(name):
                chosen[name] = _draw_filter(name, contents)
        if any(chosen[name] for name in queries.REPEATABLE if name in heeded):
            seen.button("Clear filters", on_click=clear, width="stretch", type="tertiary")
    hidden = tuple(sorted(contents.notes.hidden))
    selected = Selection(machine=machine, run=runs[run].run_id if run in runs else None, hidden=hidden, **chosen)
    return selected.without(*(name for name in queries.REPEATABLE if name not in heeded))


def _follow_renamed(runs: Mapping[str, RunSummary]) -> None:
    """Makes a link to a run still lead to it after the run was named: the end of a run's name never changes."""
    wanted = st.query_params.get("run", "")
    if wanted and wanted not in runs and "run" not in st.session_state:
        same = [name for name in runs if name.rsplit(" ", 1)[-1] == wanted.rsplit(" ", 1)[-1]]
        if len(same) == 1:
            st.query_params["run"] = same[0]


def _draw_filter(name: str, contents: Contents) -> Any:
    """Draws a filter and returns the values that it selects; of the mode, the only one."""
    values = name_values(name, contents)
    label = _label(name)
    if name not in queries.REPEATABLE:
        return _draw_select(name, label, tuple(reversed(values)))
    return tuple(value for text in _draw_pills(name, label, tuple(values)) for value in values[text])


def name_values(name: str, contents: Contents) -> dict[str, tuple[Any, ...]]:
    """Returns what a filter offers, in the schema's order, and the values that each name stands for."""
    if name == "size":
        shapes: dict[str, tuple[Model, ...]] = {}
        for shape, size in name_models(contents.shapes).items():
            shapes[size] = (*shapes.get(size, ()), shape)
        return shapes
    choices = TABLES["steps"].column(name).choices
    values = contents.choices[name]
    known = [value for value in choices if value in values]
    return {
        _name_value(name, value): (value,) for value in (*known, *(value for value in values if value not in known))
    }


def _name_value(name: str, value: Any) -> str:
    """Returns a value as the filter shows it: of models whose samples have no length, `no length`."""
    return NO_CONTEXT if is_unread(name, value) else str(value)


def clear() -> None:
    """Clears every filter but the machine and the mode."""
    for name, _, value in list_filters_in_force(FILTERS):
        remove_filter(name, value)


def list_filters_in_force(heeded: Sequence[str]) -> list[tuple[str, str, str]]:
    """Returns the name, the label and one value of each heeded filter that leaves something out."""
    found = []
    for name in heeded:
        value = st.session_state.get(name)
        if name == "run" and value not in (None, ALL_RUNS):
            found.append((name, "Run", str(value)))
        elif name in queries.REPEATABLE:
            found += [(name, _label(name), str(one)) for one in value or ()]
    return found


def remove_filter(name: str, value: str) -> None:
    """Takes one value off a filter. One that has no state any more would come back from the page's address."""
    if name == "run":
        st.session_state[name] = ALL_RUNS
    else:
        st.session_state[name] = [one for one in st.session_state.get(name) or () if one != value]


def _label(name: str) -> str:
    return "Size" if name == "size" else TABLES["steps"].column(name).label


def run_name(run: RunSummary) -> str:
    """Returns the name of a run in the filter and in the URL."""
    return run.name


def _draw_select(key: str, label: str, options: Sequence[str]) -> str | None:
    _remember_missing(key, label, options)
    if not options:
        return None
    return st.selectbox(label, options, key=key, bind="query-params", on_change=_forget_missing, args=(key,))


def _draw_pills(key: str, label: str, options: Sequence[str]) -> tuple[str, ...]:
    _remember_missing(key, label, options)
    if not options:
        return ()
    if all(map(is_plain, options)):
        chosen = st.pills(
            label, options, selection_mode="multi", key=key, bind="query-params", on_change=_forget_missing, args=(key,)
        )
    else:  # buttons show Markdown
        chosen = st.multiselect(label, options, key=key, bind="query-params", on_change=_forget_missing, args=(key,))
    return tuple(value for value in options if value in chosen)


# -------------------------------------------------------------------------------------- values that are not in the file


def _remember_missing(key: str, label: str, options: Sequence[str]) -> None:
    """Remembers the values of the URL or of earlier choices that this file does not have: Streamlit drops them."""
    before = st.session_state.get(key)
    chosen_before = [before] if isinstance(before, str) else list(before or ())
    wanted = [*st.query_params.get_all(key), *chosen_before]
    if missing := [value for value in dict.fromkeys(wanted) if value and value not in options]:
        _load_notes()[key] = f"{label.lower()} “{'”, “'.join(map(literal, missing))}”"


def _load_notes() -> dict[str, str]:
    notes: dict[str, str] = st.session_state.setdefault(_NOTES, {})
    return notes


def _forget_missing(key: str) -> None:
    _load_notes().pop(key, None)


def report_missing() -> None:
    """Reports which values of the link are not in this file, until the reader chooses others."""
    notes = _load_notes()
    if notes:
        words = (
            f"Not in this file: {'; '.join(notes.values())}. The link may come from another results file or an older "
            "state of this one; the filters show what is used instead."
        )
        st.warning(restrict(words), icon=":material/link_off:")
        st.button("Understood", on_click=notes.clear, type="tertiary")
