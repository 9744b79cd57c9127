"""The rules of the repository: what is shown as Markdown, what a column must state, how things are named."""

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from runner.schema import TABLES, Table
from runner.schema.columns import SQL_TYPES
from runner.store.read import LOADERS
from tests.command import execute

ROOT = Path(__file__).parent.parent
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


def test_what_is_shown_as_markdown_is_a_constant_or_restricted() -> None:
    """A run's label must not become a link: `pages.markdown` defines which Markdown is allowed."""
    calls = ((path, call) for path in MODULES if path.parts[0] == "pages" for call in ast.walk(parsed(path)))
    for path, call in calls:
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=writer), attr=name), args=[first, *_]):
                if writer in WRITERS and name in MARKDOWN:
                    assert _is_safe(first), f"{path}:{call.lineno}: use restrict(…)"


def _is_safe(text: ast.expr) -> bool:
    """Returns whether it is a constant, a choice of them or a call of `restrict`; a widget's label may be a name."""
    match text:
        case ast.IfExp(body=one, orelse=other):
            return _is_safe(one) and _is_safe(other)
        case ast.Call(func=ast.Name(id=name)):
            return name == "restrict"
        case ast.JoinedStr(values=parts):
            return all(map(_is_safe, parts))
        case ast.FormattedValue(value=ast.Name(id=name)):  # a limit such as `{MAX_ROWS:,}`
            return name.isupper()
        case ast.Name(id=name):
            return name.isupper() or name == "label"
    return isinstance(text, ast.Constant)


def test_every_loader_has_a_name_of_its_own() -> None:
    """By its name a page remembers what it returned: two lambdas would be one."""
    names = [f"{loader.__module__}.{loader.__qualname__}" for loader in LOADERS.values()]
    assert len({*names}) == len(names)
    assert not [name for name in names if "<lambda>" in name]


def test_no_two_classes_share_a_name() -> None:
    """A `Row` is that of a table and that of a view."""
    nodes = (node for path in MODULES for node in ast.walk(parsed(path)))
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1] == ["Row"]


def test_every_file_has_a_docstring_and_a_name_of_the_domain() -> None:
    for path in MODULES:
        assert path.stem not in {"utils", "util", "common", "helpers", "misc"}
        found = parsed(path)
        assert not found.body or ast.get_docstring(found), f"{path}: the docstring of a file says what it is for"


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
    assert len({column.title for column in table.columns}) == len(table.columns), "a label means one thing in a table"


def test_the_type_checker_refuses_a_cell_that_lacks_its_key() -> None:
    lines = "from runner.schema import StepCell\nStepCell()"
    done = execute(sys.executable, "-m", "mypy", "--config-file=", "--strict", "-c", lines)
    assert 'Missing named argument "context" for "StepCell"' in done.stdout
