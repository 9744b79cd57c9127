"""The evidence behind answers that rest on details of cells, such as early steps, kernels, tensors and dtypes.

    found = of_details(path, "kernels", (cell_id,))
    print(found.sql, found.rows, found.left_out)

Each kind of detail has one query. Like those of `evidence`, the queries need only the file and order their rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import UUID

from runner.store.database import open_reader
from runner.store.queries.counted import among
from runner.store.queries.evidence import MAX_ROWS, Evidence, read_evidence
from runner.store.queries.steps import STEP_MS

Kind = Literal[
    "early steps", "kinds of work", "kinds of work by phase", "ranges", "kernels", "saved tensors", "sums on their way",
    "dtypes", "normalization", "timelines",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A query of `table` with the placeholder `{where}`. It reads the cells' rows that meet the condition `such`; the
    others are left out for the reason `otherwise`."""

    table: str
    sql: str
    such: str = ""
    otherwise: str = ""


_SOURCES: Mapping[Kind, _Source] = {
    "early steps": _Source(
        table="samples",
        sql=f"""SELECT warmup_steps, step, bool_or(is_warmup) AS is_warmup, {STEP_MS} AS step_ms
FROM samples JOIN steps USING (cell_id) WHERE {{where}}
GROUP BY cell_id, warmup_steps, step ORDER BY warmup_steps, cell_id, step""",
    ),
    "kinds of work": _Source(
        table="kernels",
        sql="""SELECT cell_id, kernel_class, sum(calls) AS calls, sum(device_ms) AS device_ms
FROM kernels WHERE {where} GROUP BY ALL ORDER BY cell_id, device_ms DESC, kernel_class""",
    ),
    "kinds of work by phase": _Source(
        table="kernels",
        sql="""SELECT phase, kernel_class, sum(calls) AS calls, sum(device_ms) AS device_ms
FROM kernels WHERE {where} GROUP BY ALL ORDER BY phase, device_ms DESC, kernel_class""",
    ),
    "ranges": _Source(
        table="kernels",
        sql="""SELECT phase, scope, sum(calls) AS calls, sum(device_ms) AS device_ms, sum(flops) AS flops
FROM kernels WHERE {where} GROUP BY ALL ORDER BY phase, scope""",
        such="scope <> ''",
        otherwise="in no named range",
    ),
    "kernels": _Source(
        table="kernels",
        sql="""SELECT cell_id, phase, kernel, sum(calls) AS calls, sum(device_ms) AS device_ms
FROM kernels WHERE {where} GROUP BY ALL ORDER BY cell_id, device_ms DESC, phase, kernel""",
    ),
    "saved tensors": _Source(
        table="saved_tensors",
        sql="""SELECT position, operation, module, tensor, shape, dtype, storage_bytes
FROM saved_tensors WHERE {where} ORDER BY cell_id, position""",
        such="storage_bytes > 0",
        otherwise="memory that an earlier row holds",
    ),
    "sums on their way": _Source(
        table="partial_sums",
        sql="SELECT addend, total, spacing FROM partial_sums WHERE {where} ORDER BY cell_id, addend",
    ),
    "dtypes": _Source(
        table="dtypes",
        sql="""SELECT precision, dtypes.model, part, module, dtype
FROM dtypes JOIN numerics USING (cell_id) WHERE {where} ORDER BY precision, cell_id, position""",
    ),
    "normalization": _Source(
        table="normalisation",
        sql="""SELECT statistic, computed_in, scale,
    CASE WHEN count(error) = count(*) THEN max(error) END AS worst_error,
    avg(overflowed_share) AS overflowed_share, avg(underflowed_share) AS underflowed_share
FROM normalisation WHERE {where} GROUP BY ALL ORDER BY statistic, computed_in, scale""",
    ),
    "timelines": _Source(
        table="allocations",
        sql="""SELECT title, category, count(*) AS blocks, sum(allocated_bytes)::BIGINT AS bytes
FROM timelines JOIN allocations USING (cell_id)
WHERE {where} AND born_us <= peak_at_us AND (died_us IS NULL OR died_us > peak_at_us)
GROUP BY ALL ORDER BY title, bytes DESC, category""",
    ),
}


def of_details(path: Path, kind: Kind, cells: Sequence[UUID]) -> Evidence:
    """Returns the rows that belong to these cells. All others are left out as those of other cells."""
    return _load(path, _SOURCES[kind], cells)


def of_moment(path: Path, cell_id: UUID, at_us: int) -> Evidence:
    """Returns the blocks of a timeline that are alive at a moment, by category."""
    sql = """SELECT category, count(*) AS blocks, sum(allocated_bytes)::BIGINT AS bytes
FROM allocations WHERE {where} GROUP BY ALL ORDER BY bytes DESC, category"""
    alive = f"born_us <= {int(at_us)} AND (died_us IS NULL OR died_us > {int(at_us)})"
    return _load(path, _Source(table="allocations", sql=sql, such=alive, otherwise="not alive then"), [cell_id])


def _load(path: Path, source: _Source, cells: Sequence[UUID]) -> Evidence:
    own = among("cell_id", cells)
    where, why = own, "'of another cell'"
    if source.such:
        where, why = f"{own} AND {source.such}", f"CASE WHEN {own} THEN '{source.otherwise}' ELSE {why} END"
    sql = f"{source.sql.format(where=where)}\nLIMIT {MAX_ROWS}"
    others = f"""SELECT {why} AS why, count(*) AS "rows"
FROM {source.table} WHERE ({where}) IS NOT TRUE GROUP BY why ORDER BY why"""
    with open_reader(path) as reader:
        found = read_evidence(reader, sql, about=source.table)
        count = reader.execute(f"SELECT count(*), count(*) FILTER ({where}) FROM {source.table}").fetchone()
        left_out = tuple(reader.execute(others).fetchall())
    assert count is not None
    return replace(found, cells=count[1], total=count[0], left_out=left_out, left_out_sql=others)
