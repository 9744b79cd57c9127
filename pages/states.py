"""What a page shows when there is nothing to draw: no file, a busy or foreign one, an empty one, no such rows."""

from pathlib import Path

import streamlit as st

from pages.markdown import literal, quoted, restrict
from runner.errors import DatabaseBusy, DatabaseDamaged, DatabaseForeign, DatabaseMissing, StoreError
from runner.store.contract import Survey
from runner.store.packing import find_stand_in

_TITLES: dict[type[StoreError], str] = {
    DatabaseMissing: "Nothing has been measured yet",
    DatabaseBusy: "The results file is busy",
    DatabaseForeign: "This is not a results file of Stepscope",
    DatabaseDamaged: "The results file is damaged",
}
_RESTART = "STEPSCOPE_DB=path/to/results.duckdb streamlit run app.py"
#: Written where a page ends because a table cannot be read.
NEEDS_MORE = "The rest of this page needs a table that cannot be read."


def explain(error: StoreError, path: Path) -> None:
    """Draws a whole page for a file that cannot be read."""
    st.title(restrict(_TITLES.get(type(error), "The results file cannot be read")), anchor=False)
    st.markdown(restrict(f"The dashboard reads {quoted(str(path))}. {literal(str(error))}"))
    if isinstance(error, DatabaseMissing):
        _suggest_measuring()
    elif isinstance(error, DatabaseBusy):
        st.markdown("This page tries again by itself every few seconds. Nothing is lost meanwhile.")
    else:
        words = "Nothing in the file was changed. To look at another file, name it and start the dashboard again:"
        suggest(words, _RESTART)


def report(found: Survey, path: Path) -> None:
    """Warns above a page of tables that cannot be read and of rows that are left out."""
    for name, reason in found.damaged.items():
        words = f"The table `{name}` of {quoted(path.name)} is damaged, and its rows are missing here: "
        words += f"{literal(reason)}. Take a copy of the file from a backup."
        st.warning(restrict(words), icon=":material/broken_image:")
    for name, reason in found.broken.items():
        words = f"{quoted(name)} is left out, because it cannot be read: {literal(reason)}"
        st.warning(restrict(words), icon=":material/broken_image:")
    if found.left_out:
        counts = ", ".join(f"{count:,} of `{name}`" for name, count in found.left_out.items())
        words = f"Rows of {quoted(path.name)} hold values that their columns cannot have, and are left out: {counts}."
        st.warning(restrict(words), icon=":material/rule:")


def empty() -> None:
    """Draws a whole page for a file without rows."""
    st.title("The results file is empty", anchor=False)
    st.markdown("It is a valid results file without a measured cell.")
    _suggest_measuring()


def _suggest_measuring() -> None:
    words = "Measure something, on this machine or on one with a GPU. On a CPU this takes a few minutes:"
    suggest(words, "python -m runner sweep")
    words = "This page fills by itself as soon as the first cell is there. If the file is somewhere else, name it:"
    suggest(words, _RESTART)
    try:
        find_stand_in()
    except StoreError as error:
        words = f"The reference rows that come with Stepscope cannot be opened: {literal(str(error))}"
        st.warning(restrict(words), icon=":material/broken_image:")


def suggest(words: str, command: str) -> None:
    st.markdown(restrict(words))
    st.code(command, language="bash", wrap_lines=True)
