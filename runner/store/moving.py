"""From the spool into the file: many cells in a transaction, and each alone where one of them cannot be used.

    with attach(con, path, access="READ_WRITE", deadline=deadline):
        moved = move_files(con, spool, most_s=0.1, bad={})

Most of a transaction's time goes to planning its 30 statements: 100 cells took 5.2 s one by one and 0.2 s together.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.schema import STORED, TABLES
from runner.store.attached import format_reason, insert_rows
from runner.store.spool import Spool
from runner.store.staging import UNREADABLE, Document, drop, is_newer, load_document, stage_checked

#: What one transaction takes at most of the spool.
BATCH_BYTES = 2**20


def move_files(con: DuckDBPyConnection, spool: Spool, *, most_s: float, bad: dict[str, str]) -> int:
    """Moves the spool's files into the tables of the file attached as `file`, until the transaction that passes
    `most_s`; returns how many. Those that cannot be used become `*.bad`, and `bad` gets their names and why."""
    spool.remove_leftovers()
    ingested, end = 0, time.monotonic() + most_s
    for files in _batches(spool.files()):
        ingested += _move(con, spool, files, bad=bad)
        if time.monotonic() > end:
            break
    return ingested


def _batches(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yields the files in groups of at most BATCH_BYTES, or of one file that is larger."""
    batch, held = list[Path](), 0
    for file in files:
        size = file.stat().st_size
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(file)
        held += size
    if batch:
        yield batch


def _move(con: DuckDBPyConnection, spool: Spool, files: Sequence[Path], *, bad: dict[str, str]) -> int:
    """Moves the cells of these files in one transaction; returns how many. Where one cannot be used, each is moved
    alone, and that one is set aside."""
    try:
        documents = {file: document for file in files if not is_newer(document := load_document(file))}
        if documents:
            _insert(con, list(documents.values()), where=files[0])
    except UNREADABLE as error:
        if len(files) > 1:
            return sum(_move(con, spool, [file], bad=bad) for file in files)
        spool.set_aside(files[0])
        bad[files[0].name] = format_reason(error)
        return 0
    for file in documents:
        file.unlink()
    return len(documents)


def _insert(con: DuckDBPyConnection, documents: Sequence[Document], *, where: Path) -> None:
    """Inserts the rows of these spool files in one transaction; changes nothing when one of `UNREADABLE` is raised."""
    con.begin()
    try:
        staged = stage_checked(con, documents, STORED, present=TABLES, where=where)
        for table in staged:
            insert_rows(con, table, f"temp.main.spool_{table.name} AS new")
        drop(con, staged)
    except UNREADABLE:
        con.rollback()
        raise
    con.commit()
