"""What precision costs: sums with their way there, errors of a pass, dtypes, and statistics of normalization.

    for found in precisions(path, Rows()):
        print(found.cell.precision, found.row.gradient_error)

Numbers here do not vary from one measurement to the next as times do: of several rounds the first that worked counts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from runner.schema import TABLES, AccumulationRow, DtypeRow, FloatName, NormStatistic, NumericsRow
from runner.store.database import open_reader
from runner.store.queries.latest import Rows, latest

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Accumulated:
    """A sum; `on_the_way` are (addends so far, sum so far)."""

    row: AccumulationRow
    machine: str
    on_the_way: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Precise:
    """One precision of one model, on one machine."""

    row: NumericsRow
    machine: str


@dataclass(frozen=True, kw_only=True)
class Sensitive:
    """A statistic in one dtype at one scale, over all blocks: the worst error and the mean shares."""

    statistic: NormStatistic
    computed_in: FloatName
    scale: float
    error: float | None
    overflowed_share: float
    underflowed_share: float


def accumulations(path: Path, of: Rows) -> list[Accumulated]:
    """The latest answer to each sum, narrow accumulators last."""
    found = _cells(path, of, table="accumulation", row=AccumulationRow)
    with open_reader(path) as reader:
        points: dict[UUID, tuple[tuple[int, float], ...]] = {
            cell_id: tuple((point["addend"], point["total"]) for point in listed)
            for cell_id, listed in reader.execute(
                """SELECT cell_id, list({'addend': addend, 'total': total} ORDER BY addend)
                FROM partial_sums WHERE list_contains(?, cell_id) GROUP BY cell_id""",
                [[row.cell_id for row, _ in found]],
            ).fetchall()
        }
    order = {"fp64": 0, "fp32": 1, "bf16": 2, "fp16": 3}
    sums = [Accumulated(row=row, machine=machine, on_the_way=points.get(row.cell_id, ())) for row, machine in found]
    return sorted(sums, key=lambda one: (order[one.row.accumulator], order[one.row.addend], one.row.upcast))


def precisions(path: Path, of: Rows) -> list[Precise]:
    """The latest answer for each model and precision, smallest model first."""
    found = _cells(path, of, table="numerics", row=NumericsRow)
    order = ("fp32", "tf32", "bf16", "fp16")
    rows = [Precise(row=row, machine=machine) for row, machine in found]
    return sorted(
        rows,
        key=lambda one: (one.row.layers * one.row.d_model**2, one.row.context, one.row.batch, one.row.attention,
                         one.row.weights_dtype, order.index(one.row.precision)),
    )  # fmt: skip


def dtypes(path: Path, cells: tuple[UUID, ...]) -> list[DtypeRow]:
    """What was read in these passes, in their order."""
    names = [column.name for column in TABLES["dtypes"].columns]
    with open_reader(path) as reader:
        rows = reader.execute(
            f"SELECT {', '.join(names)} FROM dtypes WHERE list_contains(?, cell_id) ORDER BY cell_id, position",
            [list(cells)],
        ).fetchall()
    return [DtypeRow(**dict(zip(names, row, strict=True))) for row in rows]


def sensitivities(path: Path, cell_id: UUID) -> list[Sensitive]:
    """What was computed from the streams of this cell's model, by statistic, dtype and scale."""
    with open_reader(path) as reader:
        rows = reader.execute(
            """SELECT statistic, computed_in, scale, CASE WHEN count(error) = count(*) THEN max(error) END,
                avg(overflowed_share), avg(underflowed_share)
            FROM normalisation WHERE cell_id = ? GROUP BY ALL ORDER BY statistic, computed_in, scale""",
            [cell_id],
        ).fetchall()
    return [Sensitive(**dict(zip(Sensitive.__dataclass_fields__, row, strict=True))) for row in rows]


def _cells(path: Path, of: Rows, *, table: str, row: type[R]) -> list[tuple[R, str]]:
    """The rows that count, with their machine; one of several rounds."""
    names = [column.name for column in TABLES[table].columns]
    query, parameters = latest(table, names, of=of)
    with open_reader(path) as reader:
        rows: list[tuple[Any, ...]] = reader.execute(
            f"""SELECT machine, {", ".join(names)} FROM ({query}) QUALIFY
                row_number() OVER (PARTITION BY machine, cell_key ORDER BY status <> 'ok', round) = 1""",
            parameters,
        ).fetchall()
    return [(row(**dict(zip(names, values, strict=True))), machine) for machine, *values in rows]
