"""A results file in which every text that a user or a foreign file can set tries to be more than text.

    store(path); store(path, phases=True)

Makes and ingests ordinary rows of every kind, then appends `TEXT` to every text column whose values the schema does not
list. Pages look some of these texts up, such as the name of a phase; `phases` changes those too, so that for example no
forward pass is recognized any more.
"""

from pathlib import Path

import duckdb

from runner.schema import TABLES
from runner.sweep.loop import ingest_all
from tests.synthetic import everything, memory_rows, rows, timelines, traces

#: An address that no browser may request; nothing listens there.
OUTSIDE = "http://127.0.0.1:8999"
TEXT = (
    f"![p]({OUTSIDE}/p.png) [in]({OUTSIDE}/x) <b>EVIL</b> **EVIL** <a href='{OUTSIDE}/h'>h</a> <img src={OUTSIDE}/i> "
    f":red[r] :smile: :material/home: $x$ `c` {OUTSIDE}/bare www.evil.example a@evil.example -> %{{x}}"
)
#: Columns whose texts say which rows belong together, or what a row is about.
PHASES = (
    "phase", "part", "dtype", "device", "operation", "module", "scope", "tensor", "moment", "failed_phase", "name",
)  # fmt: skip
_KEYS = ("cell_key", "sweep_key")


def store(path: Path, *, phases: bool = False) -> Path:
    """Writes the file, which has rows to draw for every page."""
    runs = [rows.run(label=name) for name in ("before", "after")]
    for of in runs:
        rows.store(path, of, [*rows.laptop(of), rows.failed(of, rows.asked(context=512))])
        rows.store_tables(path, [traces.profiled(of), traces.profiled(of, mode="inference")])
        rows.store_tables(path, [memory_rows.memory(of, {"parameters": 2**20, "activations": 2**22})])
        timelines.write(path, of, timelines.step(allocations=300))
    everything.store(path)
    ingest_all(path)
    with duckdb.connect(str(path)) as file:
        held = {name for (name,) in file.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        for table in (table for table in TABLES.values() if table.name in held):
            for column in table.columns:
                foreign = column.sql_type == "VARCHAR" and not column.choices and column.name not in _KEYS
                if foreign and (phases or column.name not in PHASES):
                    file.execute(f"UPDATE {table.name} SET {column.name} = coalesce({column.name}, '') || ?", [TEXT])
    return path
