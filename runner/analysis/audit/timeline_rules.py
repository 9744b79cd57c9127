"""Audits imported memory timelines: rules about the optimizer's state, kept graphs, copies and missing history.

A snapshot does not say what its blocks are for. What is known: their sizes, lives and stacks. A block that is allocated
within an optimizer's step and outlives the recording, while the total grows by as much, is state that did not exist
before. Limits: without stacks nothing is said of the optimizer; copies are known by sizes alone. Each rule's name is
its finding's code.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.analysis.audit.findings import Found, doubt, fault, note
from runner.formats import format_bytes
from runner.results.findings import Finding

#: A frame of an optimizer's step: a file of an optimizer, and the function that makes or changes its state.
_STEP = re.compile(r"^[^\n:]*(?:optim|adam|sgd)[^\n:]*:\d+ (?:_init_group|step)\b", re.IGNORECASE | re.MULTILINE)
STATE = "optimizer state"
#: State makes at least this share of the peak, and the total grows by at least this share of it.
SHARE, GROWN = 0.05, 0.5
#: Blocks from this size on are told apart by size (bytes).
LARGE = 256 * 2**10
#: The blocks beside the weights, in multiples of them: none; AdamW's moments; those and gradients.
_BESIDE = (1, 3, 4)


@dataclass(frozen=True, kw_only=True)
class RecordedBlock:
    """One allocation. `born_us` is 0 where it existed before; `died_us` is None where it outlived the recording."""

    size: int
    born_us: int
    died_us: int | None
    category: str
    frames: str

    def is_alive(self, at_us: int) -> bool:
        return self.born_us <= at_us and (self.died_us is None or self.died_us > at_us)


@dataclass(frozen=True, kw_only=True)
class RecordedTimeline:
    """A timeline: its blocks, the highest total of requested bytes, and when that was."""

    blocks: Sequence[RecordedBlock]
    peak_bytes: int
    peak_at_us: int


def _find_new_state(recorded: RecordedTimeline) -> list[RecordedBlock]:
    """Returns the blocks of state that the recording itself made; none where they replace blocks of before of the same
    sizes, as an optimizer does that makes its state out of place."""
    lasting = [block for block in recorded.blocks if block.born_us > 0 and block.died_us is None]
    state = [block for block in lasting if block.category == STATE or _STEP.search(block.frames)]
    size = sum(block.size for block in state)
    freed = Counter(block.size for block in recorded.blocks if block.born_us == 0 and block.died_us is not None)
    replaced = Counter(block.size for block in state) & freed
    grown = size - sum(each * many for each, many in replaced.items())
    return state if size >= SHARE * recorded.peak_bytes and grown >= GROWN * size else []


def no_optimizer_state(recorded: RecordedTimeline) -> Found:
    state = _find_new_state(recorded)
    if not state or any(block.born_us <= recorded.peak_at_us for block in state):
        return
    size, first = sum(block.size for block in state), min(block.born_us for block in state)
    sentence = (
        f"The optimizer makes {format_bytes(size)} of state {(first - recorded.peak_at_us) / 1e3:,.1f} ms after the "
        "peak, which holds none of it. From the second step on it lies beside the activations, and the peak is up to "
        f"{format_bytes(recorded.peak_bytes + size)}."
    )
    yield fault("no_optimizer_state", sentence, state_bytes=size, peak_bytes=recorded.peak_bytes)


def first_step_recorded(recorded: RecordedTimeline) -> Found:
    state = _find_new_state(recorded)
    if any(block.born_us <= recorded.peak_at_us for block in state):
        size = sum(block.size for block in state)
        sentence = (
            f"The recording holds the optimizer's first step, which makes {format_bytes(size)} of state that stays: "
            "forward and backward before it ran without that, and need so much more from the next step on."
        )
        yield doubt("first_step_recorded", sentence, state_bytes=size, peak_bytes=recorded.peak_bytes)


def kept_graph(recorded: RecordedTimeline) -> Found:
    """Finds blocks of earlier passes at the peak. An optimizer's step ends a pass; a block is of an earlier one if it
    was allocated before such a step, and the pass of the peak allocates another by the same stack and of the same size,
    which holds for no state and no buffer."""
    ordered = sorted((block for block in recorded.blocks if block.born_us > 0), key=lambda block: block.born_us)
    passes: dict[int, int] = {}
    number, was_step = 0, False
    for block in ordered:
        is_step = bool(_STEP.search(block.frames))
        number, was_step = number + (was_step and not is_step), is_step
        passes[id(block)] = number
    last = max((passes[id(block)] for block in ordered if block.born_us <= recorded.peak_at_us), default=0)
    again = {(block.frames, block.size) for block in ordered if passes[id(block)] == last and block.frames}
    kept = [
        block
        for block in ordered
        if passes[id(block)] < last
        and block.is_alive(recorded.peak_at_us)
        and (block.frames, block.size) in again
        and not _STEP.search(block.frames)
    ]
    size = sum(block.size for block in kept)
    if kept and size >= SHARE * recorded.peak_bytes:
        line = max(kept, key=lambda block: block.size).frames.partition("\n")[0]
        sentence = (
            f"Blocks of passes before lie in the peak: {format_bytes(size)} in {len(kept):,} blocks, which each pass "
            f"allocates again and none frees, most of them by {line}. Something keeps the graph of a pass alive."
        )
        yield doubt("kept_graph", sentence, kept_bytes=size, peak_bytes=recorded.peak_bytes)


def no_history(recorded: RecordedTimeline) -> Found:
    if all(block.born_us == 0 and block.died_us is None for block in recorded.blocks):
        held = format_bytes(recorded.peak_bytes)
        sentence = f"No history was recorded: {held} are what was held when the snapshot was taken, and no peak."
        yield doubt("no_history", sentence, held_bytes=recorded.peak_bytes)


def half_precision_copies(recorded: RecordedTimeline) -> Found:
    """Finds blocks half as large as every large block that existed before, one for each weight."""
    held = Counter(b.size for b in recorded.blocks if b.born_us == 0 and b.died_us is None and b.size >= LARGE)
    at_peak = Counter(b.size for b in recorded.blocks if b.born_us > 0 and b.is_alive(recorded.peak_at_us))
    copies = {size: at_peak[size // 2] for size in held}
    # Each weight has one copy. Of two equally large ones, one may be an embedding, which has none.
    has_one = (
        all(copies[size] and copies[size] * beside in (many, many / 2) for size, many in held.items())
        for beside in _BESIDE
    )
    if len(held) > 1 and any(has_one):
        copied = sum(size // 2 * many for size, many in copies.items())
        sentence = (
            f"At the peak lie {sum(copies.values()):,} blocks half as large as the weights held before, "
            f"{format_bytes(copied)} together: the copies in half precision that autocast keeps. They "
            "explain a peak above that of float32."
        )
        yield note("half_precision_copies", sentence, copies=sum(copies.values()), copied_bytes=copied)


TIMELINE_RULES: tuple[Callable[[RecordedTimeline], Found], ...] = (
    no_optimizer_state, first_step_recorded, kept_graph, half_precision_copies, no_history,
)  # fmt: skip

#: What to do about each finding.
TIMELINE_REMEDIES = {
    "no_optimizer_state": "Do not read this as the peak of a training step: record from the second step on.",
    "first_step_recorded": "Record a later step, or add the state to the peak of forward and backward.",
    "kept_graph": "Look for what keeps the loss or an output of each pass: a list of losses without `.item()`, a "
    "tensor that is added up with its graph. Record again without it.",
    "no_history": "Call torch.cuda.memory._record_memory_history() before the steps, and take the snapshot after them.",
    "half_precision_copies": "Nothing is wrong with the recording. At longer contexts the smaller activations outweigh "
    "the copies.",
}


def judge_timeline(recorded: RecordedTimeline) -> list[Finding]:
    """Returns the findings of a timeline."""
    return [finding for rule in TIMELINE_RULES for finding in rule(recorded)]
