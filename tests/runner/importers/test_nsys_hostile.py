"""Invalid and hostile exports and tables are refused with a reason, and nothing in them is executed."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UsageError
from runner.importers import nsys
from runner.importers.files import import_file
from tests.synthetic.nsys import GEMM, HTML, MAIN, PID, Made, kernels, made
from tests.synthetic.nsys_statistics import API_SUM, KERN_COLUMNS, KERN_SUM


def refused(path: Path, content: bytes, *, db: Path) -> str:
    """Returns the message with which a file is refused, and asserts that nothing was added."""
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        import_file(path, db=db)
    assert not db.exists()
    assert not db.with_name(db.name + ".spool").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.sqlite", b"SQLite format 3\0" + bytes(100), "got "),
        ("a.sqlite", b"SQLite format 3\0" + b"\xff" * 5000, "got "),
        ("a.nsys-rep", b"\x1f\x8b\x08" + bytes(50), "nsys export --type sqlite a.nsys-rep"),
        ("a.csv", b"", "it is empty"),
        ("a.csv", b"model,color\nsmall,2\n", "no heading says what it measures (“color”): not known."),
        ("a.log", b"model,Total Time\nsmall,2\n", "got a table with the headings “model”, “Total Time”. Expected"),
        ("a.csv", API_SUM.encode(), "headings “Time (%)”, “Total Time (ns)”, “Num Calls”"),
        ("a.txt", KERN_COLUMNS.encode(), "--format csv REPORT"),
        ("a.csv", KERN_SUM.replace("83312000", "-5").encode(), "“-5” and “96” in line 6"),
        ("a.csv", KERN_SUM.replace(",96,", ",9.6,").encode(), "“9.6” in line 6"),
        ("a.csv", KERN_SUM[: KERN_SUM.index("304322")].encode(), "Line 6 was refused: 8 cells below 9 headings"),
        ("a.csv", b'Total Time (ns),Instances,Name\n1,1,"' + b"x" * 200_000 + b'"\n', "field limit (131072) in line 2"),
    ],
)  # fmt: skip
def test_files_that_are_not_exports(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    assert words in refused(tmp_path / name, content, db=tmp_path / "results.duckdb")


def test_databases_that_are_not_exports(tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have other tables, a view or a program in place of a table, only half a file, or more rows than anyone
    records."""

    def after(*statements: str) -> bytes:
        path = tmp_path / "made.sqlite"
        path.unlink(missing_ok=True)
        with closing(made(path)) as export:
            for statement in statements:
                export.connection.execute(statement)
        return path.read_bytes()

    target = tmp_path / "report.sqlite"
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE passwords (id INTEGER, value TEXT)")
    assert "a database of something else" in refused(target, other.read_bytes(), db=db)
    drop = "DROP TABLE {}".format
    assert "a database of something else" in refused(target, after(drop("StringIds")), db=db)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, i AS "
    view = f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless} correlationId, i AS demangledName FROM n"
    dropped = [drop(f"CUPTI_ACTIVITY_KIND_{kind}") for kind in ("KERNEL", "MEMCPY", "MEMSET")]
    assert "nothing of CUDA was recorded" in refused(target, after(*dropped, view), db=db)
    whole = after()
    assert "got " in refused(target, whole[: len(whole) // 2], db=db)
    empty = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY")]
    assert "nothing ran on a GPU" in refused(target, after(*empty), db=db)
    for name, most, words in (
        ("LAUNCHES", 3, "3 calls"), ("RANGES", 3, "3 NVTX"), ("KERNELS", 3, "3 different"), ("PROCESSES", 0, "0 proc")
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(nsys, name, most)
            assert words in refused(target, whole, db=db)
    with monkeypatch.context() as patch:
        patch.setattr(nsys, "SECONDS", -1.0)
        many = "INSERT INTO StringIds SELECT i + 100, 'x' FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        slow = after(f"{many} FROM n LIMIT 300000) SELECT i FROM n)", "UPDATE TARGET_INFO_GPU SET name = 'x'",
                     "INSERT INTO TARGET_INFO_GPU SELECT id, 'x', 1 FROM StringIds")  # fmt: skip
        assert "s of reading" in refused(target, slow, db=db)
    long = after(f"UPDATE StringIds SET value = '{'x' * 1_100_000}' WHERE value = '{GEMM}'")
    assert "string or blob too big" in refused(target, long, db=db)


def test_hostile_values_are_only_text_and_numbers(tmp_path: Path, db: Path) -> None:
    """Names have markup, control characters and invalid UTF-8; times are negative, infinitely large or no
    numbers, which SQLite stores in any column."""
    export = Made(tmp_path / "report.sqlite")
    export.range(0, 100, HTML)
    for name in (f"void {HTML}\n\x00\x1b[31m(int)", "y" * 9_000):
        export.kernel(10, name, runs=200, takes=10)
    export.connection.execute("UPDATE StringIds SET value = CAST(x'ff41ff' AS TEXT) WHERE value LIKE 'y%'")
    odd: Any = [(-(2**62), -(2**62) + 5000), (2**62, -(2**62)), (-(2**63), 2**63 - 1)]
    for start, end in odd:
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, 0, 1, 7, 999, PID, 77, 77, None, None)
    for start, thread in (("abc", MAIN), (b"\0", MAIN), (1e300, MAIN), (0, "9" * 30)):  # SQLite stores any of them
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start, 10, 0, 1, 7, 999, PID, 77, 77, None, None)
        export.add("NVTX_EVENTS", 100 if start == 0 else start, 10, 59, None, "forward", thread, None, None, 0)
    report = import_file(export.close(), db=db)
    assert [line.rpartition(": ")[2] for line in report.lines[1:-1]] == [
        "4 of NVTX_EVENTS.", "4 of CUPTI_ACTIVITY_KIND_KERNEL.",
    ]  # fmt: skip
    found = kernels(db)
    assert {scope for _, scope, _ in found} == {HTML, ""}
    assert {name for _, _, name in found} == {f"void {HTML}   [31m(int)", "\ufffdA\ufffd", "unnamed kernel"}
    assert found["unknown", "", "unnamed kernel"] == (3, round((2**64 - 1 + 5000 + 10) / 1e6, 6))


def test_programs_in_place_of_tables_are_not_executed(tmp_path: Path, db: Path) -> None:
    """Generated columns count as missing, whatever their value, and so does a view that never ends."""
    export = made(tmp_path / "made.sqlite")
    export.connection.executescript(
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE NVTX_EVENTS;"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (correlationId INTEGER, globalTid INTEGER, "
        "start INTEGER GENERATED ALWAYS AS ('at ' || correlationId) VIRTUAL);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (correlationId) VALUES (1);"
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS start, i AS end, i AS globalTid, 'forward' AS text FROM n;"
        "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE USING fts5(start, end, correlationId);"
    )
    assert "made.sqlite: NVTX_EVENTS is no plain table and was not read." in import_file(export.close(), db=db).lines
    assert {phase for phase, _, _ in kernels(db)} == {"unknown"}
    assert sum(took for _, took in kernels(db).values()) == pytest.approx(0.620)


def test_an_import_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sqlite")
    with pytest.raises(UsageError, match="it is a pipe"):
        import_file(tmp_path / "pipe.sqlite", db=tmp_path / "results.duckdb")
