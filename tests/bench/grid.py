"""Results files of a thousand and of a million cells for the benches, with timings and samples, generated in SQL.

    fill(path, cells=1_000_000)

A file looks like the result of sweeps over one grid: 36 sizes and contexts in every mode, precision and backend, in
three rounds, repeated on four machines in turn. The smaller file is a part of the larger one. All times follow a
formula: nothing here was measured.
"""

from pathlib import Path

import duckdb

from runner.schema import TABLES, RunRow
from runner.store.database import look_through
from runner.store.read.runs import load_runs
from runner.store.sql import default_value
from tests.synthetic import rows

MACHINES = 4
_RUNS = """
    INSERT INTO runs SELECT * EXCLUDE (n) REPLACE (uuidv7() AS run_id, 'bench' || (n % $machines) AS host,
        'sweep ' || n AS label, started_at + n * INTERVAL 1 HOUR AS started_at)
    FROM runs, (SELECT unnest(range(1, $runs)) AS n)"""

_GRID = """
    CREATE TEMP TABLE grid AS SELECT uuidv7() AS cell_id, * FROM (
    SELECT r.run_id, d_model, 4 * d_model AS d_ff, d_model // 64 AS layers, d_model // 64 AS heads, context, mode,
        precision, backend, round
    FROM (SELECT row_number() OVER (ORDER BY started_at) AS n, run_id FROM runs) r,
        (SELECT unnest([0, 1, 2]) AS round),
        (SELECT unnest(['train', 'forward', 'backward', 'inference']) AS mode),
        (SELECT unnest(['fp32', 'tf32', 'bf16', 'fp16']) AS precision),
        (SELECT unnest(['eager', 'compiled', 'compiled-block', 'compiled-reduce-overhead',
            'compiled-max-autotune']) AS backend),
        (SELECT unnest([256, 384, 512, 640, 768, 1024]) AS d_model),
        (SELECT unnest([64, 128, 256, 512, 1024, 2048]) AS context)
    ORDER BY n, round, mode <> 'train', mode, backend <> 'eager', backend, precision <> 'fp32', precision
    LIMIT $cells)"""

_STEPS = """
    INSERT INTO steps BY NAME
    SELECT *, substr(md5(concat_ws(' ', d_model, context, mode, precision, backend)), 1, 16) AS cell_key,
        'ok' AS status, 1 AS warmup_steps, 12 * layers * d_model * d_model AS parameters, 1e4 AS tokens_per_s,
        TIMESTAMP '2026-01-01' AS ingested_at, {defaults}
    FROM grid"""
#: The columns that the grid sets; all other columns have their defaults.
_SET = "d_model d_ff layers heads context mode precision backend round warmup_steps"

_TIMES = """
    CREATE TEMP TABLE phases AS
    SELECT g.run_id, g.cell_id, p.phase, g.d_model * g.context / 1e4 * p.share * (0.9 + random() / 5) AS ms FROM grid g
    JOIN (VALUES ('forward', 0.3, 1), ('loss', 0.02, 3), ('backward', 0.56, 3), ('optimizer', 0.12, 4),
        ('forward_backward', 0.86, 3), ('step', 1.0, 1)) p(phase, share, least)
        ON p.least <= CASE g.mode WHEN 'train' THEN 4 WHEN 'backward' THEN 3 ELSE 1 END;
    INSERT INTO timings BY NAME
    SELECT run_id, cell_id, phase, 10 AS n, ms AS median_ms, ms AS mean_ms, 0.05 * ms AS std_ms, 0.97 * ms AS low_ms,
        1.03 * ms AS high_ms, ms AS host_median_ms, 'host' AS clock FROM phases;
    INSERT INTO samples BY NAME
    SELECT run_id, cell_id, phase, step, step = 0 AS is_warmup, ms * (0.95 + random() / 10) AS duration_ms
    FROM phases, (SELECT unnest(range(11)) AS step) WHERE phase NOT IN ('forward_backward', 'step')"""

_GRID_CELLS = 6 * 6 * 4 * 4 * 5 * 3


def fill(path: Path, *, cells: int) -> None:
    """Writes a new file with this many cells of `steps`, with timings and samples."""
    rows.store(path, of := rows.run(label="sweep 0", host="bench0"), [rows.ok(of, rows.asked())])
    with duckdb.connect(path) as con:
        for table in ("steps", "timings", "samples"):
            con.execute(f"DELETE FROM {table}")
        con.execute(_RUNS, {"machines": MACHINES, "runs": -(-cells // _GRID_CELLS)})
        con.execute(_GRID, {"cells": cells})
        unset = [column for column in TABLES["steps"].columns if column.name not in _SET.split()]
        defaults = [f"{default_value(one)} AS {one.name}" for one in unset if one.absent is not None]
        con.execute(_STEPS.format(defaults=", ".join(defaults)))
        con.execute(_TIMES)
        assert con.execute("SELECT count(*) FROM steps").fetchone() == (cells,)
    assert not look_through(path).left_out, "a page would leave out some rows"


def add_cell(path: Path) -> None:
    """Adds a measured cell to the newest run of the file, as a sweep does."""
    newest = load_runs(path)[0]
    of = RunRow(**{name: vars(newest)[name] for name in TABLES["runs"].names})
    rows.store(path, of, [rows.ok(of, rows.asked())])
