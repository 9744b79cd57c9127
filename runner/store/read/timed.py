"""The chosen timed cells, steps and attention, with their times over their rounds; and the noise that those rest on.

    for cell in load_steps(path, Selection(mode="train")):
        print(cell.cell.context, cell.status, cell.times["step"].step.ms)

Of cells that differ only in effort, the preferred one counts, unless the selection is not settled. The rounds of a cell
are those of one run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args
from uuid import UUID

import duckdb

from runner.analysis.noise import MIN_VARIANCE, Repeats, pool_changes, pool_noise
from runner.analysis.statistics import estimate
from runner.errors import UsageError
from runner.results.cells import AttentionResult, EarlyStep, StepResult, TimedResult
from runner.results.rows import CellHistory, FrontierResult
from runner.results.times import (
    COLUMNS,
    DEVICE_BOUND,
    Clock,
    Estimate,
    Noise,
    PhaseTime,
    RoundTime,
    TimesByPhase,
    find_bound,
    pool_bounds,
)
from runner.schema import TABLES, AttentionRow, Bound, Phase, StepCell, StepRow
from runner.store.database import open_reader
from runner.store.read.runs import find_subject, load_notes
from runner.store.read.selection import DEVICE, MACHINE, Selection, fetch, fetch_by, fetch_rows, select_chosen
from runner.store.shared import remember, remember_runs
from runner.store.sql import quote

KEY = TABLES["steps"].key
_MEDIANS = ("tokens_per_s", "mfu", "step_joules")
_GREATEST = ("parameters", "peak_allocated_bytes", "peak_reserved_bytes")
_OWN = ("failed_phase", "message", "compile_seconds", "compile_threads", *_MEDIANS, *_GREATEST)
#: The id and the status of a cell, over its rounds.
POOLED = """coalesce(min(cell_id) FILTER (status = 'ok'), min(cell_id)) AS cell_id,
        CASE WHEN bool_or(status = 'ok') THEN 'ok' ELSE arg_max(status, cell_id) END AS status,
        arg_max(failed_phase, cell_id) AS failed_phase, arg_max(message, cell_id) AS message"""

_CELLS = f"""
    SELECT machine, cell_key, {", ".join(KEY)}, last_run AS run_id, any_value(torch) AS torch,
        count(*) AS rounds, {POOLED}, {", ".join(f"median({name}) AS {name}" for name in _MEDIANS)},
        {", ".join(f"max({name}) AS {name}" for name in _GREATEST)},
        arg_min(compile_threads, round) AS compile_threads,
        arg_min(compile_seconds, round) AS compile_seconds -- later rounds find the first one's cache
    FROM chosen GROUP BY last_run, machine, cell_key, {", ".join(KEY)} ORDER BY min(chosen.cell_id)"""


def load_steps(path: Path, selection: Selection) -> list[StepResult]:
    """Returns every chosen cell with its times, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "steps", selection, _OWN)
        cells = with_times(reader, "steps", fetch(reader, _CELLS, kind=StepResult))
    return sorted(cells, key=lambda row: _order(row.cell))


#: The latest run with steps, and of those that measured one of its cells, and that it does not go on with, the baseline
#: or else the latest.
_LATEST = f"""
    WITH measured AS (
        SELECT run_id, {MACHINE} AS machine, cell_key, (torch, git_commit) AS code, min(round) AS first,
            max(round) AS last
        FROM steps s JOIN runs r USING (run_id)
        WHERE status = 'ok' AND coalesce({MACHINE} = $machine, true) AND NOT list_contains($hidden, run_id)
        GROUP BY ALL),
    newest AS (FROM measured WHERE run_id = (SELECT max(run_id) FROM measured))
    (SELECT run_id FROM newest LIMIT 1) UNION ALL
    (SELECT coalesce(max(m.run_id) FILTER (m.run_id = $baseline), max(m.run_id))
        FROM measured m JOIN newest n USING (machine, cell_key)
        WHERE m.run_id <> n.run_id AND (m.code IS DISTINCT FROM n.code OR m.last >= n.first))"""


def find_latest(path: Path, of: Selection) -> list[UUID]:
    """Returns the latest run with steps of a machine or of all, then the one to compare it with, where there is one:
    the baseline that was noted, or the latest before it that measured one of the same cells."""
    known = {"machine": of.machine, "hidden": list(of.hidden), "baseline": load_notes(path).baseline}
    with open_reader(path) as reader:
        return [run for (run,) in reader.execute(_LATEST, known).fetchall() if run is not None]


#: A run that goes on with the rounds of an earlier one, at its commit, is one with it.
_HISTORY = f"""
    WITH rounds AS (
        SELECT {MACHINE} AS machine, cell_key, run_id, (torch, git_commit) AS code, round,
            {", ".join(f"t.{name}" for name in COLUMNS.values())}
        FROM steps s JOIN runs r USING (run_id) JOIN timings t USING (cell_id)
        WHERE s.status = 'ok' AND t.phase = 'step' AND coalesce({MACHINE} = $machine, true)
            AND NOT list_contains($hidden, run_id)),
    sweeps AS (
        SELECT machine, cell_key, code, run_id,
            sum(if(min(round) = 0, 1, 0)) OVER (PARTITION BY machine, cell_key, code ORDER BY run_id) AS sweep
        FROM rounds GROUP BY machine, cell_key, code, run_id),
    timed AS (
        SELECT machine, cell_key, max(run_id) AS run_id,
            {", ".join(f"median({name}) AS {name}" for name in COLUMNS.values())}
        FROM rounds JOIN sweeps USING (machine, cell_key, code, run_id) GROUP BY machine, cell_key, code, sweep)
    SELECT machine, cell_key, {", ".join(f"list({name} ORDER BY run_id)" for name in COLUMNS.values())}
    FROM timed GROUP BY ALL
    HAVING count(*) > 1 AND max(run_id) = (SELECT max(run_id) FROM timed) ORDER BY ALL"""


def load_history(path: Path, of: Selection) -> list[CellHistory]:
    """Returns the times of every cell of the latest run that an earlier sweep measured too, over all of its sweeps."""
    with open_reader(path) as reader:
        rows = reader.execute(_HISTORY, {"machine": of.machine, "hidden": list(of.hidden)}).fetchall()
    return [
        CellHistory(
            machine=machine,
            cell_key=key,
            times={clock: tuple(ms for ms in times if ms) for clock, times in zip(COLUMNS, lists, strict=True)},
        )
        for machine, key, *lists in rows
    ]


def choose(reader: duckdb.DuckDBPyConnection, table: str, of: Selection, names: tuple[str, ...] = ()) -> None:
    """Makes the temporary table `chosen` of the rows that count."""
    query, parameters = select_chosen(table, of, names)
    reader.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {query}", parameters)


def _order(cell: StepCell) -> tuple[Any, ...]:
    plain = (cell.precision != "fp32", cell.precision, cell.backend != "eager", cell.backend)
    return (cell.order, cell.context, cell.batch, *plain, cell.attention, cell.warmup_steps)


#: The time of one whole step, for samples grouped by cell and step: as recorded, or else the sum of its phases.
STEP_MS = """coalesce(max(duration_ms) FILTER (phase = 'step'),
    sum(duration_ms) FILTER (phase IN ('forward', 'loss', 'backward', 'optimizer')))"""


def find_timed(path: Path, words: str) -> tuple[StepRow | AttentionRow, Mapping[Phase, PhaseTime]]:
    """Returns the row of steps or attention with this id, or its beginning, and its times over the rounds of its run
    that ended ok. Raises UsageError for no such row and for several."""
    subject = find_subject(path, words)
    tables: dict[str, type[StepRow | AttentionRow]] = {"steps": StepRow, "attention": AttentionRow}
    with open_reader(path) as reader:
        for table, kind in tables.items():
            for row in fetch_rows(reader, kind, f"{table} WHERE cell_id = ?", [subject.cell_id]):
                choose(reader, table, Selection(run=row.run_id, settled=False, cell_key=row.cell_key))
                times = load_times(reader, table)
                return row, next((by_phase for _, by_phase in times.values()), {})
    raise UsageError(
        f"{words} is no row of steps or attention.",
        expected="one of these tables, whose times can be compared",
        do="`python -m runner sweep --fresh` measures any cell again.",
    )


_ABLATION = f"""
    WITH ablation AS (
        SELECT * FROM chosen WHERE status = 'ok' AND min_steps = max_steps AND list_contains([0, 1, 2, 5], warmup_steps)
        WINDOW family AS (PARTITION BY machine, {", ".join(name for name in KEY if name != "warmup_steps")})
        QUALIFY min(warmup_steps) OVER family < max(warmup_steps) OVER family)
    SELECT {", ".join(KEY)}, machine, cell_id, m.step, bool_or(m.is_warmup) AS is_warmup, {STEP_MS} AS step_ms
    FROM ablation a JOIN samples m USING (cell_id) GROUP BY ALL ORDER BY {", ".join(KEY)}, m.step"""


def load_early_steps(path: Path, selection: Selection) -> list[EarlyStep]:
    """Returns every step of the cells measured after several of 0, 1, 2 and 5 warm-up steps."""
    with open_reader(path) as reader:
        choose(reader, "steps", replace(selection, settled=False))
        return fetch(reader, _ABLATION, kind=EarlyStep)


@dataclass(frozen=True, kw_only=True)
class NoiseKind:
    """The times that are taken to be equally noisy: those of one device, with one bound, in one phase, by one clock."""

    device: str
    bound: Bound | None
    phase: Phase
    clock: Clock = "step"


@dataclass(frozen=True, kw_only=True)
class _Repeated:
    """The repeated cells of one run and kind with the same number of rounds; and, of all of the run and kind, sums over
    pairs of successive rounds: of cells - 1, and of that times the variance of the cells' changes."""

    run_id: UUID
    kind: NoiseKind
    repeats: Repeats
    change_squares: float
    change_dof: int


_PHASES, _CLOCKS = (", ".join(map(quote, names)) for names in (get_args(Phase), COLUMNS))
#: Cells have a number, phases and clocks are enums, because ids, keys and names of a million times took 430 MB.
_REPEATED = f"""
    WITH repeated AS (
        SELECT row_number() OVER () AS cell, run_id, cell_key FROM (
            SELECT run_id, cell_key FROM {{table}} SEMI JOIN (SELECT unnest($runs) AS run_id) USING (run_id)
            WHERE status = 'ok' GROUP BY run_id, cell_key HAVING count(*) > 1)),
    measured AS (
        SELECT cell, cell_id, round FROM {{table}} JOIN repeated USING (run_id, cell_key) WHERE status = 'ok'),
    by_clock AS NOT MATERIALIZED (
        SELECT m.cell, m.cell_id, m.round, CAST(t.phase AS ENUM ({_PHASES})) AS phase, t.device_ms,
            unnest(CAST([{_CLOCKS}] AS ENUM ({_CLOCKS})[])) AS clock,
            unnest([{", ".join(f"t.{column}" for column in COLUMNS.values())}]) AS ms
        FROM measured m JOIN timings t USING (cell_id)),
    cells AS (
        SELECT phase, clock, cell, count(*) AS rounds, greatest(var_samp(ln(ms)), $least) AS variance,
            max(if(device_ms < $bound * ms, 'host', 'device')) FILTER (device_ms IS NOT NULL) AS bound
        FROM by_clock WHERE ms > 0 GROUP BY phase, clock, cell HAVING count(*) > 1),
    repeats AS (
        SELECT run_id, phase, clock, bound, rounds, count(*) AS cells, sum(variance) AS variances,
            sum(ln(variance)) AS logs, sum(ln(variance) * ln(variance)) AS log_squares
        FROM cells JOIN repeated USING (cell) GROUP BY ALL),
    changes AS (
        SELECT cell, phase, clock, lag(round) OVER rounds AS before, round AS after,
            ln(ms) - lag(ln(ms)) OVER rounds AS change
        FROM by_clock WHERE ms > 0 WINDOW rounds AS (PARTITION BY phase, clock, cell ORDER BY round, cell_id)),
    shared AS (
        SELECT run_id, phase, clock, bound, count(*) - 1 AS dof, var_samp(change) AS variance
        FROM changes JOIN cells USING (phase, clock, cell) JOIN repeated USING (cell)
        WHERE change IS NOT NULL GROUP BY phase, clock, bound, run_id, before, after HAVING count(*) > 1),
    left_over AS (
        SELECT run_id, phase, clock, bound, sum(dof * variance) AS change_squares,
            CAST(sum(dof) AS BIGINT) AS change_dof
        FROM shared GROUP BY ALL)
    SELECT $device AS device, t.*, coalesce(l.change_squares, 0) AS change_squares,
        coalesce(l.change_dof, 0) AS change_dof
    FROM repeats t LEFT JOIN left_over l
        ON (t.run_id, t.phase, t.clock) = (l.run_id, l.phase, l.clock) AND t.bound IS NOT DISTINCT FROM l.bound
    ORDER BY t.run_id, t.phase, t.clock, t.bound, t.rounds"""
#: How many rows a run has, and which cells.
_STATES = f"""
    SELECT run_id, cells, ids, times
    FROM (SELECT run_id, count(*) AS cells, bit_xor(hash(cell_id)) AS ids FROM {{table}} GROUP BY run_id)
    LEFT JOIN (SELECT run_id, count(*) AS times FROM timings GROUP BY run_id) USING (run_id)
    SEMI JOIN (FROM runs r WHERE {DEVICE} = $device) USING (run_id) ORDER BY run_id"""


def load_noise(reader: duckdb.DuckDBPyConnection, table: str, devices: Iterable[str]) -> Mapping[NoiseKind, Noise]:
    """Returns the noise of each kind that the repeated cells of a table show on these devices, in all their runs."""
    found: dict[NoiseKind, Noise] = {}
    for device in sorted(devices):
        found |= remember(reader, f"noise of {table} on {device}", partial(_compute_noise, reader, table, device))
    return found


def _compute_noise(reader: duckdb.DuckDBPyConnection, table: str, device: str) -> Mapping[NoiseKind, Noise]:
    rows = reader.execute(_STATES.format(table=table), {"device": device}).fetchall()
    load = partial(_load_repeated, reader, table, device)
    by_run = remember_runs(reader, f"repeated {table} on {device}", {run: state for run, *state in rows}, load)
    by_kind: dict[NoiseKind, list[_Repeated]] = {}
    for one in chain.from_iterable(by_run.values()):
        by_kind.setdefault(one.kind, []).append(one)
    phases, clocks = get_args(Phase), get_args(Clock)
    order = sorted(by_kind, key=lambda k: (phases.index(k.phase), clocks.index(k.clock), k.bound or "not known"))
    noise = dict[NoiseKind, Noise]()
    for kind in order:
        changes = {one.run_id: (one.change_squares, one.change_dof) for one in by_kind[kind]}.values()
        within = pool_changes(sum(squares for squares, _ in changes), dof=sum(dof for _, dof in changes))
        if pooled := pool_noise([one.repeats for one in by_kind[kind]], within_rounds=within):
            noise[kind] = pooled
    return noise


def _load_repeated(
    reader: duckdb.DuckDBPyConnection, table: str, device: str, runs: list[UUID]
) -> Mapping[UUID, list[_Repeated]]:
    """Returns what the repeated cells of a table say, by run."""
    parameters = {"bound": DEVICE_BOUND, "device": device, "runs": runs, "least": MIN_VARIANCE}
    by_run = fetch_by(reader, _REPEATED.format(table=table), parameters, kind=_Repeated, by=("run_id",))
    return {run: by_run.get(run, []) for run in runs}


@dataclass(frozen=True, kw_only=True)
class _PhaseRounds:
    """The rounds of one phase of a cell: of each its run, its number and its times. Of the noise of their devices that
    from most cells counts."""

    devices: tuple[str, ...]
    bound: Bound | None
    phase: Phase
    rounds: tuple[dict[str, Any], ...]
    mean_ms: float | None
    std_ms: float | None
    n: int | None

    def time(self, noise: Mapping[NoiseKind, Noise]) -> PhaseTime:
        """Returns the time over the rounds."""
        found: dict[Clock, Estimate] = {}
        for clock, column in COLUMNS.items():
            names = _OF_STEP if clock == "step" else ("n", "device_ms", "device_uuid")
            times = [
                RoundTime(id=(one["run_id"], one["round"]), **{name: one[name] for name in names} | {"median_ms": ms})
                for one in self.rounds
                if (ms := one[column])
            ]
            bounds = (find_bound(one[column], one["device_ms"]) for one in self.rounds)
            kind = NoiseKind(device="", bound=pool_bounds(bounds), phase=self.phase, clock=clock)
            known = [one for device in self.devices if (one := noise.get(replace(kind, device=device)))]
            if times:
                found[clock] = estimate(times, max(known, key=lambda one: one.cells, default=None))
        return PhaseTime(step=found.pop("step"), mean_ms=self.mean_ms, std_ms=self.std_ms, n=self.n, others=found)


#: What belongs to the time of a step, and what is read of each round.
_OF_STEP = ("median_ms", "low_ms", "high_ms", "n", "device_ms", "device_uuid", "undisturbed_ms")
_OF_ROUND = ", ".join(f"{name} := {name}" for name in (*_OF_STEP, "loop_ms"))
_TIMES = f"""
    WITH rounds AS (
        SELECT min(cell_id) OVER (PARTITION BY c.last_run, c.machine, c.cell_key) AS first, c.run_id, c.round, cell_id,
            s.bound
        FROM chosen c JOIN {{table}} s USING (cell_id) WHERE c.status = 'ok')
    SELECT first, list(DISTINCT {DEVICE} ORDER BY {DEVICE}) AS devices, max(bound) AS bound, t.phase,
        list(struct_pack(run_id := c.run_id, round := c.round, {_OF_ROUND}) ORDER BY c.round, c.cell_id) AS rounds,
        avg(t.mean_ms) AS mean_ms, sqrt(avg(t.std_ms * t.std_ms)) AS std_ms, CAST(sum(t.n) AS BIGINT) AS n
    FROM rounds c JOIN timings t USING (cell_id) LEFT JOIN runs r ON r.run_id = c.run_id
    WHERE t.median_ms IS NOT NULL GROUP BY first, t.phase
    ORDER BY first, list_position(['forward', 'loss', 'backward', 'optimizer', 'forward_backward', 'step'], t.phase)"""

R = TypeVar("R", bound=TimedResult)


def load_times(reader: duckdb.DuckDBPyConnection, table: str) -> dict[UUID, tuple[Bound | None, TimesByPhase]]:
    """Returns the bounds and the times of the cells of the temporary table `chosen`, by the ids of first ok rows."""
    by_cell = fetch_by(reader, _TIMES.format(table=table), kind=_PhaseRounds, by=("first",))
    noise = load_noise(reader, table, {device for rows in by_cell.values() for device in rows[0].devices})
    return {
        cell: (rows[0].bound, TimesByPhase({one.phase: partial(one.time, noise) for one in rows}))
        for cell, rows in by_cell.items()
    }


def with_times(reader: duckdb.DuckDBPyConnection, table: str, cells: Sequence[R]) -> list[R]:
    """Returns the cells of the temporary table `chosen` with their times and bounds."""
    found, none = load_times(reader, table), (None, TimesByPhase({}))
    known = [(cell, *found.get(cell.cell_id, none)) for cell in cells]
    return [replace(cell, bound=bound, times=times) for cell, bound, times in known]


_ATTENTION_KEY = TABLES["attention"].key
#: The columns whose largest value over the rounds counts.
_LARGEST = (
    "saved_bytes", "before_backward_bytes", "peak_allocated_bytes", "predicted_peak_bytes", "asked_bytes",
    "in_use_bytes", "device_bytes", "output_error", "gradient_error",
)  # fmt: skip

_ATTENTION = f"""
    SELECT machine, cell_key, any_value(torch) AS torch, any_value(device_memory_bytes) AS machine_bytes,
        any_value(device) AS device, any_value(device_name) AS device_name, {POOLED},
        {", ".join(f"max({name}) AS {name}" for name in _LARGEST)}, {", ".join(_ATTENTION_KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name, device_memory_bytes FROM runs) USING (run_id)
    GROUP BY last_run, machine, cell_key, {", ".join(_ATTENTION_KEY)}
    ORDER BY implementation <> 'naive', implementation, backend DESC, d_head, seq_len, precision, causal,
        min(chosen.cell_id)"""


def load_attention(path: Path, of: Selection) -> list[AttentionResult]:
    """Returns every cell that counts: the naive implementation first, then by width and length."""
    with open_reader(path) as reader:
        choose(reader, "attention", of, ("failed_phase", "message", *_LARGEST))
        return with_times(reader, "attention", fetch(reader, _ATTENTION, kind=AttentionResult))


def load_frontiers(path: Path, of: Selection) -> list[FrontierResult]:
    """Returns the answer to every question of the frontier: the finest resolution, and of those the latest."""
    query, parameters = select_chosen("frontier", of, [column.name for column in TABLES["frontier"].columns])
    order = "limited, implementation <> 'naive', implementation, precision, d_head, d_model, layers, context, batch"
    with open_reader(path) as reader:
        return fetch_rows(reader, FrontierResult, f"({query}) ORDER BY {order}", parameters)
