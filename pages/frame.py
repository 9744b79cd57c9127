"""What every page is given: the file, the state of its data, the machine and the run that the reader chose.

    answer = frame.ask("precision")

Rows are read once for each state of the file and kind, answers made once for each choice; all sessions share them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from runner.answers import QUESTIONS, find_doubts
from runner.answers import ask as ask_question
from runner.answers.answer import Answer
from runner.results.rows import Rows
from runner.store.read import read
from runner.store.read.runs import Contents
from runner.store.read.selection import Selection
from runner.store.shared import read_sparingly

T = TypeVar("T")
#: The choices of the frame itself, before those of a question.
MACHINE, RUN, ALL_RUNS = "machine", "run", "all runs"
#: The session's choices by name: those of the address when it began, then what the reader chose on any page.
ASKED = "asked"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One reader's view of one state of one file."""

    path: Path
    state: str
    contents: Contents
    selection: Selection

    def load(self, query: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of anything that takes a path first; cached. Raises StoreError."""
        return cached(self.path, self.state, query, *arguments)

    def ask(self, name: str, *, as_usual: bool = False) -> Answer:
        """Returns the answer to a question by what the reader chose, or by the usual choices."""
        chosen = {} if as_usual else st.session_state.get(ASKED, {})
        asked = tuple(sorted((name, str(value)) for name, value in chosen.items()))
        return _answer(name, str(self.path), self.state, self.selection, asked, _frame=self)

    def read(self, name: str, needs: Iterable[str]) -> Rows:
        """Returns the rows of a question: those of the selection, or of the whole file."""
        of = replace(self.selection, machine=None, run=None) if QUESTIONS[name].of_file else self.selection
        return read(self.path, of, needs, load=lambda loader, path, broad: self.load(loader, broad))

    def audit(self, answer: Answer) -> Answer:
        """Returns the answer with its doubts. The audit of a file takes a second, once a state of it."""
        return replace(answer, doubts=find_doubts(answer, self.read(answer.question, ("audited",)).audited))

    @property
    def device(self) -> str:
        """The device whose rows are shown: `H200`."""
        machine = self.selection.machine or next(iter(self.contents.machines), "")
        return machine.split(" · ")[0].removeprefix("NVIDIA ")


def cached(path: Path, state: str, query: Callable[..., T], *arguments: Any) -> T:
    """Returns `query(path, *arguments)`, remembered for this `state` of the file."""
    result: T = _run_query(f"{query.__module__}.{query.__qualname__}", str(path), state, arguments, _query=query)
    return result


# Shared, not copied: rows are frozen, and copying a few thousand of them takes longer than drawing them.
@st.cache_resource(max_entries=128, show_spinner=False)
def _run_query(name: str, path: str, state: str, arguments: tuple[Any, ...], *, _query: Callable[..., Any]) -> Any:
    return read_sparingly(Path(path), lambda: _query(Path(path), *arguments))


@st.cache_resource(max_entries=512, show_spinner=False)
def _answer(
    name: str, path: str, state: str, selection: Selection, asked: tuple[tuple[str, str], ...], *, _frame: Frame
) -> Answer:
    return ask_question(name, _frame.read(name, QUESTIONS[name].needs), dict(asked))
