"""The cards of what fits: the longest sequence of attention, the longest context and largest batch of a model.

    draw_frontier(frame, cells); draw_model_frontiers(frame)

Bars are results of `runner frontier`, each in the memory limit that it ran with.
"""

from collections.abc import Sequence
from typing import Any, Literal

import streamlit as st

from pages.figures.frame import label_values
from pages.figures.frontier import FrontierSpan, Grows, Tried, frontier_map
from pages.ui.card import Card, draw
from pages.ui.chosen import rows_of
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.sections import draw_heading
from pages.ui.states import suggest
from runner.analysis.compare.speedups import name_attention
from runner.formats import format_bytes, format_count, format_number
from runner.results import AttentionResult, Frontier
from runner.schema import FrontierCell
from runner.schema.axes import SHAPE
from runner.schema.sizes import SIZES, shape_name
from runner.store.queries.attention import load_frontiers

Model = Literal["context", "batch"]
#: The memory limit within which a CPU, which computes all that it tries, answers in minutes.
_CPU_LIMIT = "128MiB"
_MODEL_COMMAND = "python -m runner frontier --sizes small --precisions fp32,bf16 --grow {}"
#: The columns of a table that tell rows of one kind apart.
_KEYS = {
    "seq_len": ("implementation", "precision", "d_head", "causal", "batch", "limit_bytes"),
    "context": (*SHAPE, "implementation", "precision", "mode", "batch", "limit_bytes"),
    "batch": (*SHAPE, "implementation", "precision", "mode", "context", "limit_bytes"),
}
_NUMBERS = ("predicted", "largest", "smallest_failing", "largest_peak_bytes", "trials")
_TITLES: dict[Model, str] = {
    "context": "Longest context by size and precision",
    "batch": "Largest batch by size and precision",
}
_GROWS = {
    "seq_len": Grows(title="Sequence length (tokens)", unit="tokens", state="frontier"),
    "context": Grows(title="Context (tokens)", unit="tokens", state="frontier-context"),
    "batch": Grows(title="Batch (sequences)", unit="sequences", state="frontier-batch"),
}


def draw_frontier(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    """Draws how long a sequence fits, over the head width; `cells` are those of one precision and mask."""
    draw_heading(frame, "How long a sequence fits in memory?", anchor="frontier")
    masks = {cell.cell.causal for cell in cells}
    rows = [row for row in load_answers(frame, "seq_len") if row.cell.causal in masks]
    lost = {_name_cell(cell) for cell in cells if cell.status == "oom"}
    tried_cells = [cell for cell in cells if cell.status in ("ok", "oom") and _name_cell(cell) in lost]
    if not rows:
        words = f"The longest sequence that fits was not searched for {frame.where} with this mask."
        suggest(f"{words} This searches for it, by prediction and trial:", _make_sequence_command(cells))
        if not tried_cells:
            return
    words = describe_sequences(rows)
    if words:
        say(frame, words, of_cells(frame, rows), key="frontier")
    spans = [_make_span(row, group=_name_answer(row.cell), row=f"d {row.cell.d_head}") for row in rows]
    tried = [
        Tried(group=_name_cell(cell), row=f"d {cell.cell.d_head}", size=cell.cell.seq_len, fitted=cell.status == "ok")
        for cell in sorted(tried_cells, key=lambda cell: cell.cell.d_head)
    ]
    card = Card(
        key="frontier",
        folded=True,
        title="What fits, by sequence length and head width",
        note="The memory limit stands beside each name. Bars are results of "
        "`python -m runner frontier`; dots and crosses are cells of a sweep.",
        alt=f"Longest sequence that fits, for each head width. {words}",
        rows=[_make_row(row) for row in rows],
        cells=[cell.cell for cell in tried_cells],
    )
    draw(frame, card, lambda: frontier_map(spans, tried, grows=_GROWS["seq_len"]))


def draw_model_frontiers(frame: Frame) -> None:
    """Draws the longest context and the largest batch of whole models: a group a size, a row a precision."""
    answers_of = {grows: load_answers(frame, grows) for grows in _TITLES}
    if frame.own_models and not any(answers_of.values()):
        return  # the search knows Stepscope's own Transformer alone
    draw_heading(frame, "How large a step of a whole model fits?", anchor="model-frontier")
    for grows, answers in answers_of.items():
        if answers:
            _draw_model(frame, answers, grows)
    missing = [f"`{_MODEL_COMMAND.format(grows)}`" for grows, answers in answers_of.items() if not answers]
    if missing:
        st.caption(restrict(f"Not searched for {frame.where}: {', '.join(missing)}."))


def _draw_model(frame: Frame, rows: Sequence[Frontier], grows: Model) -> None:
    words = describe_models(rows, grows)
    say(frame, words, of_cells(frame, rows), key=f"frontier-{grows}")
    spans = [_make_span(row, group=_name_size(row.cell, grows), row=name_way(row.cell)) for row in rows]
    card = Card(
        key=f"frontier-{grows}",
        folded=True,
        title=_TITLES[grows],
        note=f"Measured by `{_make_model_command(rows, grows)}`; predicted by closed formulas.",
        alt=f"Largest {grows} that fits, for each size and precision. {words}",
        rows=[_make_row(row) for row in rows],
    )
    draw(frame, card, lambda: frontier_map(spans, [], grows=_GROWS[grows]))


def load_answers(frame: Frame, limited: str) -> list[Frontier]:
    return [
        row for row in frame.ask(load_frontiers, rows_of(frame)) if row.cell.limited == limited and row.status == "ok"
    ]


def _make_span(answer: Frontier, *, group: str, row: str) -> FrontierSpan:
    return FrontierSpan(
        group=group, row=row, fits=answer.largest or 0, fails=answer.smallest_failing, predicted=answer.predicted
    )


def _name_answer(cell: FrontierCell) -> str:
    return f"{cell.implementation} · {cell.precision} · {format_bytes(cell.limit_bytes)}"


def _make_sequence_command(cells: Sequence[AttentionResult]) -> str:
    """Returns the command that finds the longest sequence for the settings of these cells."""
    ran = [cell.cell for cell in cells if cell.status in ("ok", "oom")] or [cell.cell for cell in cells]
    ways, precisions = (
        ",".join(dict.fromkeys(str(getattr(cell, name)) for cell in ran)) for name in ("implementation", "precision")
    )
    widths = ",".join(str(width) for width in sorted({cell.d_head for cell in ran}))
    limit = f" --limit {_CPU_LIMIT}" if any(cell.device == "cpu" for cell in cells) else ""
    return f"python -m runner frontier --attention {ways} --precisions {precisions} --d-heads {widths}{limit}"


def _name_cell(cell: AttentionResult) -> str:
    """Returns the group of a measured cell, beside the answers in the same memory."""
    limit = format_bytes(cell.limit_bytes) if cell.limit_bytes else "measured"
    return f"{name_attention(cell.cell)} · {cell.cell.precision} · {limit}"


def _make_model_command(rows: Sequence[Frontier], grows: Model) -> str:
    """Returns the command that measures these rows again; only shapes with a name can be named in it."""
    sizes = dict.fromkeys(_name_shape(row.cell) for row in rows)
    precisions = dict.fromkeys(row.cell.precision for row in rows)
    if not SIZES.keys() >= sizes.keys():
        return "python -m runner frontier"
    return f"python -m runner frontier --sizes {','.join(sizes)} --precisions {','.join(precisions)} --grow {grows}"


def _name_shape(cell: FrontierCell) -> str:
    numbers: dict[str, int] = {name: getattr(cell, name) for name in SHAPE}
    return shape_name(**numbers)


def _name_size(cell: FrontierCell, grows: Model) -> str:
    other = f"batch {cell.batch}" if grows == "context" else f"context {cell.context:,}"
    return f"{_name_shape(cell)} · {cell.mode} · {other} · {format_bytes(cell.limit_bytes)}"


def name_way(cell: FrontierCell) -> str:
    """Returns the precision, and the implementation where it is not the plain one."""
    return cell.precision if cell.implementation == "naive" else f"{cell.precision} · {cell.implementation}"


def describe_sequences(rows: Sequence[Frontier]) -> str:
    """Says the longest sequence beside that of naive attention in the same memory, and how good predictions were."""
    if not rows:
        return ""
    best = max(rows, key=lambda row: row.largest or 0)
    limit = f"In {format_bytes(best.cell.limit_bytes)}, at head width {best.cell.d_head} and {best.cell.precision}"
    words = f"{limit}, {best.cell.implementation} fits **{best.largest or 0:,} tokens**"
    naive = _find_partner(rows, best, implementation="naive")
    if naive and naive.largest:
        words += f", naive {naive.largest:,}: **{format_number((best.largest or 0) / naive.largest)}× as long**"
    return words + _describe_predictions(rows)


def describe_search(rows: Sequence[Frontier]) -> str:
    """Says by how many trials the answers were found."""
    trials = sum(row.trials or 0 for row in rows)
    found = f"Found by {format_count(trials, 'trial')} with real allocations" if trials else "Found by real allocations"
    return f"{found}, within the memory that the search was given."


def describe_models(rows: Sequence[Frontier], grows: Model) -> str:
    """Says the largest model's best answer beside the same in fp32."""
    largest = max(rows, key=lambda row: (row.cell.d_model or 0) ** 2 * (row.cell.layers or 0)).cell
    same = [row for row in rows if all(getattr(row.cell, name) == getattr(largest, name) for name in SHAPE)]
    best = max(same, key=lambda row: row.largest or 0)
    what = f"a {best.cell.mode} step of {_name_shape(best.cell)} in {name_way(best.cell)}"
    words = f"In {format_bytes(best.cell.limit_bytes)}, {what} fits **{best.largest or 0:,} {_GROWS[grows].unit}**"
    plain = _find_partner(rows, best, precision="fp32", implementation="naive")
    if plain and plain.largest:
        words += f", fp32 {plain.largest:,}: **{format_number((best.largest or 0) / plain.largest)}×** as many"
    return words + _describe_predictions(rows)


def _find_partner(rows: Sequence[Frontier], of: Frontier, **changed: str) -> Frontier | None:
    """Returns the answer for the same memory that differs from `of` by `changed` alone; None if that is `of`."""
    wanted = {name: getattr(of.cell, name) for name in FrontierCell.names() if name != "step"} | changed
    same = (row for row in rows if all(getattr(row.cell, name) == value for name, value in wanted.items()))
    return next((row for row in same if row is not of), None)


def _describe_predictions(rows: Sequence[Frontier]) -> str:
    off = [abs((row.predicted or 0) / row.largest - 1) for row in rows if row.largest and row.predicted]
    if not off:
        return "."
    return f". Predictions were off by {f'at most {max(off):.0%}' if max(off) >= 0.01 else 'less than 1%'}."


def _make_row(row: Frontier) -> dict[str, Any]:
    key = label_values("frontier", row.cell, _KEYS[row.cell.limited])
    return {**key, **label_values("frontier", row, _NUMBERS)}
