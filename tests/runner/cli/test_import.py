"""Published tables on the command line, with the commands of docs/import.md."""

from pathlib import Path

import pytest

from runner.store.read.published import load_published
from tests.command import run

THEIRS = """\
## Their H100

| model | F | peak (GiB) |
|---|---|---|
| small | 12.3 ± 0.4 | 1.5 |
| large | 26. 4 | OOM |
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.md"
    path.write_text(THEIRS, encoding="utf-8")
    return path


def test_propose_correct_and_import(tmp_path: Path, db: Path, theirs: Path) -> None:
    draft = run("import", str(theirs), "--propose", db=db, code=0)
    assert '# "F" = { quantity = "forward", statistic = "mean", unit = "ms" }' in draft.stdout
    assert not db.exists()
    mapping = tmp_path / "theirs.toml"
    mapping.write_text(draft.stdout.replace('# "F"', '"F"'), encoding="utf-8")
    done = run("import", str(theirs), "--mapping", str(mapping), db=db, code=0)
    assert done.stdout.splitlines() == [
        "theirs.md: 1 table, 2 rows, 5 figures; 1 cell was refused.",
        "Their H100: 2 rows of steps, 3 figures with a value.",
        "  model: setting name",
        "  F: mean forward in ms",
        "  peak (GiB): peak memory in GiB",
        "  Line 6, F: Refused: “26. 4” is no number.",
    ]
    (table,) = load_published(db)
    assert (table.rows[0].mean("forward"), table.rows[0].mean("forward", of=["std"])) == (12.3, 0.4)
    assert table.rows[1].status == "oom"


def test_show_says_that_rows_are_published(db: Path, theirs: Path) -> None:
    theirs.write_text(THEIRS.replace("| F |", "| forward (ms) |"), encoding="utf-8")
    run("import", str(theirs), "--label", "their note", db=db)
    shown = run("show", "their note", db=db).stdout
    assert "their note · published" in shown
    assert "Their H100, theirs.md" in shown
    assert "12.3 ± 0.4" in shown
    assert "oom" in next(line for line in shown.splitlines() if "26. 4" in line)


def test_a_file_that_is_not_a_table_is_one_error(tmp_path: Path) -> None:
    path, db = tmp_path / "words.md", tmp_path / "results.duckdb"
    path.write_text("Only words.\n")
    (cells := tmp_path / "cells.csv").write_text("size,forward (ms)\nsmall,abc\nlarge,n/a\n")
    assert "no cell below “forward (ms)” holds a number" in run("import", str(cells), db=db).stdout
    for words in (("import", str(path)), ("import", "--propose", str(path)), ("import", str(tmp_path / "none.csv"))):
        done = run(*words, db=db)
        assert (done.returncode, "Traceback" in done.stdout) == (2, False)
        assert "error:" in done.stdout
    assert not db.exists()
