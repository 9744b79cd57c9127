"""The two sides of a comparison: which rows count, which cells are partners, and how they compare.

    found = compared(path, Question(a=a, b=b))             # two of `sides`
    for verdict in found.verdicts: print(sentence(verdict))

Of a cell that one side measured several times the latest run counts, its rounds pooled. Cells are partners when they
ask the same but for what is compared and were measured alike (`analysis.pairs`). Precisions, backends and commits are
compared within one machine, precisions and backends also within one version of torch; runs, labels and machines
wherever they ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.analysis.compare.pairs import closest, preference
from runner.analysis.compare.verdict import (
    Answered,
    Compared,
    ComparedPhase,
    LeftOut,
    Pair,
    Partners,
    Side,
    Verdict,
    judge,
)
from runner.errors import UsageError
from runner.schema import TABLES, AttentionCell, MemoryCell, RunRow, StepCell
from runner.store.database import open_reader
from runner.store.queries.selection import MACHINE
from runner.store.queries.sides import OF_RUNS
from runner.store.queries.steps import STEP_MS
from runner.store.queries.trust import faults

_CELLS: Mapping[Compared, type[StepCell | AttentionCell | MemoryCell]] = {
    "steps": StepCell,
    "attention": AttentionCell,
    "memory": MemoryCell,
}
_WHERE: Mapping[str, str] = {
    "run": "s.run_id = ?",
    "label": "r.label = ?",
    "machine": f"{MACHINE} = ?",
    "commit": "r.git_commit = ?",
    "precision": "s.precision = ?",
    "backend": "s.backend = ?",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A against B, and of both only what `within` says: a run, label, machine or commit."""

    a: Side
    b: Side
    within: tuple[Side, ...] = ()
    phase: ComparedPhase = "step"

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    @property
    def same(self) -> tuple[str, ...]:
        """What of the machine partners have to share."""
        if {self.a.kind, self.b.kind} & {"run", "label", "machine"}:
            return ()
        return ("machine",) if self.a.kind == self.b.kind == "commit" else ("machine", "torch")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A verdict for each table of which A or B has rows, and the runs behind the two sides."""

    verdicts: tuple[Verdict, ...]
    a_runs: tuple[RunRow, ...]
    b_runs: tuple[RunRow, ...]


def compared(path: Path, question: Question) -> Comparison:
    """Every cell of both sides, judged. Raises UsageError for sides that cannot stand against each other."""
    check(question)
    verdicts = []
    for table in _CELLS:
        if all(side.kind in OF_RUNS or side.kind in TABLES[table].key for side in question.sides):
            a, b = _answers(path, table, question)
            partners = [_partners(a.get(key, []), b.get(key, [])) for key in dict.fromkeys([*a, *b])]
            if partners:
                verdicts.append(judge(table, partners, sides=question.sides, phase=question.phase))
    found = [pair for verdict in verdicts for pair in verdict.pairs]
    shown: Sequence[Pair | LeftOut] = found or [item for verdict in verdicts for item in verdict.left_out]
    return Comparison(
        verdicts=tuple(verdicts),
        a_runs=_runs(path, {item.a.run_id for item in shown if item.a}),
        b_runs=_runs(path, {item.b.run_id for item in shown if item.b}),
    )


def _partners(a: Sequence[Answered], b: Sequence[Answered]) -> Partners:
    """The two of one question that are held against each other; one where the other side has none."""
    if a and b:
        return closest(a, b)
    return max(a, key=preference, default=None), max(b, key=preference, default=None)


def check(question: Question) -> None:
    """Raises UsageError where A and B cannot stand against each other."""
    a, b = question.sides
    if a == b:
        raise UsageError(f"A and B are both {a.spec}.", expected="two different things to compare")
    if a.kind != b.kind and not {a.kind, b.kind} <= set(OF_RUNS):
        raise UsageError(
            f"{a.spec} cannot be compared with {b.spec}.",
            expected="two precisions, two backends, or two of runs, labels, machines and commits",
        )


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row that counts: the key that was `asked` for, and what of its question the cell on the other side shares."""

    partner: tuple[Any, ...]
    asked: Mapping[str, Any]
    run_id: UUID
    cell_id: UUID
    status: str
    message: str | None
    measured: Any
    samples: tuple[float, ...]


def _answers(path: Path, table: Compared, question: Question) -> list[dict[tuple[Any, ...], list[Answered]]]:
    """The cells of A and of B in one table, by what partners share: one for each effort."""
    with open_reader(path) as reader:
        sides = [_rows(reader, table, question, side) for side in question.sides]
    measured = tuple(row.cell_id for rows in sides for row in rows if row.status == "ok")
    found = faults(path, measured, table) if measured else {}
    answers: list[dict[tuple[Any, ...], list[Answered]]] = [{}, {}]
    for side, held in zip(sides, answers, strict=True):
        for _, rows in groupby(side, key=lambda row: (row.partner, tuple(row.asked.values()))):
            cell = list(rows)
            held.setdefault(cell[0].partner, []).append(_answered(table, cell, found))
    return answers


def _answered(table: Compared, rows: Sequence[_Row], found: Mapping[UUID, tuple[str, ...]]) -> Answered:
    """The rounds of one cell as one: ok when any is, then only those that are count."""
    counted = [row for row in rows if row.status == "ok"] or rows[-1:]
    measured = [row.measured for row in counted if row.measured is not None]
    return Answered(
        cell=_CELLS[table](**counted[0].asked),
        run_id=counted[0].run_id,
        cell_id=counted[0].cell_id,
        status=counted[0].status,
        message=counted[0].message,
        rounds=tuple(row.samples for row in counted if row.samples) if table != "memory" else (),
        peak_bytes=max(measured, default=None) if table == "memory" else None,
        matmul_precision=next(iter(measured), None) if table == "steps" else None,
        faults=tuple(dict.fromkeys(sentence for row in counted for sentence in found.get(row.cell_id, ()))),
    )


_COUNTED = """
    CREATE OR REPLACE TEMP TABLE chosen AS
    WITH asked AS MATERIALIZED (
        SELECT {columns}, {machine} AS machine, r.torch AS torch
        FROM {table} s JOIN runs r USING (run_id) WHERE {where}),
    last_tries AS (SELECT max(cell_id) AS cell_id FROM asked GROUP BY run_id, cell_key, round)
    FROM (FROM asked SEMI JOIN last_tries USING (cell_id))
    QUALIFY dense_rank() OVER (PARTITION BY {alike} ORDER BY run_id DESC) = 1"""

_SAMPLED = """
    SELECT {names}, {measured}, list(ms ORDER BY m.step) FILTER (ms IS NOT NULL)
    FROM chosen c LEFT JOIN (
        SELECT cell_id, step, {ms} AS ms FROM samples SEMI JOIN chosen USING (cell_id)
        WHERE NOT is_warmup GROUP BY cell_id, step) m ON m.cell_id = c.cell_id AND c.status = 'ok'
    GROUP BY ALL ORDER BY {alike}, round, cell_id"""


def _rows(reader: duckdb.DuckDBPyConnection, table: Compared, question: Question, side: Side) -> list[_Row]:
    """The rows of one side that count, partners together, in the order of their keys, rounds in order."""
    key = TABLES[table].key
    axis = side.kind if side.kind not in OF_RUNS else None
    partners = [*question.same, *(name for name in TABLES[table].question if name != axis)]
    alike = ", ".join([*partners, *(column.name for column in TABLES[table].effort)])
    measured = {"steps": "matmul_precision", "memory": "peak_allocated_bytes"}.get(table, "NULL")
    extra = [] if measured == "NULL" else [measured]
    carried = ("run_id", "cell_id", "status", "message")
    asked = (side, *question.within)
    reader.execute(
        _COUNTED.format(
            columns=", ".join(f"s.{name}" for name in (*key, *carried, "cell_key", "round", *extra)),
            machine=MACHINE,
            table=table,
            where=" AND ".join(_WHERE[item.kind] for item in asked),
            alike=alike,
        ),
        [item.value for item in asked],
    )
    names = ", ".join(f"c.{name}" for name in (*key, *carried, *question.same))
    ms = STEP_MS if question.phase == "step" else f"max(duration_ms) FILTER (phase = '{question.phase}')"
    query = _SAMPLED.format(names=names + ", c.round", measured=measured, ms=ms, alike=alike)
    found = []
    for row in reader.execute(query).fetchall():
        values = dict(zip((*key, *carried, *question.same), row, strict=False))
        found.append(
            _Row(
                partner=tuple(values[name] for name in partners),
                asked={name: values[name] for name in key},
                measured=row[-2],
                samples=tuple(row[-1] or ()),
                **{name: values[name] for name in carried},
            )
        )
    return found


def _runs(path: Path, ids: set[UUID]) -> tuple[RunRow, ...]:
    names = [column.name for column in TABLES["runs"].columns]
    with open_reader(path) as reader:
        rows = reader.execute(f"SELECT {', '.join(names)} FROM runs WHERE list_contains(?, run_id)", [list(ids)])
        return tuple(RunRow(**dict(zip(names, row, strict=True))) for row in rows.fetchall())
