"""Findings of the audit as the footnotes of one question.

notes = make_footnotes(rows, cells, "steps")
notes.marks(cell.cell_id)         # (1, 3)
notes.texts                       # ("wide interval (doubt), 19 of 27 cells. …", …)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from runner.analysis.audit.findings import Severity
from runner.analysis.audit.remedies import REMEDIES
from runner.analysis.audit.report import SEVERITIES
from runner.report.rows import Rows
from runner.results import Result
from runner.schema.titles import title


@dataclass(frozen=True, kw_only=True)
class Footnotes:
    """The footnotes, numbered from 1, and the numbers that apply to each cell."""

    texts: tuple[str, ...] = ()
    by_cell: dict[UUID, tuple[int, ...]]

    def marks(self, *cells: UUID) -> tuple[int, ...]:
        """Returns the numbers that apply to any of these cells."""
        return tuple(sorted({number for cell in cells for number in self.by_cell.get(cell, ())}))


def make_footnotes(
    rows: Rows, results: Sequence[Result], table: str, *, only: Collection[str] | None = None
) -> Footnotes:
    """Returns one footnote for each code of a finding, the most severe first, of those the most frequent; `only` names
    the codes that matter for what a table shows."""
    cells = {result.cell_id: result.cell for result in results}
    found = rows.findings(list({result.cell_id: result for result in results}.values()), table)
    groups: dict[tuple[Severity, str], list[tuple[UUID, str]]] = {}
    for cell_id, rounds in found.items():
        for finding in (one for findings in rounds for one in findings if only is None or one.code in only):
            groups.setdefault((finding.severity, finding.code), []).append((cell_id, finding.sentence))
    order = sorted(groups, key=lambda key: ([*SEVERITIES].index(key[0]), -len(groups[key]), key[1]))
    texts, by_cell, processes = [], dict[UUID, tuple[int, ...]](), sum(map(len, found.values()))
    for number, key in enumerate(order, start=1):
        marked = list(dict.fromkeys(cell_id for cell_id, _ in groups[key]))
        for cell_id in marked:
            by_cell[cell_id] = (*by_cell.get(cell_id, ()), number)
        cell_id, sentence = groups[key][0]
        where = _count(len(marked), len(found), len(groups[key]), processes)
        words = f"{key[1].replace('_', ' ')} ({key[0]}), {where}{title(cells[cell_id])}: {sentence}"
        texts.append(f"{words} What to do: {REMEDIES[key[1]].replace('`', '')}")
    return Footnotes(texts=tuple(texts), by_cell=by_cell)


def _count(marked: int, cells: int, rounds: int, processes: int) -> str:
    """Says of how many cells something was found and, where some have several rounds, of how many processes."""
    if rounds == 1:
        return "one cell, "
    of_processes = f" ({rounds:,} of {processes:,} processes)" if processes > cells else ""
    return f"{marked:,} of {cells:,} cells{of_processes}. For one, "
