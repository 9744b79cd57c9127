"""Every cell of every table of cells, as a query: what counts cells counts all kinds of them.

SELECT count(*) FROM ({EVERY_CELL})
"""

from runner.schema import TABLES

EVERY_CELL = " UNION ALL ".join(
    f"SELECT run_id, cell_id, cell_key, round, status FROM {table.name}" for table in TABLES.values() if table.key
)
