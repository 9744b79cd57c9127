"""The grid of a page: the places of its cells, the missing cells between them, and the commands for exactly those."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pages.ui.grid import missing, places
from runner.plan.commands import sweep_commands
from runner.schema import RunRow
from tests.synthetic import rows


def test_missing_cells_and_the_commands_for_exactly_those() -> None:
    """A row should have every length, and no command measures more."""
    of = rows.run()
    asked = [("fp32", 64), ("fp32", 128), ("fp32", 256), ("bf16", 128), ("fp16", 128)]
    cells = [_Asked(rows.asked("toy-64", precision=precision, context=context), of) for precision, context in asked]
    cells += [_Asked(rows.asked("toy-128", context=64), of)]
    gaps: list[Any] = missing(cells)
    assert {(gap.d_model, gap.precision, gap.context) for gap in gaps} == {
        (64, "bf16", 64), (64, "bf16", 256), (64, "fp16", 64), (64, "fp16", 256), (128, "fp32", 128), (128, "fp32", 256)
    }  # fmt: skip
    found = sweep_commands(gaps, fresh=False)
    assert len(found) == 2
    assert [place.row for place in places(cells)][:1] == ["fp32 · eager"]
    assert _planned(found) == {(gap.d_model, gap.precision, gap.context) for gap in gaps}


def test_a_model_without_a_length_has_no_missing_cells_and_no_column() -> None:
    of = rows.run()
    plain = [rows.asked("toy-64", context=context) for context in (64, 128)]
    own = replace(plain[0], context=0, model="vision.py:vit", model_key="0123456789abcdef", attention="own")
    cells = [_Asked(cell, of) for cell in (own, *plain, rows.asked("toy-64", context=64, precision="bf16"))]
    gaps: list[Any] = missing(cells)
    assert [(gap.model_key, gap.precision, gap.context) for gap in gaps] == [(None, "bf16", 128)]


class _Asked:
    """The part of a query's row that the grid uses."""

    def __init__(self, cell: Any, of: RunRow) -> None:
        self.cell, self.cell_id, self.status = cell, of.run_id, "ok"


def _planned(found: Sequence[str]) -> set[tuple[int, str, int]]:
    """Returns the cells of such commands, by their flags."""
    cells: set[tuple[int, str, int]] = set()
    for text in found:
        words = shlex.split(text)
        assert "--fresh" not in words, "cells that exist are not measured again"
        flags = dict(pair for pair in pairwise(words) if pair[0].startswith("--"))
        sizes, precisions, contexts = (flags[name].split(",") for name in ("--sizes", "--precisions", "--contexts"))
        asked = {(rows.TOYS[s]["d_model"], p, int(c)) for s in sizes for p in precisions for c in contexts}
        assert not asked & cells
        cells |= asked
    return cells
