"""Finds a cell of the file by its id or the beginning of it, with the file's times of it.

stored = find_stored(path, "01a2037e-c114")
print(stored.row.cell_id, [medians["step"] for medians in stored.rounds], stored.times["step"].low_ms)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from runner.errors import UsageError
from runner.results import PhaseTime
from runner.schema import TABLES, AttentionRow, Phase, RunRow, StepRow
from runner.schema.sizes import title
from runner.store.database import open_reader
from runner.store.read.fetch import fetch_rows
from runner.store.read.selection import MACHINE
from runner.store.read.timed import load_times

#: The tables whose cells can be replayed, because a median is what is compared.
REPLAYED: tuple[type[StepRow | AttentionRow], ...] = (StepRow, AttentionRow)
#: The most cells that a message names.
MAX_NAMED = 4
_ID = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """A row, its run, the medians (ms) by phase of each round of the cell in that run that ended ok, and the times over
    these rounds with the noise of the machine."""

    row: StepRow | AttentionRow
    run: RunRow | None
    rounds: tuple[Mapping[Phase, float], ...]
    times: Mapping[Phase, PhaseTime]


def find_stored(path: Path, cell: str) -> StoredCell:
    """Returns the row of steps or attention whose id begins with `cell`, with or without dashes. Raises UsageError for
    text that is no id, for no such row or several, and for rows of other tables."""
    beginning = cell.strip().replace("-", "").lower()
    if not _ID.fullmatch(beginning):
        raise UsageError(f"{cell!r} is no cell.", expected="the id of a row of steps or attention, or its beginning")
    with open_reader(path) as reader:
        found = [row for kind in REPLAYED for row in fetch_rows(reader, kind, *_select_beginning(kind, beginning))]
        if not found:
            raise _explain_missing(reader, cell, beginning)
        if len(found) > 1:
            raise _explain_ambiguous(cell, found)
        (row,) = found
        runs = fetch_rows(reader, RunRow, "runs WHERE run_id = ?", [row.run_id])
        table = _name(type(row))
        reader.execute(_CHOSEN.format(table=table), {"run": row.run_id, "key": row.cell_key})
        rounds = reader.execute(_ROUNDS).fetchall()
        times = load_times(reader, table)
    return StoredCell(
        row=row,
        run=runs[0] if runs else None,
        rounds=tuple(medians for (medians,) in rounds),
        times=next((found for _, found in times.values()), {}),
    )


#: The rounds of one cell; where a round was tried again, the last try counts.
_CHOSEN = f"""
    CREATE OR REPLACE TEMP TABLE chosen AS
    SELECT s.run_id, s.cell_id, s.cell_key, s.round, s.status, {MACHINE} AS machine
    FROM {{table}} s LEFT JOIN runs r USING (run_id) WHERE s.run_id = $run AND s.cell_key = $key AND s.status = 'ok'
    QUALIFY row_number() OVER (PARTITION BY s.round ORDER BY s.cell_id DESC) = 1"""
_ROUNDS = """
    SELECT map_from_entries(list((phase, median_ms))) FROM chosen JOIN timings USING (cell_id)
    WHERE median_ms IS NOT NULL GROUP BY cell_id, round ORDER BY round"""
_BEGINS = "starts_with(replace(cell_id::VARCHAR, '-', ''), ?)"


def _select_beginning(kind: type[StepRow | AttentionRow], beginning: str) -> tuple[str, list[str]]:
    return f"{_name(kind)} WHERE {_BEGINS} ORDER BY cell_id LIMIT {MAX_NAMED + 1}", [beginning]


def _name(kind: type[StepRow | AttentionRow]) -> str:
    return next(name for name, table in TABLES.items() if table.row is kind)


def _explain_missing(reader: duckdb.DuckDBPyConnection, cell: str, beginning: str) -> UsageError:
    others = " UNION ALL ".join(
        f"SELECT '{table.name}' AS name, cell_id FROM {table.name} WHERE {_BEGINS.replace('?', '$beginning')}"
        for table in TABLES.values()
        if table.key
    )
    other = reader.execute(f"SELECT name FROM ({others}) LIMIT 1", {"beginning": beginning}).fetchone()
    if other:
        return UsageError(
            f"{cell} is a row of {other[0]}.",
            expected="a row of steps or attention, the tables whose times can be replayed",
            do="`runner sweep --fresh` measures any cell again.",
        )
    return UsageError(
        f"No cell has an id that begins with {cell}.",
        expected="the id of a row of steps or attention, or its beginning",
        do="`runner show --findings` prints those of a run, and tables on pages list them.",
    )


def _explain_ambiguous(cell: str, found: Sequence[StepRow | AttentionRow]) -> UsageError:
    names = [f"{row.cell_id} ({title(row)})" for row in found[:MAX_NAMED]]
    more = " and others" if len(found) > MAX_NAMED else ""
    return UsageError(
        f"{cell} is the beginning of several ids: {', '.join(names)}{more}.", expected="the beginning of one alone"
    )
