"""What precision costs: sums with their way there, errors of a pass, dtypes, and statistics of normalization.

    for found in precisions(path, Selection()):
        print(found.cell.precision, found.row.gradient_error)

Numbers here do not vary from one measurement to the next as times do: of several rounds the first that worked counts.
"""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from runner.results import Accumulated, Precise, Sensitive
from runner.schema import TABLES, DtypeRow
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, select
from runner.store.queries.raw import stored_rows
from runner.store.queries.selection import Selection, chosen

R = TypeVar("R", Accumulated, Precise)


def accumulations(path: Path, of: Selection) -> list[Accumulated]:
    """The latest answer to each sum, narrow accumulators last."""
    found = _cells(path, of, table="accumulation", kind=Accumulated)
    with open_reader(path) as reader:
        points: dict[UUID, tuple[tuple[int, float], ...]] = {
            cell_id: tuple((point["addend"], point["total"]) for point in listed)
            for cell_id, listed in reader.execute(
                """SELECT cell_id, list({'addend': addend, 'total': total} ORDER BY addend)
                FROM partial_sums WHERE list_contains(?, cell_id) GROUP BY cell_id""",
                [[one.row.cell_id for one in found]],
            ).fetchall()
        }
    order = {"fp64": 0, "fp32": 1, "bf16": 2, "fp16": 3}
    sums = [replace(one, on_the_way=points.get(one.row.cell_id, ())) for one in found]
    return sorted(sums, key=lambda one: (order[one.row.accumulator], order[one.row.addend], one.row.upcast))


def precisions(path: Path, of: Selection) -> list[Precise]:
    """The latest answer for each model and precision, smallest model first."""
    order = ("fp32", "tf32", "bf16", "fp16")
    return sorted(
        _cells(path, of, table="numerics", kind=Precise),
        key=lambda one: (one.row.layers * one.row.d_model**2, one.row.context, one.row.batch, one.row.attention,
                         one.row.weights_dtype, order.index(one.row.precision)),
    )  # fmt: skip


def dtypes(path: Path, cells: tuple[UUID, ...]) -> list[DtypeRow]:
    """What was read in these passes, in their order."""
    with open_reader(path) as reader:
        source = "dtypes WHERE list_contains(?, cell_id) ORDER BY cell_id, position"
        return stored_rows(reader, DtypeRow, source, [list(cells)])


_SENSITIVE = """
    SELECT statistic, computed_in, scale, CASE WHEN count(n.error) = count(*) THEN max(n.error) END AS error,
        avg(overflowed_share) AS overflowed_share, avg(underflowed_share) AS underflowed_share
    FROM normalisation n WHERE cell_id = ? GROUP BY ALL ORDER BY statistic, computed_in, scale"""


def sensitivities(path: Path, cell_id: UUID) -> list[Sensitive]:
    """What was computed from the streams of this cell's model, by statistic, dtype and scale."""
    with open_reader(path) as reader:
        return fetch(reader, _SENSITIVE, [cell_id], kind=Sensitive)


def _cells(path: Path, of: Selection, *, table: str, kind: type[R]) -> list[R]:
    """The rows that count, with their machine; one of several rounds."""
    row = TABLES[table].row
    query, parameters = chosen(table, of, tuple(column.name for column in TABLES[table].columns))
    with open_reader(path) as reader:
        return fetch(reader, f"SELECT {select(row)}, machine FROM ({query})", parameters, kind=kind)
