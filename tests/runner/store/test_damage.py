"""A results file with a damaged block: readable tables are shown, and the unreadable one is named."""

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from runner.errors import DatabaseDamaged, StoreError
from runner.store.database import look_through, open_reader
from runner.store.merging import merge
from runner.store.read.runs import load_contents
from tests.runner.store.test_merge import TABLES
from tests.synthetic import rows

BLOCK = 4096


def block_of(file: Path, table: str, only: str | None) -> int:
    """Returns the position of the first block of the table's data, which DuckDB reports; with `only`, of the first
    block that holds just one piece of that column."""
    with duckdb.connect(str(file), read_only=True) as con:
        pieces = "any_value(column_name) AS name, count(*) AS pieces"
        blocks = f"SELECT block_id, {pieces} FROM pragma_storage_info('{table}') WHERE persistent GROUP BY block_id"
        wanted = f"AND name = '{only}' AND pieces = 1" if only else ""
        query = f"SELECT min(block_id) FROM ({blocks}) WHERE block_id >= 0 {wanted}"
        (block,) = con.execute(query).fetchone() or (0,)
        (size,) = con.execute("SELECT block_size FROM pragma_database_size()").fetchone() or (0,)
    return 3 * BLOCK + int(block) * int(size)


def damage(file: Path, table: str, only: str | None = None) -> Path:
    """Overwrites 4 KiB of that block with zeros."""
    place, content = block_of(file, table, only), bytearray(file.read_bytes())
    content[place + BLOCK : place + 2 * BLOCK] = bytes(BLOCK)
    file.write_bytes(content)
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Returns a small sweep whose samples fill more than a block that they share with other tables."""
    return rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))


def readable(file: Path) -> Mapping[str, bool]:
    """Returns for each table whether a reader gets its rows."""
    found: dict[str, bool] = {}
    for name in TABLES:
        try:
            with open_reader(file) as con:
                found[name] = bool(con.execute(f"SELECT count(*), any_value({name}) FROM {name}").fetchall())
        except DatabaseDamaged as error:
            found[name] = not all(said in error.got for said in (str(file), f"table {name} ", "checksum"))
    return found


@pytest.mark.parametrize("table", ["steps", pytest.param("samples", marks=pytest.mark.soak)])
def test_only_queries_of_the_damaged_table_fail(file: Path, tmp_path: Path, table: str) -> None:
    assert all(readable(file).values())
    damaged = set(look_through(damage(file, table)).damaged)
    assert table in damaged
    assert readable(file) == {name: name not in damaged for name in TABLES}
    assert len(load_contents(file).runs) == (0 if "runs" in damaged else 1)
    with pytest.raises(StoreError, match=r"results\.duckdb"):
        merge(file, into=tmp_path / "here.duckdb")
    assert not (tmp_path / "here.duckdb").exists()
