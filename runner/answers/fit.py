"""Will it fit on this GPU, and how large may it be?

By the closed formulas, before there is a GPU. The error bars are those of the formulas on the measured peaks of the
file: what PyTorch had reserved over what was predicted, from the 5th to the 95th percentile.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from runner.analysis.costs import steps
from runner.analysis.costs.activations import CONTEXT_BYTES
from runner.answers.answer import Answer, Asked, Choice, Draw, Field, Guide, Question, Row, View, choose, verbatim
from runner.answers.words import write
from runner.errors import UsageError
from runner.formats import format_bytes, format_share
from runner.results.cells import Peak
from runner.results.rows import Rows
from runner.schema import StepCell
from runner.schema.sizes import SIZES, parse_shape

GPUS = Path(steps.__file__).with_name("gpus.csv")
PART = Field("part", "Part")
BYTES = Field("size_bytes", "Bytes", unit="bytes", role="value")
WAY = Field("way", "Numbers")
CHECKPOINTING = Field("checkpointing", "Checkpointing", doc="Blocks recomputed one by one in backward.")
#: The choices of what is predicted, with what they offer; a whole number of one's own is taken, too.
_OFFERED: Mapping[str, tuple[str, ...]] = {
    "size": tuple(SIZES),
    "context": tuple(str(128 * 2**power) for power in range(11)),
    "batch": tuple(str(2**power) for power in range(9)),
    "precision": ("bf16", "fp32"),
    "attention": ("sdpa", "naive"),
    "optimizer": ("fused", "foreach"),
}
_DEFAULTS = {"size": "small", "context": "1024", "batch": "4"}
#: How weights and products are held, by the precision and the dtype of the weights.
_WAYS = {"fp32": ("fp32", "fp32"), "bf16": ("bf16", "fp32"), "bf16 weights": ("bf16", "bf16")}
#: Assumed where the file has no measured peaks: the median of those of an H200.
USUAL_SHARE = 1.06
#: The largest batch and context that are looked for.
MOST = 2**20


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Bytes that PyTorch reserved over those predicted: median, 5th and 95th percentile, and the median error of the
    peak of live tensors. None where no peak was measured."""

    reserved: float = USUAL_SHARE
    low: float | None = None
    high: float | None = None
    peak: float | None = None
    cells: int = 0


@cache
def list_gpus() -> dict[str, int]:
    """Returns the memory of usual GPUs (bytes) by name, as PyTorch reports it."""
    with GPUS.open(newline="") as file:
        return {line["gpu"]: round(float(line["memory_gib"]) * 2**30) for line in csv.DictReader(file)}


def measure_errors(peaks: Sequence[Peak]) -> Errors:
    """Returns how far the formulas are off on the measured training steps of Stepscope's own models on CUDA."""
    known = [
        (one.peak_reserved_bytes / one.predicted_peak_bytes, one.peak_allocated_bytes / one.predicted_peak_bytes)
        for one in peaks
        if one.device == "cuda" and one.cell.mode == "train" and one.status == "ok" and one.cell.model_key is None
        if one.predicted_peak_bytes and one.peak_reserved_bytes and one.peak_allocated_bytes and not one.cell.timeline
    ]
    if len(known) < 2:
        return Errors()
    reserved = [share for share, _ in known]
    percentiles = quantiles(reserved, n=20, method="inclusive")
    return Errors(
        reserved=median(reserved),
        low=percentiles[0],
        high=percentiles[-1],
        peak=median(abs(share - 1) for _, share in known),
        cells=len(known),
    )


def find_largest(bytes_at: Callable[[int], int], room: float) -> int:
    """Returns the largest whole number up to MOST whose bytes fit into the room, 0 if none does. Bytes grow with the
    number, nearly along a line between its last power of two and the next, which is where the search tries."""
    low, high = 0, 1
    while bytes_at(high) <= room:
        low, high = high, 2 * high
        if low >= MOST:
            return MOST
    while high - low > 1:
        below = bytes_at(low) if low else 0
        guess = low + int((room - below) * (high - low) / (bytes_at(high) - below))
        guess = min(max(guess, low + 1), high - 1)
        if bytes_at(guess) > room:
            high = guess
        elif bytes_at(guess + 1) > room:
            return guess
        else:
            low = guess + 1
    return low


def count_bytes(cell: StepCell, name: str, gpu: str) -> Callable[[int], int]:
    """Returns the predicted peak of a cell (bytes) as a function of its batch or context."""

    @cache
    def bytes_at(count: int) -> int:
        changed: dict[str, Any] = {name: count}
        return steps.predicted_peak_bytes(replace(cell, **changed), gpu=gpu)

    return bytes_at


def answer(rows: Rows, asked: Asked) -> Answer:
    errors, gpus = measure_errors(rows.peaks), list_gpus()
    gpu = choose(asked, "gpu", "GPU", list(gpus), default="H200")
    choices = {name: _choose(asked, name) for name in _OFFERED}
    cell = _make_cell({name: choice.chosen for name, choice in choices.items()})
    room = gpus[gpu.chosen] - CONTEXT_BYTES
    peak = steps.predict_peak(cell, gpu=gpu.chosen)
    needed = round(peak.total * errors.reserved)
    words = " · ".join(
        (gpu.chosen, choices["size"].chosen, f"train, {cell.precision}, {cell.attention}, {cell.optimizer} AdamW")
    )
    at = f"batch {cell.batch}, {cell.context:,} tokens"
    parts = View(
        name="fit-peak",
        title=f"Predicted peak of a training step, {at}",
        about=words,
        fields=(PART, BYTES),
        rows=tuple(
            Row(values=(name.replace("_", " "), size))
            for name, size in (("peak", peak.total), ("reserved by PyTorch", needed), *peak.parts.items())
            if size
        ),
        draw=Draw(
            "bars",
            "size_bytes",
            down=("part",),
            guides=(Guide(words=f"room on the {gpu.chosen}: {format_bytes(room)}", at=float(room), is_limit=True),),
        ),
        note="Reserved: the peak times what PyTorch's allocator takes beside it. CUDA's own "
        f"{format_bytes(CONTEXT_BYTES)} are taken off the room.",
    )
    batches = _draw_largest("batch", f"at {cell.context:,} tokens", cell, gpu.chosen, room, errors, words)
    contexts = _draw_largest("context", f"at batch {cell.batch}", cell, gpu.chosen, room, errors, words)
    verdict = "fits" if needed <= room else "**does not fit**"
    error = (
        f" On {errors.cells} measured peaks the formula is off by {format_share(errors.peak)} in the median."
        if errors.peak is not None
        else " No measured peak in this file says how far the formula is off."
    )
    return Answer(
        sentence=f"A training step of **{verbatim(choices['size'].chosen)}** ({at}, {cell.precision}) peaks at "
        f"**{write(peak.total, 'bytes')}** and {verdict} on the {verbatim(gpu.chosen)} "
        f"({write(room, 'bytes')} of room).",
        more=error.strip(),
        views=(batches, contexts, parts),
        choices=(gpu, *choices.values()),
    )


def _choose(asked: Asked, name: str) -> Choice:
    """Returns the choice, of what is offered or of what was asked for: a whole number, or a shape written out."""
    wanted, offered = asked.get(name, ""), _OFFERED[name]
    is_number = name in ("context", "batch") and wanted.isdecimal() and 0 < int(wanted) <= MOST
    is_own = is_number or (name == "size" and _is_shape(wanted))
    options = (*offered, *((wanted,) if is_own and wanted not in offered else ()))
    label = "Size" if name == "size" else name.capitalize()
    prefix = f"{name} " if name in ("context", "batch") else ""
    return choose(asked, name, label, options, default=_DEFAULTS.get(name, ""), prefix=prefix)


def _is_shape(text: str) -> bool:
    try:
        return bool(parse_shape(text))
    except UsageError:
        return False


def _make_cell(chosen: Mapping[str, str]) -> StepCell:
    size = SIZES[chosen["size"]] if chosen["size"] in SIZES else parse_shape(chosen["size"])
    settings: dict[str, Any] = {
        **size.numbers,
        **{name: chosen[name] for name in ("precision", "attention", "optimizer")},
    }
    return StepCell(**settings, batch=int(chosen["batch"]), context=int(chosen["context"]), mode="train")


def _draw_largest(name: str, at: str, cell: StepCell, gpu: str, room: int, errors: Errors, words: str) -> View:
    """Returns the largest batch or context that fits, by how numbers are held, with and without checkpointing; low
    and high by what PyTorch reserves at most and at least."""

    found = []
    for words_of, (precision, weights) in _WAYS.items():
        for checkpointing, blocks in (("none", 0), ("every block", 1)):
            kind: dict[str, Any] = {"precision": precision, "weights_dtype": weights, "checkpoint_blocks": blocks}

            bytes_at = count_bytes(replace(cell, **kind), name, gpu)
            largest, *bounds = (
                find_largest(bytes_at, room / share) if share else None
                for share in (errors.reserved, errors.high, errors.low)
            )
            found.append(Row(values=(words_of, checkpointing, largest, *bounds)))
    unit = {"batch": "", "context": "tokens"}[name]
    return View(
        name=f"fit-largest-{name}",
        title=f"Largest {name} that fits, {at}",
        about=words,
        fields=(
            WAY,
            CHECKPOINTING,
            Field("largest", f"Largest {name}", unit=unit, role="value"),
            Field("low", "Low", unit=unit, role="low"),
            Field("high", "High", unit=unit, role="high"),
        ),
        rows=tuple(found),
        draw=Draw("matrix", "largest", down=("way",), across="checkpointing"),
        note=f"Looked for up to {MOST:,}.",
    )


QUESTION = Question(answer=answer, page="Memory", needs=("peaks",))
