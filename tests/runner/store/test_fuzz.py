"""Results files with flipped bits and spool files with exchanged values: each gives valid rows or is refused.

A results file that crashes DuckDB itself counts as refused, because `extract` turns the crash into a refusal.
"""

import json
import math
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import get_args

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runner.errors import StepscopeError
from runner.schema import Mode, Precision, Status, new_id
from runner.store import merging
from runner.store.database import ingest, open_reader
from runner.store.spool import Spool
from tests.fuzz import SOAK_EXAMPLES, Reader
from tests.synthetic import rows

#: Examples for each importer: few in the suite, many in `make soak`.
EXAMPLES = (4, pytest.param(SOAK_EXAMPLES, marks=pytest.mark.soak, id="soak"))

HEADER, BLOCK, WORD = 4096, 262_144, 8
#: A flip: the position in the file, as a share of its length, and the bit.
FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["banana", "nan", "2^60", "'; DROP TABLE runs; --", "\ud800", "\0"]),
    st.just([]), st.just({"a": [1]}),
)  # fmt: skip
#: The number of results files that are also given to a real import, and of spool files that wait together.
ALL_THE_WAY, FILES = 3, 20
#: Reads the file that each line names, as the process of an import does, and answers with a line.
_READER = """
import json, sys
from pathlib import Path
from runner.store import merging
merging.limit()
for line in sys.stdin:
    print(json.dumps({"of": line, **merging.answer(*map(Path, json.loads(line)))}), flush=True)
"""


def sealed(content: bytearray, position: int) -> None:
    """Gives the header or block around `position` the checksum that DuckDB expects for its present content."""
    inside = position >= 3 * HEADER
    start = 3 * HEADER + (position - 3 * HEADER) // BLOCK * BLOCK if inside else position // HEADER * HEADER
    length, checksum = BLOCK if inside else HEADER, 5381
    for word in memoryview(content[start + WORD : start + length]).cast("Q"):
        checksum ^= word * 0xBF58476D1CE4E5B9 % 2**64
    content[start : start + WORD] = checksum.to_bytes(WORD, "little")


def flipped(content: bytes, flips: Iterable[tuple[float, int]], *, seal: bool) -> bytes:
    changed = bytearray(content)
    for share, bit in flips:
        position = int(share * len(changed))
        changed[position] ^= 1 << bit
        if seal:
            sealed(changed, position)
    return bytes(changed)


def keeps(found: duckdb.DuckDBPyConnection) -> bool:
    """Returns whether the rows keep the schema's contract, checked in Python."""
    steps = found.execute("SELECT status, mode, precision, d_model, context FROM steps").fetchall()
    times = found.execute("SELECT duration_ms, host_ms FROM samples").fetchall()
    return all(
        status in get_args(Status) and mode in get_args(Mode) and precision in get_args(Precision)
        and 1 <= width <= 2**60 and 1 <= context <= 2**60
        for status, mode, precision, width, context in steps
    ) and all(math.isfinite(value) and value >= 0 for pair in times for value in pair if value is not None)  # fmt: skip


def outcome(reader: Reader, file: Path, folder: Path) -> str:
    """Returns how an import of the file ends."""
    asked = json.dumps([str(file), str(folder)]) + "\n"
    done = reader.ask(asked.encode())
    if not done.stdout:
        return "ended by a signal" if done.returncode < 0 else "a traceback"
    said = json.loads(done.stdout)
    assert said["of"] == asked, "this answers another request"
    return "refused" if "refused" in said else _kept(folder, said["tables"])


def _kept(folder: Path, tables: Sequence[str]) -> str:
    """Returns whether the extracted rows keep the contract."""
    with duckdb.connect() as con:
        for name in tables:
            con.execute(f"CREATE VIEW {name} AS FROM read_parquet('{folder / name}.parquet')")
        whole = {"steps", "samples"} <= set(tables)
        return "rows" if not whole or keeps(con) else "rows that break the contract"


@pytest.fixture(scope="module")
def whole(module_db: Path) -> bytes:
    """Returns the bytes of a results file with four cells, one of them out of memory."""
    of = rows.run()
    cells = [rows.ok(of, rows.asked(context=context)) for context in (64, 128, 256)]
    rows.store(module_db, of, [*cells, rows.failed(of, rows.asked())])
    return module_db.read_bytes()


@pytest.mark.soak
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.timeout(0)
def test_a_results_file_with_flipped_bits(whole: bytes, examples: int) -> None:
    """A process like that of an import reads them, many in one process; a real import also reads the first few."""
    found: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, derandomize=examples < 100,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(FLIPS, st.booleans())
    def one(flips: list[tuple[float, int]], seal: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="stepscope-fuzz-") as temporary:
            file = Path(temporary, "there.duckdb")
            file.write_bytes(flipped(whole, flips, seal=seal))
            said = outcome(reader, file, Path(temporary))
            if found.total() < ALL_THE_WAY:
                assert _extracted(file, Path(temporary)) == ("rows" if said == "rows" else "refused")
        found[said] += 1
        assert said in ("rows", "refused", "ended by a signal"), (said, flips, seal)

    with closing(Reader(_READER)) as reader:
        one()
    print(dict(found))
    assert found["refused"]


def _extracted(file: Path, folder: Path) -> str:
    """Returns how an import of the file ends, in its own process."""
    try:
        return _kept(folder, merging.extract(file, folder))
    except StepscopeError:
        return "refused"


class Files(list[bytes]):
    """A list of files whose contents are not printed: they are long, and a failed test has them in its folder."""

    def __repr__(self) -> str:
        return f"{len(self)} files"


@st.composite
def changed_files(draw: st.DrawFn, text: str, cell_id: str) -> Files:
    """Draws FILES spool files with one cell each, in which a value or a few bits were changed."""
    files = Files()
    for _ in range(FILES):
        document = json.loads(text.replace(cell_id, str(new_id())))
        if draw(st.booleans()):
            files.append(flipped(json.dumps(document).encode(), draw(FLIPS), seal=False))
            continue
        row = document[draw(st.sampled_from(sorted(document)))][0]
        row[draw(st.sampled_from(sorted(row)))] = draw(JUNK)
        files.append(json.dumps(document).encode())
    return files


@pytest.mark.soak
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.timeout(0)
def test_spool_files_with_changed_values(tmp_path: Path, examples: int) -> None:
    """FILES changed files wait beside a results file with an unchanged one behind them, which they must not block."""
    of, template = rows.run(), tmp_path / "template.duckdb"
    rows.spooled(template, of, made := rows.ok(of, rows.asked()))
    (spooled,) = Spool(template).files()
    text, cell_id, db = spooled.read_text(), str(made.step.cell_id), tmp_path / "results.duckdb"
    found: Counter[str] = Counter()

    @settings(max_examples=max(3, examples // FILES), deadline=None, database=None, derandomize=examples < 100,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.deferred(lambda: changed_files(text, cell_id)))
    def some(files: Files) -> None:
        shutil.rmtree(Spool(db).folder, ignore_errors=True)
        db.unlink(missing_ok=True)
        Spool(db).folder.mkdir()
        for number, content in enumerate([*files, text.encode()]):
            (Spool(db).folder / f"{number:03}.json").write_bytes(content)
        ends = _ingested(db)
        assert ends.pop("rows") > 0, "the unchanged file"
        found.update(ends)
        found["rows"] += FILES - ends.total()

    some()
    print(dict(found))
    assert found["rows"]
    assert found["set aside"]


def _ingested(db: Path) -> Counter[str]:
    """Returns what happened to the files of the spool."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        before = len(Spool(db).files())
        waiting: list[Path] = []
        while waiting != (waiting := Spool(db).files()):  # one ingest takes what it can in a second
            ingest(db, patience_s=5.0)
        with open_reader(db) as con:
            assert keeps(con)
            assert con.execute("SELECT count(*) FROM runs").fetchone() is not None
    left = Counter(path.suffix for path in Spool(db).folder.iterdir() if not path.name.startswith("."))
    ends = Counter({"set aside": left[".bad"], "of a newer version": left[".json"]})
    return +ends + Counter({"rows": before - left.total()})
