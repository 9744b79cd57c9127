"""`python -m runner report`: its formats, its refusals, and the commands that it recommends."""

import shlex
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from runner.report import html
from runner.report.questions import QUESTIONS
from runner.report.report import load_report
from runner.report.rows import Edition, Scope
from tests.command import run
from tests.synthetic import memory_rows, rows


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, of = tmp_path_factory.mktemp("command") / "results.duckdb", rows.run(label="nightly")
    return rows.store(path, of, rows.laptop(of))


@pytest.fixture(scope="module")
def empty(file: Path) -> Path:
    """A results file of which every row is gone."""
    path = file.with_name("empty.duckdb")
    of = rows.run()
    rows.store(path, of, [rows.ok(of, rows.asked())])
    with duckdb.connect(str(path)) as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.execute(f"DELETE FROM {table}")
    return path


@pytest.fixture(scope="module")
def attention(file: Path) -> Path:
    """Nothing but attention, on a GPU; no cell of it ran out of memory."""
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
    assert run("report", "--out", str(tmp_path), "--run", "nightly", db=file).returncode == 0
    assert (tmp_path / "report.md").read_text() == done.stdout


def test_latex(file: Path, tmp_path: Path) -> None:
    assert run("report", "--format", "latex", "--out", str(tmp_path), db=file).returncode == 0
    written = (tmp_path / "report.tex").read_text()
    assert written.count(r"\begin{longtable}") == written.count(r"\end{longtable}") > 5
    assert r"\caption{B1. Mean $\pm$ standard deviation of each phase: train, fp32, eager" in written or (
        r"\caption{B1. Mean $\pm$ standard deviation of each phase: fp32, eager, naive attention, batch 4}" in written
    )


def test_a_file_without_rows_leaves_every_question_open(empty: Path) -> None:
    done = run("report", db=empty)
    assert done.returncode == 0
    assert "This file has no measured run." in done.stdout
    assert done.stdout.count("```sh") >= len(QUESTIONS)
    assert "## B1." not in done.stdout
    assert run("report", "--format", "latex", db=empty).returncode == 0


def test_a_file_of_attention_answers_what_it_can(attention: Path) -> None:
    report = load_report(attention, Scope())
    assert {one.id for one in report.answered} == {"A1", "A2"}
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
def test_what_cannot_be_asked_for(file: Path, words: tuple[str, ...], answer: str) -> None:
    done = run("report", *words, db=file)
    assert done.returncode == 2
    assert answer in " ".join(done.stdout.split())


def test_a_file_that_is_not_there_or_cannot_be_written(file: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("edition", [None, "2025", "2026"])
@pytest.mark.parametrize("name", ["file", "empty", "attention"])
def test_every_recommended_command_plans_cells(
    request: pytest.FixtureRequest, name: str, edition: Edition | None, tmp_path: Path
) -> None:
    """`--dry-run` accepts each, and plans something; what is open has one, and what is answered can be repeated."""
    path: Path = request.getfixturevalue(name)
    report = load_report(path, Scope(edition=edition))
    found = {command for one in (*report.open, *report.answered) for command in one.commands}
    assert all(one.commands for one in report.open)
    assert found
    for command in sorted(found):
        words = shlex.split(command)
        assert words[:4] == ["python", "-m", "runner", "sweep"]
        assert words[-2:] == ["--db", str(path)]
        done = run("sweep", *words[4:-2], "--dry-run", db=tmp_path / "elsewhere.duckdb")
        assert done.returncode == 0, (command, done.stdout)
        assert " cells on " in done.stdout, command
        assert not done.stdout.split(" cells on ")[0].endswith(" 0"), command
