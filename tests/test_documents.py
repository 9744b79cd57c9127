"""What readers read is true: commands run or can be parsed, outputs stand in the real ones, names exist."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from runner.cli.main import app, console, make_command
from runner.cli.show import columns_markdown
from runner.plan.planning import PRESETS
from tests.command import ROOT, execute, run, run_line
from tests.runner.answers.shipped import FOLDER
from tests.synthetic import rows

#: What readers read, but for the report, which is written by a command.
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "h200-report.md"),
)
#: Documents whose commands together take a few seconds; `make soak` runs those of the others.
QUICK = ("README.md", "continuous-integration.md", "method.md")
#: Files that the documents name and a sweep makes.
MADE = ("data/results.duckdb", "data/results.duckdb.spool/")
#: Commands that need an hour, a server, a cluster or a repository: their options are parsed, and others test them.
PARSED = ("app", "ab", "tune", "--again", "--engine", "--on", "frontier", "--config", "--shard")
#: Files that the documents name and this test does not make.
NOT_MADE = ("cell.1.sqlite", "snapshot.pickle", "trace.json.gz")
#: The model of `docs/own-models.md`, whole.
TRAIN = """
import torch
def build(want):
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64))
    return model, torch.randint(64, (want.batch, want.context))
"""


def commands_of(path: Path) -> list[str]:
    """Returns every line with `stepscope` of a document's blocks, and what stands between backticks."""
    text = path.read_text()
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S)).replace("\\\n", " ").splitlines()
    lines = [line.partition("  # ")[0].rpartition("&& ")[2].strip() for line in lines]
    lines += re.findall(r"`(stepscope [^`]+)`", text.replace("\n", " "))
    return [line for line in lines if re.match(r"(\w+=\S+ )?stepscope ", line)]


def words_of(line: str) -> list[str]:
    words = shlex.split(line.partition(" > ")[0])
    return words[words.index("stepscope") + 1 :]


def test_every_command_of_the_documents_is_one_that_the_command_line_takes() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parsed = 0
    for path in DOCUMENTS:
        for words in map(words_of, commands_of(path)):
            if words[0].startswith("-") or "--help" in words:
                continue
            long = words[0] in ("sweep", "ab")
            command, rest = make_command(words[0]) if long else commands[words[0]], words[1:]
            while hasattr(command, "commands") and rest:
                command, rest = command.commands[rest[0]], rest[1:]
            if rest:  # a sentence may name a command alone
                command.make_context(words[0], rest)
            parsed += 1
    assert parsed > 50


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working folder of a reader: own rows under the labels of the documents, and the shipped ones."""
    before, after, other = rows.run(label="before"), rows.run(label="after"), rows.run(label="other", host="there")
    db = tmp_path / "results.duckdb"
    for of in (before, after):
        rows.store(db, of, [rows.ok(of, rows.asked()), rows.ok(of, rows.asked(precision="bf16"))])
    rows.store(tmp_path / "other.duckdb", other, [rows.ok(other, rows.asked())])
    (tmp_path / "sweep.toml").write_text('sizes = ["small"]')
    shutil.copytree(ROOT / "data/reference", tmp_path / "data/reference")
    (tmp_path / "theirs.md").write_text("| size | forward (ms) |\n|---|---|\n| small | 3 |\n")
    (tmp_path / "results").mkdir()
    shutil.copy(tmp_path / "other.duckdb", tmp_path / "results/node1.duckdb")
    for name in ("train.py", "nano.py"):
        (tmp_path / name).write_text(TRAIN)
    (tmp_path / "kernels.py").write_text("def attend(q, k, v, *, causal): ...\n")
    (tmp_path / "llama").mkdir()
    shutil.copy(ROOT / "tests/own/llama.json", tmp_path / "llama/config.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_DB", str(db))
    Path("theirs.toml").write_text(run_line("import", "theirs.md", "--propose").stdout)
    return tmp_path


def run_of(path: Path) -> Iterator[list[str]]:
    """Yields the words of what runs here: sweeps as plans."""
    for line in commands_of(path):
        words = words_of(line)
        names = {word for word in words if word.isupper() and word not in ("A", "B", "HEAD")}
        runs = len(words) > 1 and not names and not {*PARSED, *NOT_MADE} & {*words}
        if runs and not any("…" in word for word in words):
            yield [*words, "--dry-run"] if words[0] == "sweep" and "--dry-run" not in words else words


@pytest.mark.parametrize(
    "path",
    [path if path.name in QUICK else pytest.param(path, marks=pytest.mark.soak) for path in DOCUMENTS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_commands_of_the_documents_run(path: Path, folder: Path) -> None:
    for words in run_of(path):
        if path.name == "README.md" and words[0] in ("show", "compare"):
            continue  # of the shipped rows, below
        done = run_line(*words)
        assert done.returncode in (0, 1), f"{words}: {done.stdout}"
        assert "rror" not in done.stdout[:5], f"{words}: {done.stdout}"


def test_the_examples_of_every_help_run(folder: Path) -> None:
    """Those that need a repository, a server or a foreign file are parsed."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    examples = [(name, one) for name, one in commands.items() if one.epilog and not one.hidden]
    assert len(examples) == 13
    for name, command in examples:
        words = shlex.split(command.epilog.partition("Example: stepscope ")[2])
        assert words[0] == name
        if name in ("app", "ab", "import", "tune"):
            (make_command(name) if name == "ab" else command).make_context(name, words[1:])
            continue
        done = run_line(*words, *(["--dry-run"] if name == "sweep" else []))
        assert done.returncode in (0, 1), f"{words}: {done.stdout}"


def test_the_answers_of_the_readme_are_those_of_the_shipped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of an output below a command stands in its output at 80 columns."""
    monkeypatch.setattr(console, "width", 80)
    shown = re.findall(r"`stepscope ((?:show|compare) [^`]+)`[^`]*(?:`[^`]+`[^`]*)*?\n```text\n(.*?)```", README, re.S)
    assert len(shown) == 5
    for command, output in shown:
        lines = {line.rstrip() for line in run(*shlex.split(command), db=FOLDER).stdout.splitlines()}
        missing = [line for line in output.splitlines() if line and line not in lines]
        assert not missing, f"{command}: {missing}"


README = (ROOT / "README.md").read_text()


def test_the_readme_is_short_and_names_the_way_in() -> None:
    assert len(README.encode()) <= 8_000
    assert all(f"({path.relative_to(ROOT)})" in README for path in DOCUMENTS[1:])


def test_every_commit_of_the_contributors_page_touches_the_file_it_is_shown_for() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().replace("\n", " ")
    shown = re.findall(r"`(git log -p -1 (\w+) -- ([\w/.]+))`", text)
    assert len(shown) == 4, "a column, an experiment, an answer and a page"
    for command, _, file in shown:
        assert f"b/{file}" in execute(*shlex.split(command), code=0).stdout, command


def test_the_column_documentation_is_the_schema() -> None:
    assert (ROOT / "data/README.md").read_text() == columns_markdown(), "stepscope show columns > data/README.md"


def test_the_documents_name_every_command_and_preset() -> None:
    readme = "\n".join(path.read_text() for path in DOCUMENTS)
    commands = shlex.split("sweep show fit report ab compare note import export app doctor")
    for command in ("make demo", "make test", "streamlit run app.py", *(f"stepscope {name}" for name in commands)):
        assert command in readme, command
    assert all(f"`{name}`" in readme for name in PRESETS)


def test_the_documents_name_files_that_exist() -> None:
    for path in DOCUMENTS:
        text = path.read_text()
        linked = re.findall(r"\]\((?!http|#)([^)#]+)\)", text)
        assert all((path.parent / name).exists() for name in linked), path.name
        named = re.findall(r"`((?:runner|pages|tests|docs|data)/[\w/.-]+)`", text)
        missing = [name for name in named if not (ROOT / name).exists() and name not in MADE]
        assert not missing, f"{path.name}: {missing}"


def test_the_tree_of_the_contributors_page_is_true() -> None:
    """Every entry exists and every file is listed, down to the second level."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("```tree\n")[1].split("```")[0]
    named: list[str] = []
    top = ""
    for line in text.splitlines():
        name = line.split()[0].rstrip("/")
        inside = line.startswith(" ")
        top = top if inside else name
        named.append(f"{top}/{name}" if inside else name)
    tracked = execute("git", "ls-files", code=0).stdout.split()
    there = {"/".join(path.split("/")[:depth]) for path in tracked for depth in (1, 2)}
    not_told = ("__init__.py", "__main__.py")
    assert set(named) == {path for path in there if not path.startswith(".") and not path.endswith(not_told)}
    assert len(named) == len(set(named))
