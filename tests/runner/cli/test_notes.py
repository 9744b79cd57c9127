"""`runner note`: notes about runs and cells are stored as rows, merged like rows, and retracted by another row."""

import shutil
from pathlib import Path

import pytest

from runner.cli.notes import MAX_NOTE
from runner.store.merging import merge
from runner.store.read.runs import load_contents, load_notes
from runner.store.read.selection import Selection
from runner.store.read.timed import load_steps
from tests.command import run
from tests.synthetic import rows


@pytest.fixture(scope="module")
def made(module_db: Path) -> Path:
    """Returns a file with three runs of the same cell: before, between and after."""
    for label in ("before", "between", "after"):
        rows.store(module_db, of := rows.run(label=label), [rows.ok(of, rows.asked())])
    return module_db


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def say(file: Path, *words: str) -> str:
    return run("note", *words, db=file, code=0).stdout


def test_a_note_is_added_listed_and_retracted(file: Path) -> None:
    assert "note “the fan was broken”" in say(file, "before", "the fan was broken")
    (cell,) = load_steps(file, Selection(run=load_contents(file).runs[-1].run_id))
    say(file, str(cell.cell_id)[:18], "this one, too")
    notes = load_notes(file)
    assert notes.of_cells == {cell.cell_id: ("this one, too",)}
    of_runs = [(one.run_id, one.text) for one in notes.notes if one.cell_id is None]
    assert of_runs == [(cell.run_id, "the fan was broken")]
    listed = say(file)
    assert "the fan was broken" in listed
    assert f"cell {cell.cell_id}" in listed
    say(file, "before", "--remove")
    assert all(one.cell_id for one in load_notes(file).notes)
    assert "this one, too" in say(file), "the notes of the cell were not retracted"
    assert "Nothing of the kind was said" in run("note", "before", "--remove", db=file, code=2).stdout


def test_a_run_has_a_name_tags_and_may_be_the_baseline(file: Path) -> None:
    say(file, "before", "--name", "old driver", "--tag", "h200", "--baseline")
    say(file, "old driver", "--tag", "slow")
    first = load_contents(file).runs[-1]
    assert (first.given, first.tags) == ("old driver", ("h200", "slow"))
    assert "old driver" in first.name
    assert all(word in run("show", "runs", db=file).stdout for word in ("old driver", "h200, slow"))
    end = first.run_id.hex[-6:]
    for words in (("show", "old driver"), ("show", end), ("note", end, "seen")):
        assert run(*words, db=file).returncode == 0, words


def test_a_hidden_run_does_not_count_until_it_is_shown_again(file: Path) -> None:
    (latest,) = load_steps(file, Selection())
    say(file, "after", "--hide")
    held = load_contents(file)
    assert [one.label for one in held.runs] == ["between", "before"]
    assert "hidden" in run("show", "runs", db=file).stdout
    assert "The run 'after' is hidden" in run("compare", "before", "after", db=file, code=2).stdout
    (cell,) = load_steps(file, Selection(hidden=tuple(held.notes.hidden)))
    assert cell.run_id == held.runs[0].run_id
    (chosen,) = load_steps(file, Selection(run=latest.run_id, hidden=tuple(held.notes.hidden)))
    assert chosen.run_id == latest.run_id, "its rows are still there"
    say(file, "after", "--hide", "--remove")
    assert [one.label for one in load_contents(file).runs] == ["after", "between", "before"]


@pytest.mark.soak
def test_notes_merge_as_rows_do(file: Path, tmp_path: Path) -> None:
    """A note that was retracted in one file is retracted in the other, whichever way they merge."""
    other = tmp_path / "other.duckdb"
    say(file, "before", "first")
    merge(file, into=other)
    say(other, "before", "second")
    say(file, "before", "first", "--remove")
    merge(other, into=file)
    merge(file, into=other)
    for path in (file, other):
        assert [note.text for note in load_notes(path).notes] == ["second"]
    assert merge(file, into=other) == {}


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("nosuch", "text"), "no run or cell is called so"),
        (("before", "   "), "The note is blank. Expected a text."),
        (("before", "x" * (MAX_NOTE + 1)), f"Expected at most {MAX_NOTE:,}"),
        (("before", "--name", "x" * 61), "Expected at most 60"),
    ],
)
def test_a_refused_note_changes_nothing(file: Path, words: tuple[str, ...], refused: str) -> None:
    assert refused in run("note", *words, db=file, code=2).stdout
    assert not load_notes(file).notes


def test_a_note_may_contain_any_text(file: Path) -> None:
    odd = "\x1b[31m<b>'; DROP TABLE notes; -- [x](http://a.example) \u202e| =1+1"
    assert "\x1b" not in say(file, "before", odd)
    (note,) = load_notes(file).notes
    assert note.text == odd
