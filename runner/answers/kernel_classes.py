"""Which kinds of work beside matrix products matter, and how does it change from inference to training?"""

from collections.abc import Mapping, Sequence
from typing import Any

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.kernels import CLASS, PHASE, TOTAL, group_by_phase, split_time
from runner.answers.shared import about, cells_of, name_time, narrow, place_of, sizes_of
from runner.answers.words import CONTEXT, SIZE, lacks, plain_cells
from runner.formats import at_tokens, format_list, format_share
from runner.results.cells import CLASS_WORDS, KernelTrace
from runner.results.rows import Rows
from runner.schema import TABLES, Model, ProfileCell
from runner.schema.axes import MODEL

MODE = Field.of("profiles", "mode")
SHARE = Field("share", "Share", unit="%", role="value", doc="Of the GPU time of the phase.")
TOOK = Field("device_ms", "GPU time", unit="ms", role="note", doc="Per step, under the profiler.")
PRODUCTS = Field(
    "matmul_share",
    "Matrix products",
    unit="%",
    role="value",
    doc="Their share of the GPU time of all kernels of the step.",
)
WHOLE = Field("kernel_ms", "All kernels", unit="ms", role="note", doc="Per step, under the profiler.")
_MODES = ("inference", "forward", "backward", "train")


def answer(rows: Rows, asked: Asked) -> Answer:
    traced = [one for one in rows.traced if one.status == "ok" and one.parts]
    if not traced:
        return Answer(missing=lacks("no step was profiled", plain_cells(ProfileCell, "inference", "train")))
    sizes = sizes_of(traced)
    traced.sort(key=lambda one: _MODES.index(one.cell.mode))
    shown, choices = narrow(traced, asked, drawn=("size", "mode"))
    picked, size_choice = narrow(shown, asked, drawn=("mode",))
    size = sizes[Model.of(picked[0].cell)]
    kinds = _draw_kinds(picked, size, about(picked, "mode", more=["GPU time"]))
    free = (*MODEL, "mode", "context")  # whether the share rises depends on the context, too
    fixed = [name for name in TABLES["profiles"].question if name not in free]
    every = [one for one in traced if all(getattr(one.cell, name) == getattr(picked[0].cell, name) for name in fixed)]
    by_mode = _draw_modes(every, sizes, about(every, "mode", more=["GPU time"]))
    found = Answer(
        sentence=_say_modes(by_mode, size, picked[0].cell.context),
        more=_say_kinds(kinds),
        views=(kinds, by_mode),
        choices=(*size_choice, *choices),
        cells=cells_of(shown, every),
    )
    return name_time(found, traced)


def _draw_kinds(traced: Sequence[KernelTrace], size: str, words: str) -> View:
    return View(
        name="kernel-classes",
        title=f"{size}: each kind of work by mode and phase",
        about=words,
        fields=(MODE, PHASE, CLASS, SHARE, TOOK),
        rows=tuple(
            Row.of(one, one.cell.mode, phase, kind, share, took)
            for one in traced
            for phase, parts in group_by_phase(one.parts).items()
            for kind, took, share in split_time(parts)
        ),
        draw=Draw("bars", "share", down=("mode", "phase"), series="kernel_class", total=TOTAL, beside=("device_ms",)),
        note="A kernel counts in the phase that launched it; one fused of several operations as the heaviest of them.",
    )


def _draw_modes(traced: Sequence[KernelTrace], sizes: Mapping[Any, str], words: str) -> View:
    lines = []
    for one in traced:
        whole = sum(part.device_ms for part in one.parts)
        products = sum(part.device_ms for part in one.parts if part.kernel_class == "matmul")
        lines.append(Row.of(one, *place_of(one, sizes), one.cell.mode, products / whole, whole))
    order = [*dict.fromkeys(sizes.values())]
    return View(
        name="matmul-by-mode",
        title="Share of matrix products",
        about=words,
        fields=(SIZE, CONTEXT, MODE, PRODUCTS, WHOLE),
        rows=tuple(
            sorted(lines, key=lambda row: (_MODES.index(row.values[2]), order.index(row.values[0]), row.values[1] or 0))
        ),
        draw=Draw("matrix", "matmul_share", down=("size", "context"), across="mode"),
        note="Of the GPU time of all kernels of a step: inference, forward, forward and backward, the full step.",
    )


def _say_modes(view: View, size: str, context: int) -> str:
    shares: dict[tuple[str, int | None], dict[str, float]] = {}
    for row in view.rows:
        shares.setdefault(row.values[:2], {})[row.values[2]] = view.get(row, "matmul_share")
    known = shares[size, context or None]
    name = f"**{size}**{at_tokens(context)}"
    if not {"inference", "train"} <= known.keys():
        (mode, share) = next(reversed(known.items()))
        return f"Matrix products take **{format_share(share)}** of the GPU time of {name} in {mode}."
    before, after = known["inference"], known["train"]
    word = "fall" if after < before else "rise"
    text = f"From inference to a full AdamW step, matrix products {word} from **{format_share(before)}** to "
    text += f"**{format_share(after)}** of GPU time at {name}"
    both = [one for one in shares.values() if {"inference", "train"} <= one.keys()]
    same = sum((one["train"] < one["inference"]) == (after < before) for one in both)
    return f"{text}, as at {same} of {len(both)} sizes and contexts." if len(both) > 1 else f"{text}."


def _say_kinds(view: View) -> str:
    """Says what beside matrix products takes 1% or more of the first forward pass."""
    mode = view.rows[0].values[0]
    forward = [row for row in view.rows if row.values[:2] == (mode, "forward") and row.values[2] != TOTAL]
    products = sum(view.get(row, "share") for row in forward if row.values[2] == CLASS_WORDS["matmul"])
    others = sorted((row for row in forward if row.values[2] != CLASS_WORDS["matmul"]), key=lambda row: -row.values[3])
    named = [f"{row.values[2]} {format_share(row.values[3])}" for row in others if row.values[3] >= 0.01]
    if not named:
        return f"In the forward pass of {mode} nothing beside matrix products takes 1% of the GPU time."
    return f"In the forward pass of {mode}, beside matrix products ({format_share(products)}): {format_list(named)}."


QUESTION = Question(answer=answer, needs=("traced",), course=("K3", "K4"))
