"""A results file in which every text that somebody else wrote tries to be more than text.

    store(path); store(path, phases=True)

Rows of every kind are made as ever and ingested; then `TEXT` is written behind every text of every table whose values
the schema does not list. `phases` are texts that a page also goes by: with them it knows no forward pass any more.
"""

from pathlib import Path

import duckdb

from runner.schema import TABLES
from runner.sweep.storing import ingest_all
from tests.synthetic import everything, memory_rows, rows, timelines, traces

#: Where no browser may ever ask; nothing listens there.
OUTSIDE = "http://127.0.0.1:8999"
TEXT = (
    f"![p]({OUTSIDE}/p.png) [in]({OUTSIDE}/x) <b>EVIL</b> **EVIL** <a href='{OUTSIDE}/h'>h</a> <img src={OUTSIDE}/i> "
    f":red[r] :smile: :material/home: $x$ `c` {OUTSIDE}/bare www.evil.example a@evil.example -> %{{x}}"
)
#: Texts that say which rows belong together, or what a row is about.
PHASES = (
    "phase",
    "part",
    "dtype",
    "device",
    "operation",
    "module",
    "scope",
    "tensor",
    "moment",
    "failed_phase",
    "name",
)
_KEYS = ("cell_key", "sweep_key")


def store(path: Path, *, phases: bool = False) -> Path:
    """Every page has something to draw from it."""
    runs = [rows.run(label=name) for name in ("before", "after")]
    for of in runs:
        rows.store(path, of, [*rows.laptop(of), rows.failed(of, rows.asked(context=512))])
        traces.store(path, [traces.profiled(of), traces.profiled(of, mode="inference")])
        memory_rows.store(path, [memory_rows.memory(of, {"parameters": 2**20, "activations": 2**22})])
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
