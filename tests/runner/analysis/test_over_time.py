"""A cell over runs has a change between two successive runs that differ significantly, and nowhere else."""

from datetime import datetime, timedelta
from pathlib import Path

from pages.compare.over_time import describe_series
from pages.ui.markdown import plain
from runner.analysis.compare.over_time import CellSeries, find_changes
from runner.store.queries.over_time import load_repeated_cells, load_series
from tests.synthetic import rows

HERE = "Example CPU · bench1"


def measured(path: Path, *slower: float) -> Path:
    """Stores runs of one cell a day apart, each in three rounds, slower than the first by these factors."""
    for day, factor in enumerate(slower):
        started = datetime(2026, 1, 1) + timedelta(days=day)
        of = rows.run(label=f"day {day}", started_at=started, git_commit=f"{day % 2}abcdef")
        rows.store(path, of, [rows.ok(of, rows.asked(), round=number, slower=factor) for number in range(3)])
    return path


def read(path: Path) -> CellSeries:
    """Returns the series of the only cell of the file that several runs have measured."""
    (repeated,) = load_repeated_cells(path, HERE)
    return load_series(path, HERE, repeated.cell_key)


def test_a_change_is_found_where_the_time_changed(tmp_path: Path) -> None:
    path = measured(tmp_path / "r.duckdb", 1.0, 1.0, 0.8, 0.8, 1.0)
    series = read(path)
    assert len(series.points) == 5
    changes = find_changes(series.points)
    assert [change.after.run_name.split()[2:4] for change in changes] == [["day", "2"], ["day", "4"]]
    assert [round(change.ratio.ratio, 2) for change in changes] == [1.25, 0.8]
    words = plain(describe_series(series, changes))
    assert "in the first of 5 runs" in words
    assert "2 changes: 1.25× faster in 2026-01-03 00:00 day 2" in words
    assert "commit 1abcdef → 0abcdef" in words


def test_equal_runs_show_no_change(tmp_path: Path) -> None:
    series = read(measured(tmp_path / "r.duckdb", 1.0, 1.0, 1.0))
    assert not find_changes(series.points)
    assert "no run differs significantly" in describe_series(series, [])


def test_a_cell_of_one_run_has_no_series(tmp_path: Path) -> None:
    assert not load_repeated_cells(measured(tmp_path / "r.duckdb", 1.0), HERE)


def test_the_cells_of_most_runs_come_first_then_the_longest(tmp_path: Path) -> None:
    path = measured(tmp_path / "r.duckdb", 1.0, 1.0)
    for day in range(3):
        of = rows.run(label=f"later {day}", started_at=datetime(2026, 2, 1) + timedelta(days=day))
        asked = [rows.asked(context=64), *([rows.asked(context=1024)] if day else [])]
        rows.store(path, of, [rows.ok(of, cell) for cell in asked])
    found = load_repeated_cells(path, HERE)
    assert [(one.cell.context, one.runs) for one in found] == [(64, 3), (1024, 2), (rows.asked().context, 2)]
