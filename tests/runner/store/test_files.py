"""Files that the store cannot use are refused with a reason and left unchanged; broken spool files block no others."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import DatabaseForeign, DatabaseMissing
from runner.schema import new_id
from runner.store import database
from runner.store.database import ingest
from runner.store.spool import Spool
from tests.some import some
from tests.synthetic.stored import change, counts, made, read, write_cell


def foreign_table(db: Path, table: str) -> None:
    change(db, f"CREATE TABLE {table} (x INTEGER)")


def newer_storage(db: Path) -> None:
    """Writes a DuckDB file whose header names a storage version of the far future, with a correct checksum."""
    content = bytearray(made(db))
    content[12:20] = (9999).to_bytes(8, "little")
    checksum = 5381
    for start in range(8, 4096, 8):
        word = int.from_bytes(content[start : start + 8], "little")
        checksum ^= word * 0xBF58476D1CE4E5B9 % 2**64
    content[:8] = checksum.to_bytes(8, "little")
    db.write_bytes(content)


SPOILED: dict[str, Callable[[Path], object]] = {
    "empty": lambda db: db.touch(),
    "text": lambda db: db.write_text("step,ms\n1,2\n" * 10_000),
    "only its header": lambda db: db.write_bytes(made(db)[:8192]),
    "half of it": lambda db: db.write_bytes(made(db)[: db.stat().st_size // 2]),
    "all but a byte": lambda db: db.write_bytes(made(db)[:-1]),
    "other tables": lambda db: foreign_table(db, "people"),
    "other runs": lambda db: foreign_table(db, "runs"),
    "newer storage": newer_storage,
}


@pytest.mark.parametrize("kind", SPOILED)
def test_a_file_that_is_not_ours_is_refused_and_left(db: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "READER_PATIENCE_S", 60.0)
    SPOILED[kind](db)
    write_cell(db)
    before = db.read_bytes() if db.is_file() else b""
    began = time.monotonic()
    for use in (lambda: read(db, "FROM steps"), lambda: ingest(db)):
        with pytest.raises(DatabaseForeign) as caught:
            use()
        assert str(db) in caught.value.got
        assert caught.value.expected
        assert caught.value.do
    assert time.monotonic() - began < database.READER_PATIENCE_S, "it must not be tried again"
    assert (db.read_bytes() if db.is_file() else b"") == before
    assert len(Spool(db).files()) == 1
    assert "version" in caught.value.got or kind != "newer storage"


def test_no_file_and_no_spool_is_missing(db: Path) -> None:
    for path in (db, db.parent / "no folder" / "results.duckdb"):
        with pytest.raises(DatabaseMissing, match="runner sweep"):
            read(path, "FROM steps")
    assert list(db.parent.iterdir()) == []


BROKEN = {
    "truncated": '{"steps": [{"run_id": "0190',
    "empty": "",
    "foreign": '{"hello": [1, 2]}',
    "a list": "[]",
    "no rows": '{"steps": {"run_id": 1}}',
    "no id": '{"steps": [{"status": "ok"}]}',
    "wrong type": f'{{"steps": [{{"run_id": "{new_id()}", "cell_id": "{new_id()}", "d_model": "wide"}}]}}',
}


@pytest.mark.parametrize("kind", some(BROKEN))
def test_a_broken_spool_file_is_set_aside_and_blocks_no_other(db: Path, kind: str) -> None:
    write_cell(db)
    broken = Spool(db).folder / "0.json"
    broken.write_text(BROKEN[kind])
    assert kind == "no id" or counts(db) == (1, 1, 3, 1)
    with pytest.warns(UserWarning, match=r"0\.json"):
        assert ingest(db) == 1
    assert counts(db) == (1, 1, 3, 1)
    assert broken.with_name("0.json.bad").read_text() == BROKEN[kind]
    assert Spool(db).files() == []
    write_cell(db)
    assert ingest(db) == 1


def test_the_spool_file_of_a_newer_stepscope_waits_for_it(db: Path) -> None:
    step = write_cell(db)
    (file,) = Spool(db).files()
    file.write_text(file.read_text().replace('"status"', '"a_new_column":1,"status"'))
    assert ingest(db) == 0
    assert Spool(db).files() == [file]
    assert read(db, "SELECT cell_id, status FROM steps") == [(step.cell_id, "ok")]
