"""The one way from a results file to the rows that answers are made of. Nothing else reads for answers.

    rows = read(path, Selection(mode="train"), needs=("every_step",))

DuckDB → `runner.store.read` → `runner.results.Rows` → `runner.answers` → `runner.render`, `pages`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from runner.results import RunSummary, StepResult
from runner.results.findings import AuditedRow
from runner.results.published import PublishedTable
from runner.results.rows import Rows, RunSteps, Traced
from runner.store.read.findings import load_audit
from runner.store.read.kernels import load_ceilings, load_traced
from runner.store.read.memory import load_accumulations, load_peaks, load_precise, load_recorded, load_saved
from runner.store.read.noise import load_machine_noise, load_repeated, load_spreads
from runner.store.read.published import load_published
from runner.store.read.runs import load_runs
from runner.store.read.selection import Selection
from runner.store.read.timed import (
    find_latest,
    load_attention,
    load_early_steps,
    load_frontiers,
    load_history,
    load_steps,
)


def _load_by_run(path: Path, of: Selection) -> list[RunSteps]:
    found = []
    for run in load_runs(path):
        if run.run_id not in of.hidden and run.cells:
            mine = replace(of, run=run.run_id, settled=False)
            steps, attention = load_steps(path, mine), load_attention(path, mine)
            peaks = load_peaks(path, mine)
            found.append(RunSteps(run=run, steps=tuple(steps), attention=tuple(attention), peaks=tuple(peaks)))
    return [one for one in found if one.steps or one.attention or one.peaks]


def _load_latest(path: Path, of: Selection) -> list[RunSteps]:
    runs = {run.run_id: run for run in load_runs(path)}
    return [
        RunSteps(run=runs[run], steps=tuple(load_steps(path, replace(of, run=run, settled=False))))
        for run in find_latest(path, of)
    ]


def _load_every_step(path: Path, of: Selection) -> list[StepResult]:
    return load_steps(path, replace(of, settled=False))


def _load_every_run(path: Path, of: Selection) -> list[RunSummary]:
    return load_runs(path)


def _load_published(path: Path, of: Selection) -> Sequence[PublishedTable]:
    """Returns every table of the file. No filter applies to what others published."""
    return load_published(path)


def _load_audited(path: Path, of: Selection) -> Sequence[AuditedRow]:
    return load_audit(path, of).rows


#: What loads each kind of rows, by the name of its field in `Rows`. All have names of their own, by which a page
#: remembers what they return.
LOADERS: dict[str, Callable[[Path, Selection], Iterable[Any]]] = {
    "steps": load_steps,
    "every_step": _load_every_step,
    "attention": load_attention,
    "peaks": load_peaks,
    "traced": load_traced,
    "runs": _load_every_run,
    "by_run": _load_by_run,
    "latest": _load_latest,
    "history": load_history,
    "saved": load_saved,
    "recorded": load_recorded,
    "frontiers": load_frontiers,
    "sums": load_accumulations,
    "precise": load_precise,
    "early": load_early_steps,
    "spreads": load_spreads,
    "noise": load_machine_noise,
    "repeated": load_repeated,
    "ceilings": load_ceilings,
    "audited": _load_audited,
    "published": _load_published,
}


#: Calls a loader with a path and a selection, or returns what it returned before.
Load = Callable[[Callable[[Path, Selection], Iterable[Any]], Path, Selection], Iterable[Any]]


def load_once() -> Load:
    """Returns what reads each kind of rows once, for the answers of one document, while the file stays as it is."""
    return cache(lambda loader, path, of: tuple(loader(path, of)))


def read(path: Path, of: Selection, needs: Iterable[str], *, load: Load | None = None) -> Rows:
    """Returns the rows of these kinds. The file is read for the broad selection, which `load` may remember, and
    narrowed here, so that changing a filter costs no query. Raises StoreError."""
    load, broad = load or load_once(), of.broad()
    kinds = {name: tuple(one for one in load(LOADERS[name], path, broad) if _passes(of, one)) for name in needs}
    return Rows(**kinds)


def _passes(of: Selection, one: Any) -> bool:
    cell = one.trace.cell if isinstance(one, Traced) else getattr(one, "cell", None)
    return cell is None or of.holds(cell)
