"""The ceilings of a machine and its profiled steps with their kernels: what the page Roofline draws.

for row in ceilings(path, Rows(machine="NVIDIA H200 · node1")):
    print(row.moment, row.name, row.flops_per_s)
for found in profiled(path, Rows()):
    print(found.row.busy_share, len(found.kernels))
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from runner.analysis.compare.counterfactuals import AXES
from runner.schema import TABLES, CeilingRow, KernelRow, ProfileRow
from runner.store.database import open_reader
from runner.store.queries.latest import Rows, latest
from runner.store.queries.selection import MACHINE

_CEILINGS = tuple(column.name for column in TABLES["ceilings"].columns)
_PROFILES = tuple(column.name for column in TABLES["profiles"].columns)
_KERNELS = tuple(column.name for column in TABLES["kernels"].columns)


def ceilings(path: Path, of: Rows) -> list[CeilingRow]:
    """Every ceiling of a machine or a run, the latest run first; within a run those of its start before its end's."""
    conditions = [(f"{MACHINE} = ?", of.machine), ("s.run_id = ?", of.run)]
    asked = [(text, value) for text, value in conditions if value is not None]
    query = f"""
        SELECT {", ".join(f"s.{name}" for name in _CEILINGS)} FROM ceilings s LEFT JOIN runs r USING (run_id)
        WHERE {" AND ".join(text for text, _ in asked) or "true"}
        ORDER BY s.run_id DESC, s.moment DESC, s.ceiling DESC, s.name"""
    with open_reader(path) as reader:
        rows = reader.execute(query, [value for _, value in asked]).fetchall()
    return [CeilingRow(**dict(zip(_CEILINGS, row, strict=True))) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What steps were measured on: `device` is cuda, cpu or mps."""

    device: str | None
    device_name: str | None


def machine(path: Path, of: Rows) -> Machine:
    """The machine, by its latest run; nothing is known of one without runs."""
    with open_reader(path) as reader:
        row = reader.execute(
            f"SELECT device, device_name FROM runs r WHERE {MACHINE} = ? ORDER BY run_id DESC LIMIT 1", [of.machine]
        ).fetchone()
    return Machine(**dict(zip(("device", "device_name"), row or (None, None), strict=True)))


#: The compiler's cache is a matter of the backend, which is an axis.
_ALIKE = [f"s.{name}" for name in TABLES["steps"].key if name not in (*AXES, "compile_cache")]
_VARIED = f"""
    SELECT run_id FROM (
        SELECT s.run_id, count(DISTINCT ({", ".join(f"s.{axis}" for axis in AXES)})) AS ways
        FROM steps s LEFT JOIN runs r USING (run_id)
        WHERE {MACHINE} = ? AND (? IS NULL OR s.run_id = ?) AND s.mode = ? AND s.status = 'ok'
        GROUP BY s.run_id, {", ".join(_ALIKE)})
    GROUP BY run_id HAVING max(ways) > 1 ORDER BY max(ways) DESC, run_id DESC LIMIT 1"""


def varied_run(path: Path, of: Rows, mode: str) -> UUID | None:
    """The run that measured one step in the most ways; of equals the latest. None where no step was changed."""
    with open_reader(path) as reader:
        row = reader.execute(_VARIED, [of.machine, of.run, of.run, mode]).fetchone()
    return row[0] if row else None


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """One profiled step and its kernels, the longest first."""

    row: ProfileRow
    kernels: tuple[KernelRow, ...]


def profiled(path: Path, of: Rows) -> list[Profiled]:
    """Every profiled step that worked, the latest of each question; smallest model and shortest context first."""
    query, parameters = latest("profiles", _PROFILES, of=of)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)
        rows = reader.execute(
            f"""SELECT {", ".join(_PROFILES)} FROM chosen WHERE status = 'ok' QUALIFY row_number() OVER (
                PARTITION BY machine, cell_key ORDER BY round) = 1
            ORDER BY d_model * d_model * layers, context, mode, precision, backend, attention"""
        ).fetchall()
        kernels = reader.execute(
            f"SELECT {', '.join(_KERNELS)} FROM kernels SEMI JOIN chosen USING (cell_id) ORDER BY device_ms DESC"
        ).fetchall()
    of_cell: dict[UUID, list[KernelRow]] = {}
    for values in kernels:
        kernel = KernelRow(**dict(zip(_KERNELS, values, strict=True)))
        of_cell.setdefault(kernel.cell_id, []).append(kernel)
    found = [ProfileRow(**dict(zip(_PROFILES, row, strict=True))) for row in rows]
    return [Profiled(row=row, kernels=tuple(of_cell.get(row.cell_id, ()))) for row in found]
