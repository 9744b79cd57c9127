"""Will it fit on this GPU, and how large may it be?

By the closed formulas, before there is a GPU, or by the bytes of an own model's step as counted on fake tensors. The
error bars are those of the formulas on the file's peaks with the same attention and optimizer, or on the shipped ones
where it has none, and of the counts on the shipped ones: what PyTorch had reserved over what was predicted, from the
5th to the 95th percentile.
"""

import csv
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from runner.analysis.costs import steps
from runner.analysis.costs.steps import CONTEXT_BYTES, workspace_bytes
from runner.answers.answer import Answer, Asked, Choice, Draw, Field, Guide, Question, Row, View, choose, verbatim
from runner.answers.words import write
from runner.errors import UsageError
from runner.experiments.models import check_model, has_formula
from runner.formats import format_bytes
from runner.results.cells import Peak, StepResult
from runner.results.rows import Rows
from runner.schema import ModelCell, StepCell
from runner.schema.own import WAYS, CountedStep
from runner.schema.sizes import SIZES, Size, parse_shape

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
    "weights": ("fp32", "bf16"),
    "attention": ("sdpa", "naive"),
    "optimizer": ("fused", "foreach"),
    "checkpoint": ("0", "1"),
}
_DEFAULTS = {"size": "small", "context": "1024", "batch": "4"}
#: The smallest of the whole numbers that are taken.
_LEAST = {"context": 16, "batch": 1, "checkpoint": 0}
#: Assumed where no peaks were measured: the median of those of an H200.
USUAL_SHARE = 1.06
#: The largest batch and context that are looked for.
MOST = 2**20
#: Threads that run products, each with a workspace of cuBLAS: the step's and autograd's.
WORKSPACES = 2


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Bytes that PyTorch reserved over those predicted: median, 5th and 95th percentile; and the error of the peak of
    live tensors, median and 95th percentile. None where no peak was measured. `low_cells` of the cells needed more than
    was predicted; `of` says in what they are alike."""

    reserved: float = USUAL_SHARE
    low: float | None = None
    high: float | None = None
    peak: float | None = None
    most: float | None = None
    cells: int = 0
    low_cells: int = 0
    of: str = ""


#: The errors of counts on fake tensors, by the shipped rows; a test counts again.
COUNTED = Errors(reserved=1.046, low=1.008, high=1.136, peak=0.00048, most=0.0036, cells=18, low_cells=18,
                 of=" of Llama, Mixtral and Qwen")  # fmt: skip
#: The predicted bytes of a step by part: of a way of holding numbers, with so many blocks recomputed together.
Parts = Callable[[str, int, int, int], Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A training step and how its bytes are known: `parts(way, checkpoint, batch, context)`. `longest` is the most
    tokens that its model takes, 0 for one without a length."""

    title: str
    way: str
    checkpoint: int
    batch: int
    context: int
    kind: str
    parts: Parts = lambda way, checkpoint, batch, context: {}
    longest: int = MOST
    has_blocks: bool = True

    @property
    def at(self) -> str:
        return f"batch {self.batch}" + (f", {self.context:,} tokens" if self.longest else "")


@cache
def list_gpus() -> dict[str, int]:
    """Returns the memory of usual GPUs (bytes) by name, as PyTorch reports it."""
    with GPUS.open(newline="") as file:
        return {line["gpu"]: round(float(line["memory_gib"]) * 2**30) for line in csv.DictReader(file)}


def measure_errors(rows: Rows, *kind: str) -> Errors:
    """Returns how far the formulas are off on the measured training steps of Stepscope's own models on CUDA, run
    eagerly: on those of a kind (attention, optimizer) or, where it has no two, on the others; without a kind on all.
    Those of the file count, or the shipped ones where it has no two."""
    own: Sequence[StepResult | Peak] = (*rows.steps, *rows.peaks)
    for measured in (own, rows.shipped):
        found = {
            (one.machine, *(getattr(one.cell, name) for name in ModelCell.names())): one
            for one in measured
            if one.status == "ok" and one.cell.mode == "train" and getattr(one.cell, "backend", "eager") == "eager"
            if has_formula(one.cell) and one.peak_reserved_bytes and one.peak_allocated_bytes
        }
        alike = [one for one in found.values() if kind in ((), (one.cell.attention, one.cell.optimizer))]
        peaks = alike if len(alike) > 1 else [one for one in found.values() if one not in alike]
        if len(peaks) > 1:
            break
    else:
        return Errors()
    predicted = [steps.predicted_peak_bytes(one.cell, gpu=one.machine) for one in peaks]
    reserved = [(one.peak_reserved_bytes or 0) / size for one, size in zip(peaks, predicted, strict=True)]
    shares = [(one.peak_allocated_bytes or 0) / size for one, size in zip(peaks, predicted, strict=True)]
    percentiles, off = quantiles(reserved, n=20, method="inclusive"), [abs(share - 1) for share in shares]
    origin = "" if measured is own else " that come with Stepscope"
    return Errors(
        reserved=median(reserved),
        low=percentiles[0],
        high=percentiles[-1],
        peak=median(off),
        most=quantiles(off, n=20, method="inclusive")[-1],
        cells=len(peaks),
        low_cells=sum(share > 1 for share in shares),
        of=f" of {'' if peaks is alike else 'others than '}{' and '.join(kind)} AdamW{origin}" if kind else "",
    )


def say_errors(errors: Errors) -> str:
    """Returns how far predictions are off, in a sentence."""
    if errors.peak is None or errors.most is None:
        return "No measured peak says how far the formula is off."
    how = "counts on fake tensors are" if errors is COUNTED else "the formula is"
    low = f"; too low on {errors.low_cells}, because the allocator rounds up" if errors.low_cells else ""
    return (
        f"On {errors.cells} measured peaks{errors.of} {how} off by {100 * errors.peak:.2g}% in the median, on 95% of "
        f"them by at most {100 * errors.most:.2g}%{low}."
    )


def answer(rows: Rows, asked: Asked) -> Answer:
    gpu = choose(asked, "gpu", "GPU", list(list_gpus()), default="H200")
    choices: dict[str, Choice] = {}
    for name, offered in _OFFERED.items():  # the size first, the precision before the weights
        most = _size(choices["size"].chosen).layers if name == "checkpoint" else MOST
        is_wide = name == "weights" and choices["precision"].chosen != "bf16"
        choices[name] = _choose(asked, name, offered[:1] if is_wide else offered, most)
    cell = _make_cell({name: choice.chosen for name, choice in choices.items()})
    errors = measure_errors(rows, cell.attention, cell.optimizer)

    def parts(way: str, checkpoint: int, batch: int, context: int) -> Mapping[str, int]:
        precision, weights = WAYS[way]
        kind: dict[str, Any] = {"precision": precision, "weights_dtype": weights, "checkpoint_blocks": checkpoint}
        asked = replace(cell, **kind, batch=batch, context=context)
        return steps.predict_peak(asked, gpu=gpu.chosen).parts

    step = Step(
        title=choices["size"].chosen,
        way="bf16 weights" if cell.weights_dtype == "bf16" else cell.precision,
        checkpoint=cell.checkpoint_blocks,
        batch=cell.batch,
        context=cell.context,
        kind=f"{cell.attention}, {cell.optimizer} AdamW",
        parts=parts,
    )
    return replace(describe(step, gpu.chosen, errors), choices=(gpu, *choices.values()))


def answer_counted(counted: CountedStep, step: Step, gpu: str) -> Answer:
    """Returns the answer for an own model whose step was counted; the parts of `step` are left out."""

    def parts(way: str, checkpoint: int, batch: int, context: int) -> Mapping[str, int]:
        found = counted.parts_at(way, checkpoint > 0, batch=batch, context=context)
        return {**found, "workspace": WORKSPACES * workspace_bytes(gpu)}

    longest = (counted.longest or MOST) if counted.has_context else 0
    step = replace(step, parts=parts, longest=longest, has_blocks=counted.has_blocks)
    return describe(step, gpu, COUNTED)


def describe(step: Step, gpu: str, errors: Errors) -> Answer:
    """Returns the answer for one step on one GPU, without choices."""
    room = list_gpus()[gpu] - CONTEXT_BYTES
    sizes = step.parts(step.way, step.checkpoint, step.batch, step.context)
    peak = sum(sizes.values())
    needed = round(peak * errors.reserved)
    how = f"{step.way}, {step.kind}{f', checkpointing {step.checkpoint}' if step.checkpoint else ''}"
    words = f"{gpu} · {step.title} · train, {how}"
    limit = Guide(words=f"room on the {gpu}: {format_bytes(room)}", at=float(room), is_limit=True)
    parts = View(
        name="fit-peak",
        title=f"Predicted peak of a training step, {step.at}",
        about=words,
        fields=(PART, BYTES),
        rows=tuple(
            Row(values=(name.replace("_", " "), size))
            for name, size in (("peak", peak), ("reserved by PyTorch", needed), *sizes.items())
            if size
        ),
        draw=Draw("bars", "size_bytes", down=("part",), guides=(limit,)),
        note="Reserved: the peak times what PyTorch's allocator takes beside it. CUDA's own "
        f"{format_bytes(CONTEXT_BYTES)} are taken off the room.",
    )
    batches = _draw_largest("batch", step, room, errors, words)
    contexts = _draw_largest("context", step, room, errors, words)
    verdict = "fits" if needed <= room else "**does not fit**"
    return Answer(
        question="fit",
        sentence=f"Training **{verbatim(step.title)}** ({step.at}, {how}) peaks at **{write(peak, 'bytes')}** and "
        f"{verdict} on the {verbatim(gpu)} (room: {write(room, 'bytes')}).",
        more=say_errors(errors),
        views=(batches, *((contexts,) if step.longest else ()), parts),
    )


def _choose(asked: Asked, name: str, offered: tuple[str, ...], most: int) -> Choice:
    """Returns the choice, of what is offered or of what was asked for: a whole number, or a shape written out."""
    wanted, least = asked.get(name, ""), _LEAST.get(name)
    is_number = least is not None and wanted.isdecimal() and least <= int(wanted) <= most
    is_own = is_number or (name == "size" and _is_shape(wanted))
    takes = "" if least is None else f"a whole number from {least} to {most:,}"
    options = (*offered, *((wanted,) if is_own and wanted not in offered else ()))
    label = "Size" if name == "size" else name.capitalize()
    prefix = f"{name} " if name in ("context", "batch", "weights", "checkpoint") else ""
    return replace(choose(asked, name, label, options, default=_DEFAULTS.get(name, ""), prefix=prefix), takes=takes)


def _is_shape(text: str) -> bool:
    try:
        check_size(text)
    except UsageError:
        return False
    return True


def check_size(text: str, **kind: str) -> None:
    """Raises UsageError for a size or shape that no model can have, or not with these other choices."""
    usual = {name: offered[0] for name, offered in _OFFERED.items()}
    check_model(_make_cell({**usual, "size": text, **kind}))


def _size(text: str) -> Size:
    return SIZES[text] if text in SIZES else parse_shape(text)


def _make_cell(chosen: Mapping[str, str]) -> StepCell:
    size = _size(chosen["size"])
    kind = {name: chosen[name] for name in ("precision", "attention", "optimizer")}
    numbers = {name: int(chosen[name.split("_")[0]]) for name in ("batch", "context", "checkpoint_blocks")}
    settings: dict[str, Any] = {**size.numbers, **kind, "weights_dtype": chosen["weights"], **numbers}
    return StepCell(**settings, mode="train")


def _draw_largest(name: str, step: Step, room: int, errors: Errors, words: str) -> View:
    """Returns the largest batch or context that fits, by how numbers are held, with and without checkpointing; low
    and high by what PyTorch reserves at most and at least."""
    most = step.longest if name == "context" else MOST
    at = f", at batch {step.batch}" if name == "context" else f", at {step.context:,} tokens" if step.longest else ""
    found = []
    for way in WAYS:
        for checkpointing, blocks in (("none", 0), *((("every block", 1),) if step.has_blocks else ())):

            @cache
            def bytes_at(count: int, way: str = way, blocks: int = blocks) -> int:
                batch, context = (count, step.context) if name == "batch" else (step.batch, count)
                return sum(step.parts(way, blocks, batch, context).values())

            largest, *bounds = (  # bytes grow with the number, so that so many numbers from 1 on fit
                bisect_right(range(1, most + 1), room / share, key=bytes_at) if share else None
                for share in (errors.reserved, errors.high, errors.low)
            )
            found.append(Row(values=(way, checkpointing, largest, *bounds)))
    unit = {"batch": "", "context": "tokens"}[name]
    return View(
        name=f"fit-largest-{name}",
        title=f"Largest {name} that fits{at}",
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
        note=f"Looked for up to {most:,}.",
    )


QUESTION = Question(answer=answer, needs=("peaks", "steps", "shipped"), of_file=True)
