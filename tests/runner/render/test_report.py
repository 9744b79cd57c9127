"""`report` and `show` through the real command: the numbers of the answers, every form, and what is refused."""

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from runner.answers import QUESTIONS, ask
from runner.cli.report import BRIEF
from runner.experiments import KINDS
from runner.formats import format_number
from runner.plan.handout import COURSE, ask_handout, cells_of_edition
from runner.render.document import list_unanswered, order_questions
from runner.schema import config_of
from runner.store.packing import find_file
from runner.store.read.selection import Selection, load_measured
from tests.command import ROOT, planned, received, run, run_apart, run_json
from tests.runner.answers.shipped import FOLDER, shipped
from tests.synthetic import rows
from tests.synthetic.stored import change


@pytest.fixture(scope="module")
def file(module_db: Path) -> Path:
    return rows.store(module_db, of := rows.run(label="nightly"), rows.laptop(of))


def test_show_prints_the_answer_within_80_columns_and_as_json(file: Path) -> None:
    done = run_apart("show", "step", "--precision", "bf16", db=file, env={"COLUMNS": "80"}, code=0)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("$ ")]
    assert max(map(len, lines)) <= 160, "a pipe is wide"
    assert f"{format_number(2 * 64**1.5 * 64 / 20_000 / 2)}" in done.stdout, "toy-64 at 64 tokens, half of fp32"
    answer = run_json("show", "step", "--precision=bf16", db=file)
    assert answer["chosen"]["precision"]["value"] == "bf16"
    assert {column["name"] for column in answer["views"][0]["columns"]} >= {"size", "context", "median_ms"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "step", "--precision", "fp8"), "precision=fp8. Expected"),
        (("show", "step", "--colour", "red"), "has no choice “colour”"),
        (("show", "step", "red"), "'red'"),
        (("show", "step", "--machine", "mine"), "No rows were measured on 'mine'."),
        (("show", "nothing", "--json"), "No run is called 'nothing'"),
        (("show", "nothing", "--size", "small"), "There is no question 'nothing'"),
        (("report", "--format", "pdf"), "There is no format 'pdf'. Expected markdown, html, latex, json."),
        (("report", "--question", "steps"), "There is no question 'steps'."),
        (("report", "--edition", "2024"), "There is no edition '2024'. Expected 2025 or 2026."),
        (("report", "--machine", "mine"), "No rows were measured on 'mine'."),
        (("report", "--out", "/proc/none/report.md"), "cannot be written"),
    ],
)
def test_what_is_refused(file: Path, words: tuple[str, ...], said: str) -> None:
    assert said in re.sub(r"\s+", " ", run(*words, db=file, code=2).stdout)


def test_a_report_is_written_beside_and_renamed(file: Path, tmp_path: Path) -> None:
    run("report", "--brief", "--out", str(tmp_path), db=file, code=0)
    assert [one.name for one in tmp_path.iterdir()] == ["report.md"]
    assert "Example CPU · bench1" in (tmp_path / "report.md").read_text()


def test_an_edition_has_its_own_cells_alone(tmp_path: Path) -> None:
    done = run("report", "--question", "step", "--edition", "2026", db=FOLDER)
    (table,) = re.findall(r"\*\*Time of a whole step .*train, fp32.*\n\n((?:\|.*\n)+)", done.stdout)
    heads, _, *lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert {*heads} <= {"Size", "512", "1,024", "2,048"}
    assert [line[0] for line in lines] == ["small", "medium", "large", r"xl\@2026", "10B"]
    assert "inference, fp32" in done.stdout, "the other modes are shown as well"


@pytest.mark.parametrize("edition", [pytest.param("2025", marks=pytest.mark.soak), "2026"])
def test_a_report_of_an_edition_answers_each_question_or_has_the_command(edition: str) -> None:
    """The commands of a question, as `sweep` reads them, measure its cells without a row, and nothing else."""
    report = json.loads(run("report", "--edition", edition, "--format", "json", db=FOLDER).stdout)
    assert f"--preset cs336-{edition}" in report["Runs"]
    assert "--preset flash" not in report["Runs"], "nothing of it counts"
    assert list(report["handout"]) == list(COURSE)
    covered = {one for answer in report["answers"] for one in QUESTIONS[answer["question"]].course}
    assert covered == set(COURSE)
    assert all(words in report["Edition"] for words in ("flash_forward", "distributed training"))
    chosen = [one["chosen"] for one in report["answers"] if one["question"] == "memory"]
    peaks = {(one["mode"]["value"], one["precision"]["value"]) for one in chosen if "precision" in one}
    assert {(mode, precision) for mode in ("inference", "forward", "train") for precision in ("fp32", "bf16")} <= peaks
    assert {one["mode"]["value"] for one in chosen} == {"inference", "forward", "train"}, "no mode that nobody asks for"
    of = Selection(machine=report["title"].removeprefix("Stepscope report: "))
    measured = load_measured(find_file(FOLDER), of, [kind.cell for kind in KINDS])
    asked = ask_handout(edition, [cell for cell, _ in measured])
    for name, one in report["handout"].items():
        commands = [shlex.split(command)[4:] for command in one["missing"]]
        cells = [item.cell for words in commands for item in planned(*words, device="cuda")]
        assert {config_of(cell) for cell in cells} == {config_of(cell) for cell in asked[name].missing}


def test_runs_without_a_timed_row_head_a_report_too(tmp_path: Path) -> None:
    """Profiles, numerics and sums have no grade and are rows of an edition."""
    shutil.copy(find_file(FOLDER), copy := tmp_path / "results.duckdb")
    copy.chmod(0o644)
    change(copy, "DELETE FROM steps", "DELETE FROM attention", "DELETE FROM memory")
    facts = json.loads(run("report", "--edition", "2026", "--format", "json", db=copy).stdout)
    assert "--preset cs336-2026" in facts["Runs"]
    assert facts["Trust"] == "no row has a grade."


def test_every_cell_of_an_edition_belongs_to_a_question() -> None:
    for edition in ("2025", "2026"):
        every = cells_of_edition(edition)
        none, all_of_them = ask_handout(edition, ()), ask_handout(edition, every)
        assert all(one.cells == one.missing for one in none.values())
        assert not any(one.missing for one in all_of_them.values())
        known = {cell.key for one in none.values() for cell in one.cells}
        assert not [cell for cell in every if cell.key not in known]


@pytest.mark.soak
def test_questions_of_the_handout_come_first_and_open_ones_are_listed(file: Path) -> None:
    order = order_questions()
    assert set(order) == set(QUESTIONS)
    covered = {one for question in QUESTIONS.values() for one in question.course}
    assert covered <= set(COURSE)
    done = run("report", db=file)
    assert "Open questions" in done.stdout
    assert "A1: Time of single-head attention" in done.stdout, "this file has no attention cell"
    assert list_unanswered([]) == list(COURSE)


def test_the_shipped_report_on_the_h200_is_current() -> None:
    done = run("report", "--whole", db=FOLDER, code=0)
    written = (ROOT / "docs/h200-report.md").read_text()
    assert done.stdout == written, "python -m runner report --whole --db data/reference/h200 > docs/h200-report.md"


def test_a_terminal_gets_one_page_with_six_answers() -> None:
    """Through a pseudo-terminal of 80 columns; the numbers are those of the answers."""
    command = [sys.executable, "-m", "runner", "report", "--db", str(FOLDER)]
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (50, 80))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "dumb"}
    with subprocess.Popen(command, cwd=ROOT, stdout=side, stderr=side, env=environment) as process:
        os.close(side)
        text = b"".join(received(main))
    os.close(main)
    assert process.returncode == 0
    lines = text.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 150
    words = " ".join(" ".join(lines).split())
    for name in BRIEF:
        assert ask(name, shipped(*QUESTIONS[name].needs)).sentence.replace("**", "") in words
    assert "report --out report.md" in lines[-1]


def test_the_shipped_report_is_short_and_names_no_path_of_a_machine() -> None:
    written = (ROOT / "docs/h200-report.md").read_text()
    assert len(written.encode()) <= 60_000
    assert not re.search(r"(?<![\w.:/])/(?:home|root|tmp|work|data|usr|opt|mnt|srv|var|Users)\b", written)
    handout = next(line for line in written.splitlines() if line.startswith("**Handout.**"))
    assert f"answered here: {len(COURSE)} of {len(COURSE)} questions" in handout


@pytest.mark.soak
def test_latex_has_no_letter_that_pdflatex_lacks() -> None:
    done = run("report", "--format", "latex", db=FOLDER, code=0)
    assert not {letter for letter in done.stdout if ord(letter) > 127} - set("–—…“”’±µ°é")
