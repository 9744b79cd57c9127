"""What an edition of the course's handout asks, by question, and which of its cells were measured.

    asked = ask_handout("2026", measured)["M2"]      # measured: the cells that have a row
    asked.problem, len(asked.cells), len(asked.missing)

The cells are those of the edition's preset. A cell counts as measured however long it was, but for the steps of the
warm-up ablation. Standard library only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.plan.planning import PRESETS
from runner.schema import (
    AccumulationCell,
    AttentionCell,
    Cell,
    MemoryCell,
    NumericsCell,
    ProfileCell,
    StepCell,
    config_of,
)


@dataclass(frozen=True)
class CourseQuestion:
    """A question of the handout: its problem and part, what it asks in short, and what its cells have; with an
    `experiment` those of its grids alone. Of an edition it holds the cells, and those of them that have no row."""

    problem: str
    words: str
    cell: type[Cell]
    having: Mapping[str, Any] = field(default_factory=dict)
    experiment: str = ""
    cells: tuple[Cell, ...] = ()
    missing: tuple[Cell, ...] = ()


_PEAK = {"timeline": (False,), "checkpoint_blocks": (0,), "mode": ("inference", "forward", "train")}
_RECORDED, _FP32, _BF16 = {"timeline": (True,)}, {"precision": ("fp32",)}, {"precision": ("bf16",)}
_NAIVE, _EAGER = {"implementation": ("naive",), **_FP32}, {"backend": ("eager",)}
_STEP = {**_FP32, **_EAGER, "warmup_steps": (5,)}
_PLAIN = _NAIVE | _EAGER
_Q = CourseQuestion
#: The questions of the handout by their ids.
COURSE: Mapping[str, CourseQuestion] = {
    "B1": _Q("benchmarking_script (b)", "Forward, backward and optimizer time of each size", StepCell, _STEP),
    "B2": _Q("benchmarking_script (b)", "Is the variability small?", StepCell, _STEP),
    "B3": _Q("benchmarking_script (c)", "What happens with 0, 1, 2 and 5 warm-up steps, and why?", StepCell,
             {"warmup_steps": (0, 1, 2)}),
    "K1": _Q("nsys_profile (a)", "Total forward time in the profiler; does it match the clock?", ProfileCell),
    "K2": _Q("nsys_profile (b)", "Which kernel takes the most GPU time, and how often is it called?", ProfileCell),
    "K3": _Q("nsys_profile (c)", "Which kernels besides matrix products matter?", ProfileCell),
    "K4": _Q("nsys_profile (d)", "How does the share of matrix products change from inference to a full step?",
             ProfileCell),
    "K5": _Q("nsys_profile (e)", "Softmax against matrix products inside attention: time and FLOPs", ProfileCell),
    "P1": _Q("mixed_precision_accumulation", "Four accumulations of 1000 × 0.01", AccumulationCell),
    "P2": _Q("benchmarking_mixed_precision (a), (b)", "dtypes under autocast; what in layer norm is sensitive",
             NumericsCell),
    "P3": _Q("benchmarking_mixed_precision (c)", "fp32 against bf16 for every size, forward and backward", StepCell,
             {**_STEP, "precision": ("fp32", "bf16"), "mode": ("train",)}, "mixed-precision"),
    "M1": _Q("memory_profiling (a)", "Memory timeline of inference and of a full training step", MemoryCell, _RECORDED),
    "M2": _Q("memory_profiling (b)", "Peak memory, forward and full step, per context", MemoryCell, _PEAK | _FP32),
    "M3": _Q("memory_profiling (c)", "The same under mixed precision", MemoryCell, _PEAK | _BF16),
    "M4": _Q("memory_profiling (d)", "Size of one residual-stream activation", MemoryCell, _PEAK | _FP32),
    "M5": _Q("memory_profiling (e)", "The largest allocations and the line of code they come from", MemoryCell,
             _RECORDED | {"mode": ("inference",)}),
    "M6": _Q("memory_profiling (f), gradient_checkpointing (b)",
             "Bytes saved for backward by one block; effect of checkpointing", MemoryCell,
             {**_FP32, "timeline": (False,), "mode": ("forward", "backward", "train")}),
    "A1": _Q("pytorch_attention", "Time of single-head attention by head width and length", AttentionCell, _PLAIN),
    "A2": _Q("pytorch_attention", "Memory before backward, its growth, and what runs out", AttentionCell, _PLAIN),
    "A3": _Q("pytorch_attention", "How to be rid of that memory", AttentionCell, _EAGER),
    "C1": _Q("torch_compile (a)", "Attention compiled against eager", AttentionCell, _NAIVE),
    "C2": _Q("torch_compile (b)", "The whole model compiled against eager", StepCell, {"backend": ("compiled",)}),
}  # fmt: skip
#: What the handout asks beside, and what each edition does: of one's own code, of several GPUs, and on paper.
_FLASH = "FlashAttention of one's own (flash_forward, flash_backward, flash_benchmarking)"
_DISTRIBUTED = (
    "distributed training (distributed_communication_single_node, naive_ddp, minimal_ddp_flat_benchmarking, "
    "ddp_overlap_individual_parameters, optimizer_state_sharding"
)
OUTSIDE: Mapping[str, str] = {
    "": "writing FlashAttention or a distributed training step of one's own",
    "2025": f"{_FLASH} and {_DISTRIBUTED}, ddp_overlap_bucketed, communication_accounting)",
    "2026": f"{_FLASH}, {_DISTRIBUTED}, fsdp, alternate_ring_all_reduce), the leaderboard, and what is answered on "
    "paper (gradient_checkpointing (a), the calculations for data, tensor and 2D parallelism)",
}


def cells_of_edition(edition: str, experiment: str = "") -> list[Cell]:
    """Returns the cells of the preset of an edition: of one experiment, or of all but the counterfactuals, which no
    handout asks for."""
    grids = dict(PRESETS[f"cs336-{edition}"].grids)
    del grids["counterfactuals"]
    of = [grids[experiment]] if experiment else grids.values()
    return [cell for each in of for grid in each for cell in grid.cells()]


def ask_handout(edition: str, measured: Iterable[Cell]) -> dict[str, CourseQuestion]:
    """Returns the questions of an edition by their ids, with their cells."""
    known = {_identify(cell) for cell in measured}
    found = {}
    for name, one in COURSE.items():
        cells = {_identify(cell): cell for cell in cells_of_edition(edition, one.experiment)
                 if isinstance(cell, one.cell)
                 and all(getattr(cell, column) in values for column, values in one.having.items())}  # fmt: skip
        missing = tuple(cell for key, cell in cells.items() if key not in known)
        problem = "not in this edition" if (edition, name) == ("2025", "M6") else one.problem
        found[name] = replace(one, problem=problem, cells=tuple(cells.values()), missing=missing)
    return found


def _identify(cell: Cell) -> tuple[Any, ...]:
    """Returns what is measured, how cold and with what recording; five warm-up steps are as good as more."""
    warmup = min(cell.warmup_steps, 5) if isinstance(cell, StepCell) else None
    return (*config_of(cell), warmup, isinstance(cell, MemoryCell) and cell.timeline)
