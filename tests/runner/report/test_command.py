"""`python -m runner report`: its formats, its errors, and the commands that it recommends."""

import re
import shlex
from itertools import product
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from runner.report import html
from runner.report.questions import QUESTIONS
from runner.report.report import load_report
from runner.report.rows import Edition, Scope
from tests.command import planned, run
from tests.some import some
from tests.synthetic import memory_rows, rows


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, of = tmp_path_factory.mktemp("command") / "results.duckdb", rows.run(label="nightly")
    return rows.store(path, of, rows.laptop(of))


@pytest.fixture(scope="module")
def empty(file: Path) -> Path:
    """Returns a results file from which every row was deleted."""
    path = file.with_name("empty.duckdb")
    of = rows.run()
    rows.store(path, of, [rows.ok(of, rows.asked())])
    with duckdb.connect(str(path)) as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.execute(f"DELETE FROM {table}")
    return path


@pytest.fixture(scope="module")
def attention(file: Path) -> Path:
    """Returns a file of attention alone, on a GPU, in which no cell ran out of memory."""
    of = rows.run(device="cuda", device_name="Example GPU")
    cells = [memory_rows.attention(of, seq_len=length, d_head=16, batch=2) for length in (256, 512, 1024)]
    return memory_rows.store(file.with_name("attention.duckdb"), cells)


def test_help() -> None:
    done = run("report", "--help", db=Path("unused"))
    assert done.returncode == 0
    for option in ("--format", "--out", "--edition", "--machine", "--run", "--db"):
        assert option in done.stdout


def test_markdown_goes_to_standard_output_or_to_a_file(file: Path, tmp_path: Path) -> None:
    done = run("report", db=file)
    assert done.returncode == 0
    assert done.stdout.startswith("# Stepscope report: Example CPU · bench1\n")
    assert "## B1. How long do forward pass" in done.stdout
    assert "labeled nightly" in done.stdout
    assert run("report", "--out", str(tmp_path / "new" / "mine.md"), db=file).returncode == 0
    assert (tmp_path / "new" / "mine.md").read_text() == done.stdout


def test_latex(file: Path, tmp_path: Path) -> None:
    words = ("report", "--format", "latex", "--run", "nightly", "--out", str(tmp_path))
    assert run(*words, db=file).returncode == 0
    written = (tmp_path / "report.tex").read_text()
    assert written.count(r"\begin{longtable}") == written.count(r"\end{longtable}") > 5
    assert r"\caption{B1. Mean $\pm$ standard deviation of each phase: train, fp32, eager" in written or (
        r"\caption{B1. Mean $\pm$ standard deviation of each phase: fp32, eager, naive attention, batch 4}" in written
    )


def test_a_file_without_rows_leaves_every_question_open(empty: Path) -> None:
    done = run("report", db=empty)
    assert done.returncode == 0
    assert "This file has no measured run." in done.stdout
    assert done.stdout.count("```sh") > 10
    assert all(f"**{question.id}. " in done.stdout for question in QUESTIONS)
    assert "## B1." not in done.stdout
    assert run("report", "--format", "latex", db=empty).returncode == 0
    done = run("report", "--format", "html", "--out", str(empty.with_name("x.html")), db=empty)
    assert done.returncode == 2
    assert "no measured run, so there is nothing to draw" in done.stdout


def test_a_file_of_attention_answers_some_questions(attention: Path) -> None:
    report = load_report(attention, Scope())
    assert {one.id for one in report.answered} == {"A1"}
    assert {"B1", "M1", "P3", "C1", "A2", "A3"} <= {one.id for one in report.open}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--edition", "2024"), "There is no edition '2024'. Expected 2025 or 2026."),
        (("--format", "pdf"), "There is no format 'pdf'. Expected markdown, html, latex."),
        (("--machine", "other"), "No rows were measured on 'other'. Expected one of 'Example CPU · bench1'."),
        (("--run", "weekly"), "No run is called 'weekly'."),
        (("--format", "html"), "An HTML report goes to a file. Say which: --out report.html"),
    ],
)
def test_impossible_requests(file: Path, words: tuple[str, ...], answer: str) -> None:
    done = run("report", *words, db=file)
    assert done.returncode == 2
    assert answer in " ".join(done.stdout.split())


def test_a_file_that_is_missing_or_cannot_be_written(file: Path, tmp_path: Path) -> None:
    assert run("report", db=tmp_path / "none.duckdb").returncode == 2
    (tmp_path / "taken").write_text("mine")
    done = run("report", "--out", str(tmp_path / "taken" / "below.md"), db=file)
    assert done.returncode == 2
    assert "cannot be written" in done.stdout
    assert (tmp_path / "taken").read_text() == "mine"


def test_without_the_app_html_is_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    def find(name: str) -> object:
        return None if name in ("streamlit", "plotly") else object()

    with patch.object(html, "find_spec", side_effect=find):
        done = run("report", "--format", "html", "--out", str(tmp_path / "x.html"), db=file)
    assert done.returncode == 2
    assert "drawn by the dashboard, which lacks streamlit, plotly. Install the app" in " ".join(done.stdout.split())
    assert not (tmp_path / "x.html").exists()


FILES = ("file", "empty", "attention")
EDITIONS: tuple[Edition | None, ...] = (None, "2025", "2026")


def list_commands(path: Path, edition: Edition | None) -> list[list[str]]:
    """Returns the words after `sweep` of every recommended command, without the file, for open and answered
    questions."""
    report = load_report(path, Scope(edition=edition))
    assert all(one.commands for one in report.open)
    found = {command for one in report.open for command in one.commands}
    found |= {command for one in report.answered for command in one.commands}
    words = [shlex.split(command) for command in sorted(found)]
    assert all((each[:4], each[-2:]) == (["python", "-m", "runner", "sweep"], ["--db", str(path)]) for each in words)
    return [each[4:-2] for each in words]


@pytest.mark.parametrize(("name", "edition"), some(product(FILES, EDITIONS)))
def test_every_recommended_command_plans_cells(
    request: pytest.FixtureRequest, name: str, edition: Edition | None
) -> None:
    """The real command parses each and plans at least one cell; every open question has a command."""
    found = list_commands(request.getfixturevalue(name), edition)
    assert len(found) > 10
    for words in found:
        assert planned(*words), words


def runs_dry(words: list[str], db: Path) -> None:
    done = run("sweep", *words, "--dry-run", db=db)
    assert done.returncode == 0, (words, done.stdout)
    count = re.search(r"(\d+) cells on ", done.stdout)
    assert count, words
    assert int(count[1]) > 0, words


@pytest.mark.soak
@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("name", FILES)
def test_every_recommended_command_runs_dry(
    request: pytest.FixtureRequest, name: str, edition: Edition | None, tmp_path: Path
) -> None:
    for words in list_commands(request.getfixturevalue(name), edition):
        runs_dry(words, tmp_path / "elsewhere.duckdb")
