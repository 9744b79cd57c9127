"""Notes are shown literally with their run or cell, and hidden runs are on no page."""

from pathlib import Path

import pandas as pd
import pytest

from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.cli.notes import NoteOptions, note
from runner.cli.terminal import Terminal
from runner.report.report import load_report
from runner.report.rows import Scope
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.synthetic import rows

ODD = "[press](http://a.example) **now** $x$ <img src=x onerror=alert(1)>"
SHOWN = r"\[press\](http\:"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with two runs of the same cell, one of them the baseline, and a hidden run that is faster than
    both."""
    path, console = tmp_path_factory.mktemp("notes") / "results.duckdb", Terminal(width=160)
    for label, precision in (("before", "fp32"), ("after", "fp32"), ("secret", "bf16")):
        of = rows.run(label=label)
        rows.store(path, of, [rows.ok(of, rows.asked(precision=precision), round=number) for number in range(3)])
    (cell,) = load_steps(path, Selection(run=load_contents(path).runs[1].run_id))
    for asked in (
        NoteOptions(about="before", text=ODD, name="old <b>", tag="h200", baseline=True),
        NoteOptions(about=str(cell.cell_id), text=f"cell {ODD}"),
        NoteOptions(about="secret", hide=True),
    ):
        note(console, asked, db=path)
    return path


def visit_words(file: Path, address: str) -> str:
    """Returns all words of a page, including those of its tables."""
    visit = Visits(file).visit(address, {})
    found = [getattr(node, "value", "") for node in nodes(visit.main)]
    return " ".join(one.to_csv() if isinstance(one, pd.DataFrame) else str(one) for one in found)


def test_overview_has_notes_tags_and_what_changed_since_the_baseline(file: Path) -> None:
    words = visit_words(file, "overview")
    assert SHOWN in words
    assert "h200, baseline" in words
    assert "From the baseline old <b>" in plain(words)
    assert "is as fast as" in words
    assert "secret" not in words
    assert "1 run hidden" in words
    assert "with fp32, eager" in words
    assert "with bf16, eager" not in words, "no row of the hidden run counts"


def test_a_note_of_a_cell_is_on_the_pages_that_show_the_cell(file: Path) -> None:
    assert f"cell {SHOWN}" in visit_words(file, "training-step")
    assert SHOWN in visit_words(file, "compare")


def test_reports_have_the_notes_of_their_runs(file: Path) -> None:
    report = load_report(file, Scope())
    notes = [text for name, text in report.facts if name == "Note"]
    assert len(notes) == 2
    assert all(ODD in text for text in notes)
