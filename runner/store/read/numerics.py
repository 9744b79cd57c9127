"""The cost of a precision: sums with their partial sums, errors of a pass, dtypes, and statistics of normalization.

    for found in load_precisions(path, Selection()):
        print(found.cell.precision, found.row.gradient_error)

These numbers do not vary between measurements as times do, so the first ok round of a cell counts.
"""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar, get_args
from uuid import UUID

from runner.results import AccumulationResult, NormalizationResult, PrecisionResult
from runner.schema import TABLES, NumericsRow, Precision
from runner.store.database import open_reader
from runner.store.read.fetch import fetch, select
from runner.store.read.selection import Selection, select_chosen

R = TypeVar("R", AccumulationResult, PrecisionResult)


def load_accumulations(path: Path, of: Selection) -> list[AccumulationResult]:
    """Returns the latest row of each sum, narrow accumulators last."""
    found = _load_rows(path, of, table="accumulation", kind=AccumulationResult)
    points: dict[UUID, list[tuple[int, float]]] = {one.row.cell_id: [] for one in found}
    query = "SELECT cell_id, addend, total FROM partial_sums WHERE list_contains(?, cell_id) ORDER BY addend"
    with open_reader(path) as reader:
        for cell_id, addend, total in reader.execute(query, [list(points)]).fetchall():
            points[cell_id].append((addend, total))
    order = ("fp64", "fp32", "bf16", "fp16")
    return sorted(
        (replace(one, on_the_way=tuple(points[one.row.cell_id])) for one in found),
        key=lambda one: (order.index(one.row.accumulator), order.index(one.row.addend), one.row.upcast),
    )


def load_precisions(path: Path, of: Selection) -> list[PrecisionResult]:
    """Returns the latest row of each model and precision, smallest model first."""

    def order(row: NumericsRow) -> tuple[object, ...]:
        return (
            row.order,
            row.context,
            row.batch,
            row.attention,
            row.weights_dtype,
            get_args(Precision).index(row.precision),
        )

    return sorted(_load_rows(path, of, table="numerics", kind=PrecisionResult), key=lambda one: order(one.row))


_SENSITIVE = """
    SELECT statistic, computed_in, scale, CASE WHEN count(n.error) = count(*) THEN max(n.error) END AS error,
        avg(overflowed_share) AS overflowed_share, avg(underflowed_share) AS underflowed_share
    FROM normalisation n WHERE cell_id = ? GROUP BY ALL ORDER BY statistic, computed_in, scale"""


def load_sensitivities(path: Path, cell_id: UUID) -> list[NormalizationResult]:
    """Returns the errors of normalization over the residual streams of this cell, by statistic, dtype and scale."""
    with open_reader(path) as reader:
        return fetch(reader, _SENSITIVE, [cell_id], kind=NormalizationResult)


def _load_rows(path: Path, of: Selection, *, table: str, kind: type[R]) -> list[R]:
    """Returns the rows that count, with their machine, one round of each cell."""
    row = TABLES[table].row
    query, parameters = select_chosen(table, of, tuple(column.name for column in TABLES[table].columns))
    with open_reader(path) as reader:
        return fetch(reader, f"SELECT {select(row)}, machine FROM ({query})", parameters, kind=kind)
