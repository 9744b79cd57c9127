"""A query of the cells of all tables of cells, for everything that counts cells.

SELECT count(*) FROM ({EVERY_CELL})
"""

from runner.schema import TABLES

EVERY_CELL = " UNION ALL ".join(
    f"SELECT run_id, cell_id, cell_key, round, status FROM {table.name}" for table in TABLES.values() if table.key
)
