"""`ab` through the real command in a real repository: a slower version, an equal one, and what is refused."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from tests.command import PATIENCE_S, ROOT, execute, rows, run, run_json, start

MODEL = """
import torch
from torch import nn
LAYERS = 2

def build(want):
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(LAYERS)))
    return model, torch.randn(want.batch, 256), lambda out: out.square().mean()
"""
QUICK = shlex.split("--device cpu --modes train --precisions fp32 --batch 64 --max-steps 10 --budget 20s")
#: What is committed after the first version, by branch.
VERSIONS = {
    "slow": MODEL.replace("LAYERS = 2", "LAYERS = 32"),
    "equal": MODEL,
    "late": MODEL.replace("want.batch, 256", "want.batch, 250"),
    "broken": MODEL.replace("def build(want):", "def build(want):\n    raise ValueError('no weights')"),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "net.py").write_text(MODEL)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    commit(folder, "first")
    for branch, text in VERSIONS.items():
        git(folder, "checkout", "--quiet", "-b", branch, "main")
        (folder / "net.py").write_text(text)
        (folder / "README").write_text(branch)
        git(folder, "add", ".")
        commit(folder, branch)
    git(folder, "checkout", "--quiet", "main")
    return folder


def git(folder: Path, *words: str) -> str:
    return execute("git", *words, cwd=folder, code=0).stdout


def commit(folder: Path, text: str) -> None:
    git(folder, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", text)


def test_a_slower_commit_is_found_and_the_tree_stays_as_is(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 times the layers take longer in every round, with other work too. Both commits share the rounds of a run."""
    (repository / "net.py").write_text("this is not committed")
    monkeypatch.chdir(repository)
    words = ("main", "slow", "--model", "net.py:build", "--budget", "2m")
    found = run_json("ab", *QUICK, *words, db=repository.parent / "ab.duckdb", code=1)
    assert re.fullmatch(r"main@[0-9a-f]{7}/net\.py:build", found["a"])
    assert re.fullmatch(r"slow@[0-9a-f]{7}/net\.py:build", found["b"])
    assert [row["verdict"] for row in found["rows"]] == ["slower"]
    measured = rows(repository.parent / "ab.duckdb", "SELECT run_id, model, round, status FROM steps")
    assert len({one["run_id"] for one in measured}) == 1
    rounds = {model: sorted(one["round"] for one in measured if one["model"] == model) for model in found.values()
              if isinstance(model, str) and "@" in model}  # fmt: skip
    assert len(rounds) == 2
    assert all(numbers == list(range(len(numbers))) and len(numbers) >= 3 for numbers in rounds.values())
    [run] = rows(repository.parent / "ab.duckdb", "SELECT argv FROM runs")
    assert "uncommitted changes are in neither" in run["argv"]
    assert (repository / "net.py").read_text() == "this is not committed"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("main", "equal", "--model", "net.py:build"), 0, "have the same source: there is nothing to measure"),
        pytest.param(("main", "broken", "--model", "net.py:build"), 2, "no weights", marks=pytest.mark.soak),
        pytest.param(("main", "late", "--model", "net.py:build"), 2, "error in forward", marks=pytest.mark.soak),
        (("main", "nowhere", "--model", "net.py:build"), 2, "'nowhere'"),
        (("main", "main", "--model", "net.py:build"), 2, "main and main are both commit"),
        (("main", "slow", "--model", "other.py:build"), 2, "main has no file other.py"),
        (("main", "slow"), 2, "--model was given 0 times"),
        (("--precisions", "fp32", "--against", "int4"), 2, "--against got 'int4'. Expected another value of an option"),
        (("--experiment", "frontier", "--against", "bf16"), 2, "--experiment got 'frontier'. Expected some of"),
        (("--model", "net.py:build"), 2, "ab was given no two refs"),
        (("main", "slow", "--model", "net.py:build", "--against", "net.py:build"), 2, "--against was given with two"),
    ],
)
def test_what_is_not_measured(
    repository: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(repository)
    done = run("ab", *QUICK, *words, db=repository.parent / "ab.duckdb")
    assert (done.returncode, said in re.sub(r"\s+", " ", done.stdout)) == (code, True), done.stdout
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.soak
def test_two_files_are_compared_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(VERSIONS["slow"])
    Path("new.py").write_text(MODEL)
    found = run_json("ab", *QUICK, *("--model", "old.py:build", "--against", "new.py:build"), db=tmp_path / "ab.duckdb")
    assert (found["a"], found["b"]) == ("old.py:build", "new.py:build")
    assert [row["verdict"] for row in found["rows"]] == ["faster"]
    [ratio] = [clock["ratio"] for clock in found["rows"][0]["clocks"].values()]
    assert ratio > 1.5


@pytest.mark.soak
def test_two_values_of_an_option_are_compared(db: Path) -> None:
    words = ("ab", *QUICK, "--sizes", "toy-64", "--attention", "naive", "--against")
    found = run_json(*words, "sdpa", "--contexts", "16", db=db, code=None)  # which of them is slower is open
    assert (found["a"], found["b"]) == ("naive", "sdpa")
    (row,) = found["rows"]
    assert min(row["rounds"].values()) >= 3  # the canary, one of the two, is measured once more
    assert "A and B are both naive" in run(*words, "naive", db=db, code=2).stdout


def test_cells_of_one_side_are_named_and_of_both_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other version raises at 32 tokens once it is measured. What both have is printed, and every row is kept."""
    folder = tmp_path / "here"
    folder.mkdir()
    model = MODEL.replace("want.batch, 256", "want.batch, want.context, 256")
    late = "lambda out: out.square().mean() if out.is_meta or want.context < 32 else out[99, 0]"
    (folder / "old.py").write_text(model)
    (folder / "new.py").write_text(model.replace("lambda out: out.square().mean()", late))
    monkeypatch.chdir(folder)
    words = ["--model", "old.py:build", "--against", "new.py:build", "--contexts", "16,32", "--json"]
    done = CliRunner().invoke(app, ["ab", *QUICK, *words, "--db", str(tmp_path / "ab.duckdb")])
    assert done.exit_code == 2, done.stderr
    found = json.loads(done.stdout)
    assert [row["verdict"] for row in found["rows"] if row["cell"]["context"] == 16] != []
    assert [cell["why"] for cell in found["left_out"]] == ["error in loss"]
    assert "Not measured in both versions: new@" in done.stderr
    assert "from new.py:build: error" in done.stderr
    kept = rows(tmp_path / "ab.duckdb", "SELECT context, status FROM steps")
    assert sorted({(one["context"], one["status"]) for one in kept}) == [(16, "ok"), (32, "error"), (32, "ok")]


def test_a_budget_without_a_cell_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    words = ("--attention", "naive", "--against", "sdpa", "--sizes", "toy-64", "--contexts", "16")
    done = run("ab", *QUICK, *words, "--budget", "0.01s", db=tmp_path / "ab.duckdb", code=2)
    assert "No cell was measured from both versions. Expected a longer --budget" in " ".join(done.stdout.split())


@pytest.mark.soak
def test_interrupted_it_keeps_its_rows_and_removes_the_worktrees(repository: Path) -> None:
    db = repository.parent / "ab.duckdb"
    words, where = ("--model", "net.py:build", *QUICK[:-2]), {"PYTHONPATH": str(ROOT)}
    with start("ab", "main", "slow", *words, db=db, env=where, cwd=repository, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "[1/" in line or "[ 1/" in line:
                process.send_signal(signal.SIGINT)
                break
        said += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert rows(db, "SELECT status FROM steps") == [{"status": "ok"}] * len(rows(db, "SELECT status FROM steps"))
    assert rows(db, "SELECT status FROM steps")
