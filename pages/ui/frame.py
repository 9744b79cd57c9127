"""What every page is given: the file, the state of its data, and what the reader has selected.

    cells = frame.ask(load_steps, frame.selection)

`ask` runs a query once for each state of the file. Readers who ask at the same moment share one run of it.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

import streamlit as st

from pages.figures.small import SmallBar
from runner.analysis.compare.pairs import describe_unusual_effort
from runner.analysis.costs.activations import Device
from runner.results import StepResult
from runner.schema import MemoryCell, StepCell, table_of
from runner.schema.own import is_unread
from runner.schema.sizes import name_models
from runner.store.fleet import list_files
from runner.store.queries import selection as queries
from runner.store.queries.overview import Contents
from runner.store.queries.selection import Model, Selection
from runner.store.queries.steps import load_steps
from runner.store.shared import read_sparingly

T = TypeVar("T")
#: The filters of the sidebar.
FILTERS: tuple[str, ...] = ("machine", "run", *queries.FILTERS)
_NAMED = {*Model.__dataclass_fields__, "context", "mode", "precision", "backend"}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """An answer in a sentence, and what loads the rows behind it (`pages.ui.evidence`). `bars` are its small picture,
    with a line at `mark`; `graded` are the rows of steps, attention or memory that it rests on; `doubt` says what else
    limits it. Where nothing was measured, `words` say so and `missing` is the experiment that would."""

    words: str
    evidence: Callable[[], Any] | None = None
    bars: Sequence[SmallBar] = ()
    mark: float | None = None
    graded: Sequence[Any] = ()
    doubt: str = ""
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """An answer that Overview asks a page for: its title there, the page's address, and what answers."""

    title: str
    address: str
    ask: Callable[["Frame"], Headline]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One reader's view of one state of one file. `pages` are all pages by address, for links to them; `topics` are the
    answers of all pages by name; `said` are the sentences that this page has written, `filters` those of the sidebar
    that it heeds, `headings` its sections by anchor, and `places` what is filled when the page has been drawn."""

    path: Path
    state: str
    contents: Contents
    selection: Selection
    pages: dict[str, Any] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    filters: Sequence[str] = FILTERS
    headings: list[tuple[str, str]] = field(default_factory=list)
    places: dict[str, Any] = field(default_factory=dict)

    def sweep(self, *words: str) -> str:
        """Returns the command that measures what is missing; for the own models of a file that has no others."""
        models = [word for spec in self.own_models for word in ("--model", spec)]
        return " ".join(["python -m runner sweep", *words, *map(shlex.quote, models)])

    @cached_property
    def own_models(self) -> Sequence[str]:
        """Where the own models come from in a file that knows no others, each once; else nothing."""
        models = self.contents.shapes
        return list(dict.fromkeys(model.model or "" for model in models)) if all(m.model_key for m in models) else []

    def say(self, answer: str) -> str:
        """Remembers a sentence of the page for links, and returns it."""
        self.said.append(answer)
        return answer

    def ask(self, query: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of a function of `runner.store.queries`, or of anything that takes a path first;
        cached."""
        return cached(self.path, self.state, query, *arguments)

    def measured(self) -> list[StepResult]:
        """Returns the selected cells. The file is read once for all filters, so that changing one costs no query."""
        return [row for row in self.ask(load_steps, self.selection.broad()) if self.selection.holds(row.cell)]

    @property
    def file(self) -> str:
        """The name of the file, or how many there are."""
        files = list_files(self.path)
        return f"{len(files)} files" if len(files) > 1 else files[0].name if files else self.path.name

    @property
    def where(self) -> str:
        """Says which rows the machine and the run of the sidebar leave: `in this run`."""
        if self.selection.run is not None:
            return "in this run"
        return "on this machine" if len(self.contents.machines) > 1 else "in this file"

    @property
    def among(self) -> str:
        """Says the same of steps, which the other filters narrow, too: `in mode train with these filters`."""
        wanted = self.selection
        elsewhere = [f"in mode {wanted.mode}"] if wanted.mode and len(self.contents.choices["mode"]) > 1 else []
        if wanted.run or wanted != wanted.broad():
            return " ".join([*elsewhere, "with these filters"])
        return " ".join([*elsewhere, self.where])

    @cached_property
    def sizes(self) -> Mapping[Model, str]:
        return name_models(self.contents.shapes)

    def size_of(self, cell: StepCell) -> str:
        """Returns the name of the cell's size, see `label_size`."""
        return label_size(self.sizes, cell)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of the navigation: what draws it, by name what Overview asks it, and which filters of the sidebar change
    anything on it."""

    title: str
    address: str
    icon: str
    draw: Callable[[Frame], None]
    topics: Mapping[str, Topic] = field(default_factory=dict)
    filters: Sequence[str] = FILTERS


def cached(path: Path, state: str, query: Callable[..., T], *arguments: Any) -> T:
    """Returns `query(path, *arguments)`, remembered for this `state` of the file."""
    answer: T = _run_query(f"{query.__module__}.{query.__qualname__}", str(path), state, arguments, _query=query)
    return answer


# Shared, not copied: rows are frozen, and copying a few thousand of them takes longer than drawing them. Two pages read
# at once, each up to its limit of memory: with ten sessions over a million cells the server took at most 619 MiB, and
# 838 where they did not read sparingly (`python -m tests.bench.readers FILE`).
@st.cache_resource(max_entries=128, show_spinner=False)
def _run_query(name: str, path: str, state: str, arguments: tuple[Any, ...], *, _query: Callable[..., Any]) -> Any:
    return read_sparingly(Path(path), lambda: _query(Path(path), *arguments))


def label_size(names: Mapping[Model, str], cell: StepCell | MemoryCell) -> str:
    """Returns the name of the cell's size with every setting that is not the default, also those of its measurement:
    `small · attention sdpa`, `small · warm-up 0 steps`."""
    table = table_of(cell)
    columns = [table.column(name) for name in table.question if name not in _NAMED]
    rest = [
        f"{column.label.lower()} {value}"
        for column in columns
        if (value := getattr(cell, column.name)) != type(cell).__dataclass_fields__[column.name].default
        and not is_unread(column.name, value)
    ]
    return " · ".join(part for part in (names[Model.of(cell)], *rest, describe_unusual_effort(cell)) if part)


def device_of(kind: str | None) -> Device:
    """Returns the device by its kind; cuda where it is not known."""
    return next((device for device in get_args(Device) if device == kind), "cuda")
