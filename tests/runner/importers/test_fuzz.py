"""The import of any foreign file, however broken, ends in rows or in one explained error."""

import csv
import io
import json
import pickle
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz import NUMBERS, SNAPSHOTS, SOAK_EXAMPLES, Kind, fuzz
from tests.runner.importers.test_cases import CASES
from tests.runner.published.test_reading import CSV, HTML, MARKDOWN, RECORDS
from tests.runner.published.test_reference import FOLDER as REFERENCE
from tests.synthetic.nsys import made
from tests.synthetic.nsys_statistics import API_SUM, KERN_COLUMNS, KERN_SUM, MEM_SUM, NVTX

TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
          "StringIds", "TARGET_INFO_GPU")  # fmt: skip
COLUMNS = ("start", "end", "correlationId", "globalPid", "globalTid", "bytes", "copyKind", "demangledName", "text",
           "textId", "value", "name", "totalMemory", "eventType")  # fmt: skip
VALUES = st.one_of(NUMBERS.filter(lambda number: -(2**63) <= number < 2**63), st.floats(), st.none(),
                   st.text(max_size=8), st.binary(max_size=8), st.sampled_from(["forward", "step 1"]))  # fmt: skip
CHANGES = st.lists(st.tuples(st.sampled_from(TABLES), st.sampled_from(COLUMNS), VALUES, st.integers(0, 3)), max_size=6)
LINES = [line for text in (API_SUM, KERN_SUM, KERN_COLUMNS, MEM_SUM, NVTX, "a,b\n1,2", "----  --")
         for line in text.splitlines()]  # fmt: skip


def snapshot(_: Path) -> bytes:
    """Returns a step's snapshot together with one of an allocator whose ring buffer has lost its beginning."""
    files = (CASES / f"snapshots/{name}.pickle" for name in ("kept-graphs", "steady"))
    first, second = (pickle.loads(file.read_bytes()) for file in files)
    second["device_traces"] = [trace[len(trace) // 2 :] for trace in second["device_traces"]]
    return pickle.dumps({name: [*first[name], *second[name]] for name in ("segments", "device_traces")})


def changed_export(changes: list[tuple[str, str, object, int]]) -> bytes:
    """Returns the export with some changed values. Changes of columns that a table lacks are ignored."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(EXPORT)
        for table, column, value, row in changes:
            known = {found[1] for found in connection.execute(f"PRAGMA table_info({table})")}
            if column in known:
                where = f"WHERE rowid IN (SELECT rowid FROM {table} LIMIT {row})" if row else ""
                try:
                    connection.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))
                except (sqlite3.Error, UnicodeEncodeError):
                    continue  # SQLite itself refuses NULL or a second row with the same id
        connection.commit()
        return connection.serialize()


with tempfile.TemporaryDirectory() as _folder:
    EXPORT = made(Path(_folder, "real.sqlite")).close().read_bytes()


def table(lines: list[str]) -> bytes:
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def wild(rows: list[list[str]]) -> bytes:
    """Returns rows of any text below the headings of kernels."""
    file = io.StringIO()
    csv.writer(file).writerows([["Total Time (ns)", "Instances", "Name"], *rows])
    return file.getvalue().encode("utf-8", "surrogatepass")


def pieces(*texts: str) -> st.SearchStrategy[bytes]:
    """Returns a strategy for files of the texts' lines, of their words, and of anything else, in any order."""
    lines = [line for text in texts for line in text.splitlines()]
    words = sorted({word for line in lines for word in re.split(r"(\W)", line) if word})
    of_words = st.lists(st.sampled_from(words), max_size=12).map("".join)
    line = st.one_of(st.sampled_from(lines), of_words, st.text(max_size=9))
    return st.lists(line, max_size=20).map(table)


def reference(_: Path) -> bytes:
    """Returns tables with units in cells, rows that ran out of memory, prose and commands."""
    names = ("003_nsys_kernels", "004_e2e", "004_prose_numbers", "003_attention_compiled", "003_run_logs")
    return b"\n".join((REFERENCE / f"{name}.csv").read_bytes() for name in names)


KINDS = {
    "snapshot": Kind(ending=".pickle", real=snapshot, built=SNAPSHOTS),
    "export": Kind(ending=".sqlite", real=lambda _: EXPORT, built=CHANGES.map(changed_export)),
    "statistics": Kind(
        ending=".csv",
        real=lambda _: (API_SUM + KERN_SUM + MEM_SUM + "\n" + NVTX).encode(),
        built=st.one_of(
            st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=20)), max_size=20).map(table),
            st.lists(st.lists(st.one_of(NUMBERS.map(str), st.text(max_size=4)), max_size=4), max_size=5).map(wild),
        ),
    ),
    "published csv": Kind(ending=".csv", real=reference, built=pieces(CSV, reference(REFERENCE).decode())),
    "published markdown": Kind(
        ending=".md", real=lambda _: (MARKDOWN + "\n" + HTML).encode(), built=pieces(MARKDOWN, HTML, "```", CSV)
    ),
    "published html": Kind(ending=".html", real=lambda _: HTML.encode(), built=pieces(HTML, "</table><table>")),
    "published json": Kind(
        ending=".json",
        real=lambda _: "\n".join(map(json.dumps, RECORDS * 40)).encode(),
        built=pieces(
            json.dumps(RECORDS, indent=1),
            *map(json.dumps, RECORDS),
            json.dumps({"columns": [1], "data": [[2]]}, indent=1),
        ),
    ),
}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", KINDS)
def test_thousands_of_broken_files(tmp_path: Path, name: str) -> None:
    ends = fuzz(KINDS[name], examples=SOAK_EXAMPLES, folder=tmp_path)
    print(f"\n{name}: {dict(ends)}")
    assert ends.keys() == {"refused", "imported"}
    assert ends.total() == SOAK_EXAMPLES
