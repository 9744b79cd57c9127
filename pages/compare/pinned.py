"""The pair whose dot was clicked, sample by sample; the choice is kept in the link.

draw_pinned(frame, verdict)
"""

from dataclasses import replace
from pathlib import Path

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.samples import draw_attention_samples, draw_samples
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.verdict import SideResult, Verdict
from runner.results import AttentionResult
from runner.store.queries.attention import load_attention
from runner.store.queries.selection import Selection
from runner.store.queries.steps import find


def draw_pinned(frame: Frame, verdict: Verdict) -> None:
    """Draws the samples of the pinned cell, with a chooser for its partner; nothing where no cell of this verdict is
    pinned."""
    pinned = st.query_params.get("cell")
    pair = next((pair for pair in verdict.pairs if pinned in (str(pair.base.cell_id), str(pair.other.cell_id))), None)
    if pair is None or verdict.table == "memory":
        return
    if verdict.table == "steps":
        draw_samples(frame, [cell for side in (pair.other, pair.base) if (cell := frame.ask(find, side.cell_id))])
    else:
        _draw_attention(frame, pair)


def _load_all(path: Path, of: Selection) -> list[AttentionResult]:
    return load_attention(path, replace(of, settled=False))


def _draw_attention(frame: Frame, pair: Pair[SideResult]) -> None:
    ids = (pair.other.cell_id, pair.base.cell_id)
    cells = [cell for side in (pair.other, pair.base) for cell in frame.ask(_load_all, Selection(run=side.run_id))]
    draw_attention_samples(frame, [cell for cell in cells if cell.cell_id in ids])
