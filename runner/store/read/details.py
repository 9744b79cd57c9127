"""What a few cells have beside their own row: tensors saved for backward, recorded timelines, the cost of a precision.

for one in load_saved(path, Selection()):
    print(one.cell, one.tensors[0].operation, one.tensors[0].size)
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from runner.results.rows import Precise, SavedCell, SavedTensor, TimelineDetails
from runner.schema import TABLES, AttentionCell, DtypeRow, MemoryCell
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, fetch_by
from runner.store.queries.memory import load_phase_peaks
from runner.store.queries.numerics import load_precisions, load_sensitivities
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import Selection
from runner.store.queries.steps import choose
from runner.store.queries.timelines import load_largest_at, load_marks, load_timelines

#: The largest allocations that are read of each timeline.
MAX_ALLOCATIONS = 12

_SAVED = """
    SELECT cell_id, operation, coalesce(module, '') AS module, tensor, shape || ' ' || dtype AS shape,
        storage_bytes AS size
    FROM saved_tensors SEMI JOIN chosen USING (cell_id) WHERE storage_bytes > 0 ORDER BY cell_id, position"""


def load_saved(path: Path, of: Selection) -> list[SavedCell]:
    """Returns the memory and attention cells that count and recorded what they keep for backward, tensor by tensor."""
    cells = list[SavedCell]()
    with open_reader(path) as reader:
        for table, kind in (("memory", MemoryCell), ("attention", AttentionCell)):
            choose(reader, table, of)
            tensors: dict[UUID, list[SavedTensor]] = fetch_by(reader, _SAVED, kind=SavedTensor, by=("cell_id",))
            keys = ", ".join(TABLES[table].key)
            query = f"SELECT cell_id, machine, {keys} FROM chosen WHERE list_contains(?, cell_id) ORDER BY {keys}"
            found = fetch(reader, query, [list(tensors)], kind=SavedCell, cell=kind)
            cells += [replace(one, tensors=tuple(tensors[one.cell_id])) for one in found]
    return cells


def load_recorded(path: Path, of: Selection) -> list[TimelineDetails]:
    """Returns the newest timeline of each title on each machine, with its phases and what was largest at its peak."""
    recorded = []
    for line in load_timelines(path, of.run, of.machine):
        begins = {name: at_us for at_us, name in reversed(load_marks(path, line.cell_id))}
        recorded.append(
            TimelineDetails(
                timeline=line,
                phases=tuple(load_phase_peaks(path, line.cell_id)),
                begins_us=begins,
                largest=tuple(load_largest_at(path, line.cell_id, line.peak_at_us, MAX_ALLOCATIONS, "recorded")),
            )
        )
    return recorded


def load_precise(path: Path, of: Selection) -> list[Precise]:
    """Returns every pass that was measured beside a reference, smallest model first, with its dtypes and statistics."""
    rows = load_precisions(path, of)
    dtypes: dict[UUID, list[DtypeRow]] = defaultdict(list)
    with open_reader(path) as reader:
        source = "dtypes WHERE list_contains(?, cell_id) ORDER BY cell_id, position"
        for one in fetch_rows(reader, DtypeRow, source, [[row.row.cell_id for row in rows]]):
            dtypes[one.cell_id].append(one)
    return [
        Precise(
            row=one.row,
            machine=one.machine,
            dtypes=tuple(dtypes[one.row.cell_id]),
            normalization=tuple(load_sensitivities(path, one.row.cell_id)),
        )
        for one in rows
    ]
