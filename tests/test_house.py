"""The rules of the repository: what is shown as Markdown, what a column must state, what the documents must name."""

import ast
import re
import shlex
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import typer

from runner.cli.lists import columns_markdown
from runner.cli.main import app
from runner.experiments import EXPERIMENTS
from runner.plan.planning import PRESETS, QUESTIONS
from runner.schema import TABLES, Table
from runner.schema.columns import SQL_TYPES

ROOT = Path(__file__).parent.parent
#: What readers read, but for the report, which is written by a command.
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "h200-report.md"),
)
#: Files that the documents name and a sweep makes.
MADE = ("data/results.duckdb", "data/results.duckdb.spool/")
MODULES = sorted(path.relative_to(ROOT) for folder in ("runner", "pages") for path in (ROOT / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


#: Functions of Streamlit that show their first argument as Markdown.
MARKDOWN = (
    "badge", "caption", "checkbox", "download_button", "error", "expander", "feedback", "header", "info", "markdown",
    "popover", "radio", "segmented_control", "slider", "subheader", "success", "tabs", "title", "toast",
    "toggle", "warning", "write",
)  # fmt: skip
WRITERS = ("st", "column", "expander", "lead", "place", "said")


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "pages"], ids=str)
def test_what_is_shown_as_markdown_is_a_constant_or_restricted(path: Path) -> None:
    """A run's label must not become a link: `pages.markdown` defines which Markdown is allowed."""
    for call in ast.walk(parsed(path)):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=writer), attr=name), args=[first, *_]):
                if writer in WRITERS and name in MARKDOWN:
                    assert _is_safe(first), f"{path}:{call.lineno}: use restrict(…)"


def _is_safe(text: ast.expr) -> bool:
    """Returns whether it is a constant, a choice of constants or a call of `restrict`; a widget's label may be a
    name."""
    match text:
        case ast.IfExp(body=one, orelse=other):
            return _is_safe(one) and _is_safe(other)
        case ast.Call(func=ast.Name(id=name)):
            return name == "restrict"
        case ast.JoinedStr(values=parts):
            return all(isinstance(part, ast.Constant) or _is_limit(part) for part in parts)
        case ast.Name(id=name):
            return name.isupper() or name == "label"
    return isinstance(text, ast.Constant)


def _is_limit(part: ast.expr) -> bool:
    """Returns whether it is a limit such as `{MAX_ROWS:,}`."""
    return isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id.isupper()


def test_no_two_classes_share_a_name() -> None:
    """A `Row` is that of a table and that of a view."""
    nodes = (node for path in MODULES for node in ast.walk(parsed(path)))
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1] == ["Row"]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_file_has_a_docstring_and_a_name_of_the_domain(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}
    assert not text or ast.get_docstring(parsed(path)), "the docstring of a file says what it is for"


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_column_has_a_label_a_unit_and_a_meaning(table: Table) -> None:
    units = {"ms": "_ms", "bytes": "_bytes", "s": "_seconds", "tokens/s": "_per_s", "FLOP/s": "_per_s"}
    for column in table.columns:
        assert column.label, column.name
        assert column.doc.endswith("."), column.name
        assert column.type in SQL_TYPES
        for unit, suffix in units.items():
            named_so = column.name.endswith(suffix) or column.name == "seconds"
            assert not (column.unit == unit and not named_so), f"{column.name} is in {unit}"
        assert not column.name.endswith(("_ms", "_bytes", "_seconds")) or column.unit, column.name
    assert set(table.unique) <= {column.name for column in table.columns}


def test_the_type_checker_refuses_a_cell_that_lacks_its_key() -> None:
    lines = "from runner.schema import StepCell\nStepCell()"
    check = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "-c", lines]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 'Missing named argument "context" for "StepCell"' in done.stdout


def test_a_label_means_one_thing_in_a_table() -> None:
    for table in TABLES.values():
        labels = [column.title for column in table.columns]
        assert len(labels) == len(set(labels)), table.name


def test_experiments_questions_and_presets_name_the_same() -> None:
    names = [experiment.name for experiment in EXPERIMENTS]
    assert names == list(QUESTIONS)
    assert all(list(preset.grids) == names for preset in PRESETS.values())


def test_the_column_documentation_is_the_schema() -> None:
    assert (ROOT / "data/README.md").read_text() == columns_markdown(), "python -m runner list columns > data/README.md"


def test_the_documents_name_every_command_and_preset() -> None:
    readme = "\n".join(path.read_text() for path in DOCUMENTS)
    for command in (
        "make demo",
        "make test",
        "streamlit run app.py",
        *(
            f"runner {name}"
            for name in (
                "sweep",
                "list",
                "show",
                "report",
                "frontier",
                "compare",
                "note",
                "import",
                "export",
                "app",
                "doctor",
            )
        ),
    ):
        assert command in readme, command
    assert all(f"`{name}`" in readme for name in PRESETS)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8_000


def test_every_command_of_the_documents_is_one_that_the_command_line_takes() -> None:
    """Commands and options are parsed as they stand, and not run."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parsed = 0
    for path in DOCUMENTS:
        blocks = re.findall(r"```sh\n(.*?)```", path.read_text(), re.S)
        written = "\n".join(blocks).replace("\\\n", " ").splitlines()
        written += re.findall(r"`(python -m runner [^`]*)`", path.read_text())
        for line in written:
            words = shlex.split(line.rpartition("&& ")[2].partition(" > ")[0], comments=True)
            if words[:3] == ["python", "-m", "runner"] and words[3:] and "--help" not in words:
                command, rest = commands[words[3]], words[4:]
                while hasattr(command, "commands"):
                    command, rest = command.commands[rest[0]], rest[1:]
                if rest:  # a sentence may name a command alone
                    command.make_context(words[3], rest)
                parsed += 1
    assert parsed > 40


def test_the_documents_name_files_that_exist() -> None:
    for path in DOCUMENTS:
        text = path.read_text()
        linked = re.findall(r"\]\((?!http|#)([^)#]+)\)", text)
        assert all((path.parent / name).exists() for name in linked), path.name
        named = re.findall(r"`((?:runner|pages|tests|docs|data)/[\w/.-]+)`", text)
        missing = [name for name in named if not (ROOT / name).exists() and name not in MADE]
        assert not missing, f"{path.name}: {missing}"


def test_the_readmes_tree_is_true() -> None:
    """Every entry exists and every file is listed, down to the second level."""
    text = (ROOT / "README.md").read_text().split("```tree\n")[1].split("```")[0]
    named: list[str] = []
    top = ""
    for line in text.splitlines():
        name = line.split()[0].rstrip("/")
        inside = line.startswith(" ")
        top = top if inside else name
        named.append(f"{top}/{name}" if inside else name)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    there = {"/".join(path.split("/")[:depth]) for path in tracked for depth in (1, 2)}
    not_told = ("__init__.py", "__main__.py")
    assert set(named) == {path for path in there if not path.startswith(".") and not path.endswith(not_told)}
    assert len(named) == len(set(named))
