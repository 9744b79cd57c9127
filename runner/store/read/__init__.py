"""The one way from a results file to the rows that answers are made of. Nothing else reads for answers.

    rows = read(path, Selection(mode="train"), needs=("every_step",))

DuckDB → `runner.store.read` → `runner.results.rows.Rows` → `runner.answers` → `runner.render`, `pages`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.results.cells import Kernel, KernelPart, KernelTrace, Peak, StepResult
from runner.results.rows import OF_CELL, ImportedTrace, Rows, RunSteps
from runner.schema import TABLES, CeilingRow, Cell
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.packing import find_reference
from runner.store.read.findings import load_audit
from runner.store.read.memory import load_accumulations, load_peaks, load_precise, load_recorded, load_saved
from runner.store.read.noise import load_machine_noise, load_repeated, load_spreads
from runner.store.read.published import load_published
from runner.store.read.runs import load_runs
from runner.store.read.selection import Selection, fetch, fetch_by, select, with_details
from runner.store.read.timed import (
    choose,
    find_latest,
    load_attention,
    load_early_steps,
    load_frontiers,
    load_history,
    load_steps,
)
from runner.store.sql import EVERY_CELL

#: The tables of what is compared, and how many cells of runs are read at once.
_COMPARED, _AT_ONCE = ("steps", "attention", "memory"), 5000
_VALUES = f"""
    SELECT run_id, {", ".join(f"list(DISTINCT {name} ORDER BY {name}) FILTER ({name} IS NOT NULL)" for name in OF_CELL)}
    FROM ({
    " UNION ALL BY NAME ".join(
        f"SELECT run_id, {', '.join(OF_CELL if table == 'steps' else ['NULL AS model'])} FROM {table}"
        f" WHERE {is_stated(TABLES[table])}"
        for table in _COMPARED
    )
})
    GROUP BY run_id"""
#: How many cells each two of the latest runs have in common.
_COMMON = f"""
    WITH cells AS ({" UNION ".join(f"SELECT run_id, cell_key FROM {table}" for table in _COMPARED)}),
    keys AS (FROM cells SEMI JOIN (SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 30) USING (run_id))
    SELECT a.run_id, b.run_id, count(*) FROM keys a JOIN keys b USING (cell_key) WHERE a.run_id > b.run_id
    GROUP BY ALL"""


def _load_by_run(path: Path, of: Selection) -> list[RunSteps]:
    with open_reader(path) as reader:
        values = {run: dict(zip(OF_CELL, lists, strict=True)) for run, *lists in reader.execute(_VALUES).fetchall()}
        common: dict[UUID, dict[UUID, int]] = {}
        for run, earlier, count in reader.execute(_COMMON).fetchall():
            common.setdefault(run, {})[earlier] = count
    runs = [
        run
        for run in load_runs(path)
        if run.run_id in values and run.run_id not in of.hidden and of.machine in (None, run.machine)
    ]
    found, pool = list[RunSteps](), cache(partial(_load_compared, path, of, is_pooled=True))
    totals = accumulate(run.cells for run in runs)
    for _, group in groupby(zip(totals, runs, strict=True), lambda counted: counted[0] // _AT_ONCE):
        together = [run for _, run in group]
        load = cache(partial(_load_runs, path, of, tuple(run.run_id for run in together)))
        for run in together:
            own = {name: names or () for name, names in values[run.run_id].items()}
            found.append(RunSteps(run=run, load=load, pool=pool, values=own, common=common.get(run.run_id, {})))
    return found


def _load_runs(path: Path, of: Selection, runs: tuple[UUID, ...]) -> Mapping[UUID, Mapping[str, Sequence[Any]]]:
    """Returns the cells of each of these runs, by kind."""
    with open_reader(path) as reader:
        rows = reader.execute(f"SELECT cell_id, run_id FROM ({EVERY_CELL}) WHERE list_contains(?, run_id)", [[*runs]])
        run_of = dict(rows.fetchall())
        kinds = _load_compared(path, of, runs)
    found: dict[UUID, dict[str, list[Any]]] = {}
    for kind, cells in kinds.items():
        for one in cells:
            found.setdefault(run_of[one.cell_id], {}).setdefault(kind, []).append(one)
    return found


def _load_compared(
    path: Path, of: Selection, runs: tuple[UUID, ...], *, is_pooled: bool = False
) -> Mapping[str, Sequence[Any]]:
    """Returns the cells of these runs by kind; pooled, each over its rounds in all of them."""
    of = replace(of, run=None, settled=False, runs=runs, is_pooled=is_pooled)
    with open_reader(path):  # one for all kinds
        return {"steps": load_steps(path, of), "attention": load_attention(path, of), "peaks": load_peaks(path, of)}


def _load_latest(path: Path, of: Selection) -> list[RunSteps]:
    runs = {run.run_id: run for run in load_runs(path)}
    latest = find_latest(path, of)
    load = cache(partial(_load_runs, path, of, tuple(latest)))
    return [RunSteps(run=runs[run], load=load) for run in latest]


def _load_every_step(path: Path, of: Selection) -> list[StepResult]:
    return load_steps(path, replace(of, settled=False))


def load_shipped(path: Path | None = None, of: Selection | None = None) -> list[StepResult | Peak]:
    """Returns the steps and peaks that come with Stepscope; none where the file is theirs."""
    shipped = find_reference()
    return [*load_steps(shipped, Selection()), *load_peaks(shipped, Selection())] if shipped not in (None, path) else []


_OWN = ("unprofiled_step_ms", "overhead_share", "busy_share", "host_bound_share", "attributed_share")
_TRACES = f"""
    SELECT cell_id, machine, device, status, failed_phase, message, {", ".join((*_OWN, *TABLES["profiles"].key))}
    FROM chosen LEFT JOIN (SELECT run_id, device FROM runs) USING (run_id)
    ORDER BY model_key IS NOT NULL, model, d_model * d_model * layers, d_model, layers, context, precision <> 'fp32',
        precision, backend <> 'eager', backend, attention <> 'naive', attention,
        list_position(['inference', 'forward', 'backward', 'train'], mode), cell_id"""
_PARTS = """
    SELECT cell_id, phase, {scope} AS scope, kernel_class, sum(calls) AS calls, sum(device_ms) AS device_ms,
        TRY_CAST(sum(flops) AS BIGINT) AS flops
    FROM kernels GROUP BY cell_id, phase, 3, kernel_class
    ORDER BY cell_id, phase, 3, sum(device_ms) DESC, kernel_class"""
_KERNELS = """
    SELECT cell_id, phase, kernel, any_value(kernel_class) AS kernel_class, sum(calls) AS calls,
        sum(device_ms) AS device_ms, TRY_CAST(sum(flops) AS BIGINT) AS flops,
        TRY_CAST(sum(moved_bytes) AS BIGINT) AS moved_bytes
    FROM kernels k GROUP BY cell_id, phase, kernel ORDER BY sum(k.device_ms) DESC, kernel, phase"""


def load_traced(path: Path, of: Selection) -> list[KernelTrace]:
    """Returns the profiled cells that count, also failed ones, smallest model first, with their kernels, per step. The
    first ok round of a cell counts, because a profile explains a time and does not measure one."""
    with open_reader(path) as reader:
        choose(reader, "profiles", of, ("failed_phase", "message", *_OWN))
        traces = fetch(reader, _TRACES, kind=KernelTrace)
        kernels = fetch_by(reader, _KERNELS, kind=Kernel, by=("cell_id",))
        parts, ranges = (
            fetch_by(reader, _PARTS.format(scope=scope), kind=KernelPart, by=("cell_id",)) for scope in ("''", "scope")
        )
    return with_details(traces, parts=parts, kernels=kernels, ranges=ranges)


_IMPORTED = """
    SELECT t.cell_id, t.title, coalesce(r.device_name, r.device, 'unknown device') AS machine, t.steps, t.step_ms,
        t.busy_ms
    FROM traces t JOIN runs r USING (run_id)
    WHERE r.source <> 'measured' AND NOT list_contains(?, t.run_id) ORDER BY t.run_id DESC, t.cell_id"""


def _load_imported(path: Path, of: Selection) -> list[ImportedTrace]:
    """Returns the imported traces of all machines, the last imported first."""
    with open_reader(path) as reader:
        traces = fetch(reader, _IMPORTED, [list(of.hidden)], kind=ImportedTrace)
        kernels = fetch_by(reader, _KERNELS, kind=Kernel, by=("cell_id",)) if traces else {}
    return with_details(traces, kernels=kernels)


def load_ceilings(path: Path, of: Selection) -> list[CeilingRow]:
    """Returns every ceiling of a machine or a run, the latest run first, and in a run those of its start first."""
    conditions, parameters = of.of_runs()
    query = f"""
        SELECT {select(CeilingRow, "s.")} FROM ceilings s LEFT JOIN runs r USING (run_id)
        WHERE {" AND ".join(conditions) or "true"}
        ORDER BY s.run_id DESC, s.moment DESC, s.ceiling DESC, s.name"""
    with open_reader(path) as reader:
        return fetch(reader, query, parameters, kind=CeilingRow)


#: What loads each kind of rows, by the name of its field in `Rows`. All have names of their own, by which a page
#: remembers what they return.
LOADERS: dict[str, Callable[[Path, Selection], Iterable[Any]]] = {
    "steps": load_steps,
    "every_step": _load_every_step,
    "attention": load_attention,
    "peaks": load_peaks,
    "shipped": load_shipped,
    "traced": load_traced,
    "runs": load_runs,
    "by_run": _load_by_run,
    "latest": _load_latest,
    "history": load_history,
    "saved": load_saved,
    "recorded": load_recorded,
    "imported": _load_imported,
    "frontiers": load_frontiers,
    "sums": load_accumulations,
    "precise": load_precise,
    "early": load_early_steps,
    "spreads": load_spreads,
    "noise": load_machine_noise,
    "repeated": load_repeated,
    "ceilings": load_ceilings,
    "audited": load_audit,
    "published": load_published,
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
    kinds: dict[str, tuple[Any, ...]] = {}
    for name in needs:
        loaded = load(LOADERS[name], path, broad)
        cells = ((one, one if isinstance(one, Cell) else getattr(one, "cell", None)) for one in loaded)
        kinds[name] = tuple(one for one, cell in cells if cell is None or of.holds(cell))
    return Rows(**kinds)
