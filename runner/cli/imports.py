"""What an import says: the lines of what was understood and added; and results files of several machines joined into
one.

python -m runner import table.md --label 'their run'
python -m runner import h200.duckdb a100.duckdb results/ --db all.duckdb
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from runner.cli.terminal import Terminal, errors
from runner.errors import UsageError
from runner.formats import format_count
from runner.importers.files import describe_added, import_file
from runner.places import list_files
from runner.store.database import check_writable
from runner.store.merging import merge_files
from runner.store.packing import find_file, is_packed


def import_into(
    console: Terminal, file: Path, db: Path, *, label: str | None, mapping: Path | None, as_json: bool
) -> int:
    """Adds the file's rows and prints what became of them. Returns the exit code: 1 where a file, a table or a row that
    was wanted is not stored."""
    check_writable(db)
    report = import_file(file, db=db, label=label, mapping=mapping)
    if as_json:
        console.dump(asdict(report))
    for line in report.lines if not as_json else ():
        console.say(line)
    return 0 if report.is_whole else 1


def merge(
    console: Terminal, named: Sequence[Path], db: Path, *, label: str | None, mapping: Path | None, as_json: bool
) -> int:
    """Merges the files, and those of folders, into `db`, and imports the other files of folders; prints a line or an
    object for each. Returns the exit code: 0 if all were added, 1 if some were refused."""
    files = {
        file: path if is_packed(path) else file
        for path in named
        for file in _list_files(path)
        if not (path.is_dir() and os.path.realpath(file) == os.path.realpath(db))
    }
    folders = [path for path in named if path.is_dir() and not is_packed(path)]
    if not (files or folders):
        raise UsageError(f"There is no results file in {', '.join(map(str, named))}.", expected="files *.duckdb")
    if (label or mapping) and not folders:
        got = f"{'--label' if label else '--mapping'} came with results files only."
        raise UsageError(got, expected="none: their runs keep the labels they have", do="Leave it out.")
    check_writable(db)
    progress, done = errors if as_json else console, []
    for merged in merge_files(list(files), into=db):
        merged = replace(merged, source=files[merged.source])
        done.append(merged)
        is_refused = merged.refused is not None
        what = f"refused. {merged.refused}" if is_refused else describe_added(merged.added)
        progress.say(f"{merged.source}: {what}", style="red" if is_refused else None)
    others = {folder: import_file(folder, db=db, label=label, mapping=mapping, is_merged=True) for folder in folders}
    for line in (line for report in others.values() for line in report.lines):
        progress.say(line)
    if as_json:
        imported = [{"source": folder, **vars(report)} for folder, report in others.items() if report.lines]
        console.dump([*map(vars, done), *imported])
    refused, rows = sum(one.refused is not None for one in done), sum(sum(one.added.values()) for one in done)
    said = f"{format_count(len(files), 'results file')}, {format_count(rows, 'row')} added to {db}"
    progress.say(f"{said}{f', {refused} refused' if refused else ''}.")
    return 0 if not refused and all(report.is_whole for report in others.values()) else 1


def are_results(named: Sequence[Path]) -> bool:
    """Returns whether these are results files and folders of them, not one file alone, which may be of any kind."""
    if len(named) == 1 and not named[0].is_dir():
        return False
    return all(bool(_list_files(path)) if path.is_dir() else path.suffix == ".duckdb" for path in named)


def _list_files(path: Path) -> list[Path]:
    """Returns the results files of a path; what `export --parquet` wrote is one."""
    return [find_file(path)] if is_packed(path) else list_files(path)
