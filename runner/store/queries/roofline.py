"""The profiled steps of a machine with their kernels, for the page Roofline.

for found in load_profiles(path, Selection()):
    print(found.row.busy_share, len(found.kernels))
"""

from pathlib import Path
from uuid import UUID

from runner.analysis.compare.counterfactuals import AXES
from runner.results import Machine, Profiled
from runner.schema import TABLES, KernelRow, ProfileRow
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, select
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import MACHINE, Selection
from runner.store.queries.steps import choose


def load_machine(path: Path, of: Selection) -> Machine:
    """Returns the machine as its latest run names it, with unknown values where it has no runs."""
    query = f"SELECT device, device_name FROM runs r WHERE {MACHINE} = ? ORDER BY run_id DESC LIMIT 1"
    with open_reader(path) as reader:
        return next(iter(fetch(reader, query, [of.machine], kind=Machine)), Machine())


#: The columns that one step in several ways has in common. The compiler's cache goes with the backend, which varies.
_ALIKE = [f"s.{name}" for name in TABLES["steps"].key if name not in (*AXES, "compile_cache")]
_VARIED = f"""
    SELECT run_id FROM (
        SELECT s.run_id, count(DISTINCT ({", ".join(f"s.{axis}" for axis in AXES)})) AS ways
        FROM steps s LEFT JOIN runs r USING (run_id)
        WHERE {MACHINE} = ? AND (? IS NULL OR s.run_id = ?) AND s.mode = ? AND s.status = 'ok'
        GROUP BY s.run_id, {", ".join(_ALIKE)})
    GROUP BY run_id HAVING max(ways) > 1 ORDER BY max(ways) DESC, run_id DESC LIMIT 1"""


def find_most_varied_run(path: Path, of: Selection, mode: str) -> UUID | None:
    """Returns the run that measured one step in the most ways, the latest of equals. None where no run measured a step
    in two ways."""
    with open_reader(path) as reader:
        run: tuple[UUID] | None = reader.execute(_VARIED, [of.machine, of.run, of.run, mode]).fetchone()
    return run[0] if run else None


_LONGEST = f"SELECT {select(KernelRow)} FROM kernels SEMI JOIN chosen USING (cell_id) ORDER BY device_ms DESC"
_SMALLEST = "d_model * d_model * layers, context, mode, precision, backend, attention"


def load_profiles(path: Path, of: Selection) -> list[Profiled]:
    """Returns the latest row of each profiled step that is ok, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "profiles", of, tuple(column.name for column in TABLES["profiles"].columns))
        rows = fetch_rows(reader, ProfileRow, f"chosen WHERE status = 'ok' ORDER BY {_SMALLEST}")
        kernels = fetch(reader, _LONGEST, kind=KernelRow)
    by_id: dict[UUID, list[KernelRow]] = {}
    for kernel in kernels:
        by_id.setdefault(kernel.cell_id, []).append(kernel)
    return [Profiled(row=row, kernels=tuple(by_id.get(row.cell_id, ()))) for row in rows]
