"""The experiments' questions, and the presets: named plans, made of grids.

    python -m runner list presets

A preset holds, for each experiment, one or more grids. The first of a table is the experiment's own: alone it is what
is asked once a user sets an axis. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runner.plan.grids import (
    AccumulationGrid,
    AttentionGrid,
    Grid,
    MemoryGrid,
    NumericsGrid,
    ProfileGrid,
    StepGrid,
    Variants,
)


def _ablation(grid: StepGrid) -> StepGrid:
    """The same cells after 0, 1, 2 and 5 warm-up steps, with exactly ten measured ones, to compare."""
    return replace(grid, warmup=(0, 1, 2, 5), steps=10, max_steps=0)


def _recorded(grid: MemoryGrid) -> MemoryGrid:
    """A timeline of one inference and one training step of each size."""
    return replace(
        grid, modes=("inference", "train"), precisions=("fp32",), contexts=grid.contexts[:1], timeline=(True,)
    )


def _fused(grid: AttentionGrid) -> tuple[AttentionGrid, ...]:
    """The fused kernels where each exists, and beside them the naive cells that they are compared with."""
    return (
        replace(grid, attention=("naive", "sdpa-efficient")),
        replace(grid, attention=("naive", "sdpa-flash"), precisions=("bf16",)),
    )


def _changed(grid: StepGrid, *more: StepGrid) -> tuple[Variants]:
    """The same step with one thing changed at a time, with everything that may help at once, and whatever `more` there
    is. What is not compiled comes first; the grid itself is among them."""
    half = replace(grid, precisions=("bf16",))
    fused = replace(half, attention=("sdpa",), optimizers=("fused",), weights=("fp32",))
    changed = (
        replace(grid, precisions=("fp32", "tf32", "bf16")),
        replace(half, weights=("bf16",)),
        replace(grid, attention=("sdpa",)),
        replace(grid, optimizers=("fused",)),
        replace(grid, backends=("cuda-graphs",)),
        fused,
    )
    return (Variants(grids=(*changed, *more)),)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named plan: for each experiment, its grids. `fitting` leaves out the sizes predicted not to fit the device."""

    name: str
    doc: str
    grids: Mapping[str, tuple[Grid, ...]]
    fitting: bool = False


_TOYS = StepGrid(sizes=("toy-64", "toy-128", "toy-256"), contexts=(64, 128, 256), max_seconds=0.3)
_TOY = replace(_TOYS, sizes=("toy-256",), contexts=(128,))
#: Of batch 2, so that the longest sequence has ten iterations too on two cores.
_TOY_ATTENTION = AttentionGrid(
    attention=("naive", "sdpa-flash"),
    seq_lens=(128, 256, 512, 1024),
    d_heads=(16, 64),
    batch=(2,),
    steps=10,
    max_steps=40,
    max_seconds=0.8,
)
_TOY_MEMORY = MemoryGrid(sizes=_TOYS.sizes, contexts=(128,), precisions=("fp32", "bf16"))
_TOY_PROFILE = ProfileGrid(sizes=("toy-256",), contexts=(128,))
_ATTENTION = AttentionGrid(max_seconds=2.0)
_SIZES = ("small", "medium", "large", "xl@2025", "xl@2026")
_FITTING = StepGrid(sizes=_SIZES, contexts=(128, 512, 1024), max_seconds=3.0)
_2025 = StepGrid(sizes=("small", "medium", "large", "xl@2025", "2.7B"), contexts=(128, 256, 512, 1024), max_steps=0)
_2026 = StepGrid(sizes=("small", "medium", "large", "xl@2026", "10B"), contexts=(512,), max_steps=0)


def _edition(grid: StepGrid) -> Mapping[str, tuple[Grid, ...]]:
    """The questions of one edition of the assignment, over its sizes and contexts."""
    small = replace(grid, sizes=("small",), contexts=grid.contexts[:1])
    memory = MemoryGrid(sizes=grid.sizes, contexts=grid.contexts)
    return {
        "benchmark": (
            replace(grid, modes=("inference", "train")),
            _ablation(small),
        ),
        "mixed-precision": (replace(grid, precisions=("fp32", "bf16")),),
        "attention": (replace(_ATTENTION, backends=("eager", "compiled")), *_fused(_ATTENTION)),
        "memory": (
            replace(memory, modes=("forward", "train"), precisions=("fp32", "bf16")),
            _recorded(memory),
        ),
        "kernels": (ProfileGrid(sizes=grid.sizes, contexts=grid.contexts, modes=("inference", "backward", "train")),),
        "compile": (
            replace(
                grid,
                sizes=grid.sizes[:4],
                contexts=grid.contexts[:1],
                modes=("inference", "train"),
                backends=("eager", "compiled"),
                compile_cache=("empty",),
            ),
        ),
        "numerics": (AccumulationGrid(), NumericsGrid(sizes=("toy-256", "small"), contexts=grid.contexts[:1])),
        "counterfactuals": _changed(small),
    }


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="laptop",
            doc="Three toy shapes, fp32 and bf16, eager; the largest also compiled block by block. A few minutes.",
            grids={
                "benchmark": (
                    _TOYS,
                    replace(_TOYS, contexts=(128,), modes=("inference",)),
                    _ablation(replace(_TOY, sizes=("toy-128",))),
                    _TOY,
                ),
                "mixed-precision": (replace(_TOYS, precisions=("fp32", "bf16")),),
                "attention": (
                    _TOY_ATTENTION,
                    replace(
                        _TOY_ATTENTION,
                        attention=("naive",),
                        seq_lens=(512,),
                        d_heads=(64,),
                        backends=("eager", "compiled"),
                    ),
                ),
                "memory": (_TOY_MEMORY, replace(_TOY_MEMORY, contexts=(256,)), _recorded(_TOY_MEMORY)),
                "kernels": (
                    replace(_TOY_PROFILE, sizes=_TOYS.sizes),
                    replace(_TOY_PROFILE, contexts=(64, 256), modes=("train",)),
                    replace(_TOY_PROFILE, modes=("train",), precisions=("bf16",)),
                ),
                "compile": (replace(_TOY, backends=("eager", "compiled-block"), compile_cache=("empty",)),),
                "numerics": (AccumulationGrid(), NumericsGrid(sizes=("toy-256",), contexts=(128,))),
                "counterfactuals": _changed(_TOY),
            },
        ),
        Preset(
            name="standard",
            doc="Every size that fits the GPU, fp32, tf32 and bf16, eager and compiled. About half an hour.",
            fitting=True,
            grids={
                "benchmark": (
                    _FITTING,
                    replace(_FITTING, contexts=(512,), modes=("inference",)),
                    _ablation(replace(_FITTING, sizes=("small",), contexts=(512,))),
                ),
                "mixed-precision": (
                    replace(_FITTING, precisions=("fp32", "bf16")),
                    replace(_FITTING, contexts=(512,), precisions=("fp32", "tf32", "bf16")),
                ),
                "attention": (
                    _ATTENTION,
                    replace(_ATTENTION, d_heads=(64,), backends=("eager", "compiled")),
                    *_fused(replace(_ATTENTION, d_heads=(64, 128))),
                    # Small enough for the L2 cache, so that what it is worth can be seen; on CUDA only.
                    replace(
                        _ATTENTION,
                        attention=("naive", "sdpa-flash"),
                        seq_lens=(256, 1024),
                        d_heads=(64,),
                        precisions=("bf16",),
                        cache=("hot", "cold"),
                    ),
                ),
                "memory": (
                    MemoryGrid(sizes=_SIZES, contexts=(512,), precisions=("fp32", "bf16")),
                    MemoryGrid(sizes=_SIZES, contexts=(128, 1024), modes=("train",), precisions=("fp32", "bf16")),
                    _recorded(MemoryGrid(sizes=_SIZES, contexts=(512,))),
                ),
                "kernels": (
                    ProfileGrid(sizes=_SIZES, contexts=(512,), modes=("inference", "backward", "train")),
                    ProfileGrid(sizes=("small", "large"), contexts=(128, 1024)),
                    ProfileGrid(
                        sizes=("small", "large"), contexts=(512,), modes=("train",), precisions=("tf32", "bf16")
                    ),
                    ProfileGrid(sizes=("small",), contexts=(512,), precisions=("bf16",), backends=("compiled",)),
                    ProfileGrid(
                        sizes=("small",), contexts=(512,), precisions=("bf16",), attention=("sdpa",), modes=("train",)
                    ),
                ),
                "compile": (
                    replace(
                        _FITTING,
                        sizes=("small", "medium"),
                        contexts=(512,),
                        modes=("inference", "train"),
                        precisions=("fp32", "bf16"),
                        backends=("eager", "compiled"),
                        compile_cache=("empty",),
                    ),
                    replace(
                        _FITTING,
                        sizes=("small",),
                        contexts=(512,),
                        precisions=("bf16",),
                        backends=("compiled-block", "compiled-reduce-overhead", "compiled-max-autotune"),
                        compile_cache=("empty",),
                    ),
                ),
                "numerics": (AccumulationGrid(), NumericsGrid(sizes=("toy-256", "small"), contexts=(512,))),
                "counterfactuals": _changed(
                    replace(_FITTING, contexts=(512,)),
                    replace(
                        _FITTING,
                        sizes=("small", "medium"),
                        contexts=(512,),
                        precisions=("bf16",),
                        attention=("sdpa",),
                        optimizers=("fused",),
                        backends=("compiled", "compiled-reduce-overhead"),
                    ),
                ),
            },
        ),
        Preset(
            name="cs336-2025",
            doc="Edition 2025 of the assignment: its sizes at contexts 128, 256, 512 and 1024; "
            "5 warm-up and 10 measured steps.",
            grids=_edition(_2025),
        ),
        Preset(
            name="cs336-2026",
            doc="Edition 2026: its sizes at context 512, the optimizer step timed too.",
            grids=_edition(_2026),
        ),
    )
}
#: The experiments there are and what each asks.
QUESTIONS: Mapping[str, str] = {
    "benchmark": "How long do the forward pass, the backward pass and the optimizer take?",
    "mixed-precision": "What do bf16, fp16 and TF32 buy at each size?",
    "attention": "At what sequence length does attention run out, of time and of memory?",
    "memory": "What fills the memory, and when?",
    "kernels": "What is the time of a step made of?",
    "compile": "What does torch.compile buy, and when has it paid for itself?",
    "numerics": "What does a lower precision cost in accuracy, and where?",
    "counterfactuals": "What would make the step faster, and by how much?",
}


def preset_for(device: str) -> str:
    """The preset of a sweep that names none: `standard` on CUDA, `laptop` elsewhere."""
    return "standard" if device == "cuda" else "laptop"
