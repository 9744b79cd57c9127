"""Example queries: each a title and its SQL.

EXAMPLES[0].query

Every query sorts its rows completely, so that ties have one order; sums that decide it are exact, not in floats.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Example:
    """One query."""

    title: str
    query: str


def _example(title: str, query: str) -> Example:
    return Example(title=title, query=query.strip())


EXAMPLES = (
    _example(
        "Time of a step",
        """
WITH named AS (
    SELECT cell_id, cell_key, concat_ws(' · ', d_model, layers, context, mode, precision, backend,
        nullif(attention, 'naive'), nullif(optimizer, 'foreach'), 'weights ' || nullif(weights_dtype, 'fp32'),
        'checkpoints ' || nullif(checkpoint_blocks, 0), 'batch ' || nullif(batch, 4),
        'warm-up ' || nullif(warmup_steps, 5), nullif(compile_cache, 'shared') || ' cache') AS name
    FROM steps WHERE status = 'ok' QUALIFY run_id = max(run_id) OVER (PARTITION BY cell_key)),
cells AS (
    SELECT cell_id, name || CASE WHEN count(DISTINCT cell_key) OVER (PARTITION BY name) > 1
        THEN ' · ' || cell_key[:4] ELSE '' END AS cell
    FROM named),
parts AS (
    SELECT cell, phase, median(t.median_ms) AS median_ms  -- of the rounds of one cell
    FROM cells JOIN timings t USING (cell_id)
    WHERE phase IN ('forward', 'loss', 'backward', 'optimizer')
    GROUP BY ALL)
FROM parts ORDER BY sum(median_ms::DECIMAL(18, 6)) OVER (PARTITION BY cell) DESC, cell,
    list_position(['forward', 'loss', 'backward', 'optimizer'], phase)""",
    ),
    _example(
        "First steps",
        """
SELECT m.step, precision || ' ' || backend AS way, median(duration_ms) AS duration_ms
FROM samples m JOIN steps s USING (cell_id)
WHERE phase = 'step' AND status = 'ok'
GROUP BY ALL ORDER BY way, step""",
    ),
    _example(
        "Least certain cells",
        """
SELECT d_model, context, mode, precision, backend, round, n, median_ms,
    (high_ms - low_ms) / median_ms AS interval_share, stopped_by
FROM timings JOIN steps USING (cell_id)
WHERE phase = 'step' AND status = 'ok'
ORDER BY interval_share DESC NULLS LAST, cell_id LIMIT 50""",
    ),
    _example(
        "How cells ended",
        """
WITH cells AS (
    SELECT 'steps' AS kind, status, failed_phase, message FROM steps
    UNION ALL SELECT 'attention', status, failed_phase, message FROM attention
    UNION ALL SELECT 'memory', status, failed_phase, message FROM memory)
SELECT kind, status, failed_phase, count(*) AS cells, min(message) AS message
FROM cells GROUP BY kind, status, failed_phase ORDER BY cells DESC, kind, status, failed_phase""",
    ),
    _example(
        "Attention over length",
        """
SELECT seq_len, concat_ws(' ', implementation, backend, precision, 'd_head', d_head) AS way,
    median(median_ms) AS median_ms, max(peak_allocated_bytes) AS peak_allocated_bytes
FROM attention JOIN timings USING (cell_id)
WHERE status = 'ok' AND phase = 'forward'
GROUP BY ALL ORDER BY way, seq_len""",
    ),
    _example(
        "Peak of memory",
        """
FROM (UNPIVOT (
    SELECT concat_ws(' · ', d_model, context, mode, precision) AS cell,
        max(parameters_bytes) AS "parameter", max(gradients_bytes) AS gradient,
        max(optimizer_state_bytes) AS "optimizer state", max(activations_bytes) AS activation,
        max(autocast_copies_bytes) AS "autocast copy", max(temporaries_bytes) AS temporary
    FROM memory WHERE status = 'ok' GROUP BY cell)
ON COLUMNS(* EXCLUDE cell) INTO NAME category VALUE held_bytes)
ORDER BY sum(held_bytes) OVER (PARTITION BY cell) DESC, cell, held_bytes DESC, category""",
    ),
    _example(
        "Longest kernels",
        """
WITH classes AS (
    SELECT kernel_class, phase, sum(calls) AS calls, sum(device_ms) AS device_ms FROM kernels GROUP BY ALL)
FROM classes ORDER BY sum(device_ms::DECIMAL(18, 6)) OVER (PARTITION BY kernel_class) DESC, kernel_class,
    list_position(['forward', 'loss', 'backward', 'optimizer'], phase), phase""",
    ),
    _example(
        "Sums gone astray",
        """
SELECT accumulator || ' + ' || addend || CASE WHEN upcast THEN ', upcast' ELSE '' END AS sum,
    value, addends, total, exact, abs(error) AS distance, slips_at
FROM accumulation WHERE status = 'ok' ORDER BY distance, cell_id""",
    ),
    _example(
        "Clock and power",
        """
SELECT started_at + to_microseconds((at_seconds * 1e6)::BIGINT) AS measured_at, sm_clock_mhz, power_watts,
    temperature_celsius, precision
FROM telemetry JOIN steps USING (cell_id) ORDER BY measured_at, cell_id, at_seconds""",
    ),
)
