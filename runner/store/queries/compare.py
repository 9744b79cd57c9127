"""Loads the two sides of a comparison: the rows that count, the pairs of cells, and the verdict.

    found = load_comparison(path, ComparisonRequest(a=a, b=b))

Where one side measured a cell several times, the latest run counts, with its rounds pooled. Two cells are a pair when
they differ only in what is compared and were measured with the same effort (`analysis.compare.pairs`). Precisions,
backends and commits are compared within one machine, precisions and backends also within one version of torch; runs,
labels and machines across all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.analysis.compare.environments import Difference, find_differences, find_versions
from runner.analysis.compare.pairs import LeftOut, Pair, match_closest, rank_effort
from runner.analysis.compare.verdict import (
    Compared,
    ComparedPhase,
    Partners,
    Side,
    SideResult,
    Verdict,
    judge,
)
from runner.analysis.statistics import estimate
from runner.errors import UsageError
from runner.results import Estimate, Noise, RoundTime
from runner.results.times import find_bound, pool_bounds
from runner.schema import TABLES, AttentionCell, Bound, MemoryCell, Model, RunRow, StepCell
from runner.schema.axes import SHAPE
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.findings import load_faults
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import MACHINE, select_latest
from runner.store.queries.sides import OF_RUNS
from runner.store.queries.times import NoiseKind, load_noise

_CELLS: Mapping[Compared, type[StepCell | AttentionCell | MemoryCell]] = {
    "steps": StepCell,
    "attention": AttentionCell,
    "memory": MemoryCell,
}
_CONDITIONS: Mapping[str, str] = {
    "run": "s.run_id = ?",
    "label": "r.label = ?",
    "machine": f"{MACHINE} = ?",
    "commit": "r.git_commit = ?",
    "precision": "s.precision = ?",
    "backend": "s.backend = ?",
}


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """A comparison of A with B. `within` narrows both to a run, label, machine or commit."""

    a: Side
    b: Side
    within: tuple[Side, ...] = ()
    phase: ComparedPhase = "step"

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    @property
    def same(self) -> tuple[str, ...]:
        """The properties of the machine that the two cells of a pair share."""
        if {self.a.kind, self.b.kind} & {"run", "label", "machine"}:
            return ()
        return ("machine",) if self.a.kind == self.b.kind == "commit" else ("machine", "torch")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A verdict for each table of which A or B has rows, and the runs behind the two sides."""

    verdicts: tuple[Verdict, ...]
    a_runs: tuple[RunRow, ...]
    b_runs: tuple[RunRow, ...]

    @property
    def differences(self) -> list[Difference]:
        """The differences beside the compared setting: in the environments, and in the versions of own models."""
        pairs = [(pair.base.cell, pair.other.cell) for one in self.verdicts for pair in one.pairs]
        return [*find_versions(pairs), *find_differences(self.a_runs, self.b_runs)]


def load_comparison(path: Path, request: ComparisonRequest, a_path: Path | None = None) -> Comparison:
    """Returns the verdicts on all cells of both sides; those of A are in a file of their own, `a_path`, if it is given.
    Raises UsageError for sides that cannot be compared."""
    check(request)
    verdicts, paths = [], (a_path or path, path)
    for table in _CELLS:
        if all(side.kind in OF_RUNS or side.kind in TABLES[table].key for side in request.sides):
            a, b = _load_sides(paths, table, request)
            partners = [_choose_partners(a.get(key, []), b.get(key, [])) for key in dict.fromkeys([*a, *b])]
            if partners:
                verdicts.append(judge(table, partners, sides=request.sides, phase=request.phase))
    found = [pair for verdict in verdicts for pair in verdict.pairs]
    shown: Sequence[Pair[SideResult] | LeftOut[SideResult]] = found or [
        item for verdict in verdicts for item in verdict.left_out
    ]
    return Comparison(
        verdicts=tuple(verdicts),
        a_runs=_load_runs(paths[0], {item.base.run_id for item in shown if item.base}),
        b_runs=_load_runs(paths[1], {item.other.run_id for item in shown if item.other}),
    )


def _choose_partners(a: Sequence[SideResult], b: Sequence[SideResult]) -> Partners:
    """Returns the cells of both sides that are compared, None for a side that has none."""
    if a and b:
        return match_closest(a, b)
    return max(a, key=rank_effort, default=None), max(b, key=rank_effort, default=None)


def check(request: ComparisonRequest) -> None:
    """Raises UsageError where A and B cannot be compared."""
    a, b = request.sides
    if a == b:
        raise UsageError(f"A and B are both {a.spec}.", expected="two different things to compare")
    if a.kind != b.kind and not {a.kind, b.kind} <= set(OF_RUNS):
        raise UsageError(
            f"{a.spec} cannot be compared with {b.spec}.",
            expected="two precisions, two backends, or two of runs, labels, machines and commits",
        )


@dataclass(frozen=True, kw_only=True)
class _CountedRow:
    """One row that counts, with its time in the phase."""

    cell: StepCell | AttentionCell | MemoryCell
    run_id: UUID
    cell_id: UUID
    cell_key: str
    round: int
    machine: str
    torch: str | None
    status: str
    message: str | None
    round_time: RoundTime | None = None
    device_ms: float | None = None
    bound: Bound | None = None
    matmul_precision: str | None = None
    peak_allocated_bytes: int | None = None


def _load_sides(
    paths: Sequence[Path], table: Compared, request: ComparisonRequest
) -> list[dict[tuple[Any, ...], list[SideResult]]]:
    """Returns the cells of A and of B in one table by their shared key, one for each effort."""
    sides, noise = [], dict[NoiseKind, Noise]()
    for path, side in zip(paths, request.sides, strict=True):
        with open_reader(path) as reader:
            cells = _group_rounds(_load_rounds(reader, table, request, side), table, request, side)
            machines = {cell[0].machine for held in cells.values() for cell in held}
            noise |= load_noise(reader, table, machines) if TABLES[table].timed else {}
        sides.append(cells)
    # A fault changes nothing for a cell without a partner, and looking for faults takes longest.
    shared, measured = sides[0].keys() & sides[1].keys(), dict[Path, list[UUID]]()
    for path, cells in zip(paths, sides, strict=True):
        paired = (row for key in shared for cell in cells[key] for row in cell)
        measured.setdefault(path, []).extend(row.cell_id for row in paired if row.status == "ok")
    found = dict[UUID, tuple[str, ...]]()
    for path, ids in measured.items():
        found |= load_faults(path, tuple(ids), table) if ids else {}
    return [
        {
            key: [_pool_rounds(cell, found, _pool_times(cell, request, noise)) for cell in held]
            for key, held in cells.items()
        }
        for cells in sides
    ]


def _group_rounds(
    rows: Sequence[_CountedRow], table: Compared, request: ComparisonRequest, side: Side
) -> dict[tuple[Any, ...], list[list[_CountedRow]]]:
    """Returns the rounds of each cell of one side by the key that it shares with its partner."""
    cells: dict[tuple[Any, ...], list[_CountedRow]] = {}
    for row in rows:
        cells.setdefault((row.cell_key, *(getattr(row, name) for name in request.same)), []).append(row)
    held: dict[tuple[Any, ...], list[list[_CountedRow]]] = {}
    for cell in cells.values():
        held.setdefault(_partner_key(cell[0], table, request, side), []).append(cell)
    return held


def _partner_key(row: _CountedRow, table: Compared, request: ComparisonRequest, side: Side) -> tuple[Any, ...]:
    """Returns the settings and properties of the machine that a cell shares with its partner. An own model is known by
    its name, so that its version before a change is paired with the one after it."""
    own = isinstance(row.cell, Model) and row.cell.model_key is not None
    left_out = {side.kind, *((*SHAPE, "model_key") if own else ())}
    asked = (getattr(row.cell, name) for name in TABLES[table].question if name not in left_out)
    return (*(getattr(row, name) for name in request.same), *asked)


@dataclass(frozen=True, kw_only=True)
class _Times:
    """The bound of a cell, its time in the phase, and the device's time; None where they are not known."""

    bound: Bound | None
    step: Estimate | None
    device: Estimate | None


def _pool_times(rows: Sequence[_CountedRow], request: ComparisonRequest, noise: Mapping[NoiseKind, Noise]) -> _Times:
    """Returns the times of one cell over its rounds, None for a cell without the phase."""
    measured = [
        (row, replace(row.round_time, id=(row.run_id, row.round), device_ms=row.device_ms))
        for row in rows
        if row.status == "ok" and row.round_time
    ]
    bound = pool_bounds(row.bound for row in rows)
    waits = pool_bounds(find_bound(time.median_ms, row.device_ms) for row, time in measured)
    kind = NoiseKind(machine=rows[0].machine, bound=waits, phase=request.phase)
    rounds = [time for _, time in measured]
    devices = [RoundTime(median_ms=row.device_ms, n=time.n, id=time.id) for row, time in measured if row.device_ms]
    return _Times(
        bound=bound,
        step=estimate(rounds, noise.get(kind)) if rounds else None,
        device=estimate(devices, noise.get(replace(kind, bound="device", clock="device"))) if devices else None,
    )


def _pool_rounds(rows: Sequence[_CountedRow], found: Mapping[UUID, tuple[str, ...]], times: _Times) -> SideResult:
    """Returns the rounds of one cell as one result. It is ok when any round is; then only those rounds count."""
    counted = [row for row in rows if row.status == "ok"] or rows[-1:]
    peaks = [row.peak_allocated_bytes for row in counted if row.peak_allocated_bytes is not None]
    return SideResult(
        cell=counted[0].cell,
        run_id=counted[0].run_id,
        cell_id=counted[0].cell_id,
        status=counted[0].status,
        message=counted[0].message,
        time=times.step,
        device=times.device,
        bound=times.bound,
        samples=sum(row.round_time.n or 0 for row in counted if row.round_time),
        peak_bytes=max(peaks, default=None),
        matmul_precision=next((row.matmul_precision for row in counted if row.matmul_precision is not None), None),
        faults=tuple(dict.fromkeys(sentence for row in counted for sentence in found.get(row.cell_id, ()))),
    )


#: The columns of each table that a comparison needs beside key and ids.
_EXTRA_COLUMNS: Mapping[Compared, tuple[str, ...]] = {
    "steps": ("matmul_precision", "bound"),
    "attention": ("bound",),
    "memory": ("peak_allocated_bytes",),
}


def _load_rounds(
    reader: duckdb.DuckDBPyConnection, table: Compared, request: ComparisonRequest, side: Side
) -> list[_CountedRow]:
    """Returns the rows of one side that count, those of one cell together, rounds in order."""
    columns = (
        *TABLES[table].key,
        "run_id",
        "cell_id",
        "cell_key",
        "round",
        "status",
        "message",
        *_EXTRA_COLUMNS.get(table, ()),
    )
    asked = (side, *request.within)
    query = select_latest(
        table, columns, where=" AND ".join(_CONDITIONS[item.kind] for item in asked), same=request.same
    )
    reader.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {query} FROM latest", [item.value for item in asked])
    order = [*request.same, *(name for name in TABLES[table].question if name != side.kind)]
    names = ", ".join(f"c.{name}" for name in (*columns, "machine", "torch"))
    by = ", ".join(f"c.{name}" for name in (*order, *(column.name for column in TABLES[table].effort)))
    timed = TABLES[table].timed
    times = "t.median_ms, t.low_ms, t.high_ms, t.n, t.device_ms, t.undisturbed_ms" if timed else "NULL AS median_ms"
    joined = "LEFT JOIN timings t ON t.cell_id = c.cell_id AND t.phase = $phase AND t.median_ms > 0" if timed else ""
    query = f"SELECT {names}, {times} FROM chosen c {joined} ORDER BY {by}, c.round, c.cell_id"
    parameters = {"phase": request.phase} if timed else {}
    return fetch(reader, query, parameters, kind=_CountedRow, cell=_CELLS[table])


def _load_runs(path: Path, ids: set[UUID]) -> tuple[RunRow, ...]:
    with open_reader(path) as reader:
        return tuple(fetch_rows(reader, RunRow, "runs WHERE list_contains(?, run_id)", [list(ids)]))
