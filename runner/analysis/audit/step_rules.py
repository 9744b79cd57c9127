"""Audits whole steps: rules about the compiler, the precision and the machine.

[finding for rule in STEP_RULES if (finding := rule(row, seen))]

Each rule's name is its finding's code.
"""

from collections.abc import Callable

from runner.analysis.audit.findings import Finding, RowContext, doubt, fault, note
from runner.formats import format_bytes
from runner.schema import StepRow

StepRule = Callable[[StepRow, RowContext], Finding | None]

#: Phases that differ from the step by more than this share leave time unexplained.
UNEXPLAINED = 0.02
#: Other processes that take more of the CPU than this share were measured too.
BUSY = 0.10
#: A compiled gradient that is off by more than this is not explained by rounding.
OTHER_GRADIENT = 0.5
#: A step that leaves as much behind (bytes), and in all of them such a share of the memory in use, leaks.
LEAK_BYTES, LEAK_SHARE = 2**16, 0.05


def phases_do_not_add(row: StepRow, seen: RowContext) -> Finding | None:
    if row.phase_sum_share is None or abs(1 - row.phase_sum_share) <= UNEXPLAINED:
        return None
    sentence = f"The phases make up {row.phase_sum_share:.1%} of the step; the rest is time between them."
    return note("phases_do_not_add", sentence, phase_sum_share=row.phase_sum_share)


def busy_machine(row: StepRow, seen: RowContext) -> Finding | None:
    """Compares the load of other processes with the limit; where the step leaves a CPU idle, others may use that
    one."""
    cpus = seen.run.cpu_cores if seen.run else None
    spare = 1 / cpus if cpus and row.threads and row.threads < cpus else 0.0
    if row.other_cpu_share is None or row.other_cpu_share <= BUSY + spare:
        return None
    sentence = f"Other processes took {row.other_cpu_share:.0%} of the CPU while this cell was measured."
    return doubt("busy_machine", sentence, other_cpu_share=row.other_cpu_share)


def recompiled(row: StepRow, seen: RowContext) -> Finding | None:
    if not row.recompiles:
        return None
    sentence = f"The compiler compiled {row.recompiles} more graphs after the warm-up, inside the measured steps."
    return fault("recompiled", sentence, recompiles=row.recompiles)


def compiler_fallback(row: StepRow, seen: RowContext) -> Finding | None:
    if not row.compiler_fallback:
        return None
    sentence = "The compiler gave up on a frame and ran it eagerly: this is not the compiled model."
    return fault("compiler_fallback", sentence, backend=row.backend)


def wrong_result(row: StepRow, seen: RowContext) -> Finding | None:
    error = row.compiled_gradient_error
    if error is None or error <= OTHER_GRADIENT:
        return None
    sentence = (
        f"The gradient of a parameter is {error:.0%} off that of the same pass uncompiled: the compiler made another "
        "computation of it, and this is the time of that one."
    )
    return fault("wrong_result", sentence, compiled_gradient_error=error)


def above_peak(row: StepRow, seen: RowContext) -> Finding | None:
    if row.mfu is None or row.mfu <= 1:
        return None
    sentence = f"The rate is {row.mfu:.2f} times what the device can do in {row.precision}: it was another precision."
    return fault("above_peak", sentence, mfu=row.mfu)


def no_effect(row: StepRow, seen: RowContext) -> Finding | None:
    """Finds autocast that was asked for and never entered, which gives float32 logits."""
    expected = {"bf16": "bfloat16", "fp16": "float16"}.get(row.precision)
    # An own model may cast its logits by itself, as many do.
    if expected is None or row.logits_dtype in (None, expected) or row.model_key is not None:
        return None
    sentence = f"{row.precision} was asked for and the logits are {row.logits_dtype}: it had no effect."
    return fault("no_effect", sentence, logits_dtype=str(row.logits_dtype))


def tf32_as_fp32(row: StepRow, seen: RowContext) -> Finding | None:
    if row.precision != "fp32" or row.matmul_precision != "tf32":
        return None
    sentence = "Asked for as fp32 and computed in TF32: its inputs were rounded to 10 bits."
    return fault("tf32_as_fp32", sentence, matmul_precision="tf32")


def leaks_memory(row: StepRow, seen: RowContext) -> Finding | None:
    """Finds memory that grows with each step. Where the process is counted and not the allocator, little growth says
    nothing, because a heap grows by itself."""
    growth, in_use = row.memory_growth_bytes, row.peak_allocated_bytes or row.peak_resident_bytes
    if growth is None or row.steps is None or not in_use or growth < LEAK_BYTES:
        return None
    if growth * row.steps < LEAK_SHARE * in_use:
        return None
    sentence = f"Every step leaves {format_bytes(growth)} behind, {format_bytes(growth * row.steps)} in all: it leaks."
    return doubt("leaks_memory", sentence, memory_growth_bytes=growth, steps=row.steps)


STEP_RULES: tuple[StepRule, ...] = (
    phases_do_not_add,
    busy_machine,
    recompiled,
    compiler_fallback,
    wrong_result,
    above_peak,
    no_effect,
    leaks_memory,
    tf32_as_fp32,
)
