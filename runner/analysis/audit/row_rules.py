"""Audits one row beside its times: the compiler, the precision and the machine of a step; the rate, the result and the
axes of attention; peaks, their parts and their predictions.

`BYTE_RULES` apply to every row with a peak, `MEMORY_RULES` to those of `memory`, `LOST_RULES` to cells that ran out.
Each rule's name is its finding's code, with `_of_attention` where two rules make one. `judge_rate` and `judge_peak` are
for published rows, too.
"""

from runner.analysis.audit.findings import Found, RowContext, Rule, doubt, fault, note
from runner.analysis.costs import hardware, steps
from runner.analysis.costs.steps import UNFUSED
from runner.formats import format_bytes, format_quantity
from runner.results.findings import Audited
from runner.schema import AttentionRow, MemoryRow, StepRow

#: Phases that differ from the step by more than this share leave time between them.
BETWEEN_PHASES = 0.02
#: Other processes that take more of the CPU than this share were measured too.
BUSY = 0.10
#: A compiled gradient that is off by more than this is not explained by rounding.
OTHER_GRADIENT = 0.5
#: A step that leaves as much behind (bytes), and in all of them such a share of the memory in use, leaks.
LEAK_BYTES, LEAK_SHARE = 2**16, 0.05
#: A card may run this much faster than the clocks of its data sheet.
CLOCK = 1.05


def judge_rate(words: str, rate: float, peak: float | None, *, of: str, why: str, tf32: float | None = None) -> Found:
    """Compares a rate with the highest that there is, in any unit that both have. A rate of float32 that TF32 can reach
    was one of TF32."""
    if peak and rate > CLOCK * peak:
        is_tf32 = tf32 is not None and rate <= CLOCK * tf32
        sentence = f"{words} {rate / peak:.2f} times {of}: {'it was TF32' if is_tf32 else why}."
        yield fault("tf32_as_fp32" if is_tf32 else "above_peak", sentence, rate=rate, peak=peak)


def phases_do_not_add(row: StepRow, seen: RowContext) -> Found:
    if row.phase_sum_share is not None and abs(1 - row.phase_sum_share) > BETWEEN_PHASES:
        sentence = f"The phases make up {row.phase_sum_share:.1%} of the step; the rest is time between them."
        yield note("phases_do_not_add", sentence, phase_sum_share=row.phase_sum_share)


def busy_machine(row: StepRow, seen: RowContext) -> Found:
    """Compares the load of other processes with the limit; where the step leaves a CPU idle, others may use it."""
    cpus = seen.run.cpu_cores if seen.run else None
    spare = 1 / cpus if cpus and row.threads and row.threads < cpus else 0.0
    if row.other_cpu_share is not None and row.other_cpu_share > BUSY + spare:
        sentence = f"Other processes took {row.other_cpu_share:.0%} of the CPU while this cell was measured."
        yield doubt("busy_machine", sentence, other_cpu_share=row.other_cpu_share)


def recompiled(row: StepRow, seen: RowContext) -> Found:
    if row.recompiles:
        sentence = f"The compiler compiled {row.recompiles} more graphs after the warm-up, inside the measured steps."
        yield fault("recompiled", sentence, recompiles=row.recompiles)


def compiler_fallback(row: StepRow, seen: RowContext) -> Found:
    if row.compiler_fallback:
        sentence = "The compiler gave up on a frame and ran it eagerly: this is not the compiled model."
        yield fault("compiler_fallback", sentence, backend=row.backend)


def wrong_result(row: StepRow, seen: RowContext) -> Found:
    error = row.compiled_gradient_error
    if error is not None and error > OTHER_GRADIENT:
        sentence = (
            f"The gradient of a parameter is {error:.0%} off that of the same pass uncompiled: the compiler made "
            "another computation of it, and this is the time of that one."
        )
        yield fault("wrong_result", sentence, compiled_gradient_error=error)


def above_peak(row: StepRow, seen: RowContext) -> Found:
    of = f"what the device can do in {row.precision}"
    yield from judge_rate("The rate is", row.mfu or 0.0, 1.0, of=of, why="it was another precision")


def no_effect(row: StepRow, seen: RowContext) -> Found:
    """Finds autocast that was asked for and never entered, which gives float32 logits."""
    expected = {"bf16": "bfloat16", "fp16": "float16"}.get(row.precision)
    # An own model may cast its logits by itself, as many do.
    if expected and row.logits_dtype not in (None, expected) and row.model_key is None:
        sentence = f"{row.precision} was asked for and the logits are {row.logits_dtype}: it had no effect."
        yield fault("no_effect", sentence, logits_dtype=str(row.logits_dtype))


def tf32_as_fp32(row: StepRow, seen: RowContext) -> Found:
    if row.precision == "fp32" and row.matmul_precision == "tf32":
        sentence = "Asked for as fp32 and computed in TF32: its inputs were rounded to 10 bits."
        yield fault("tf32_as_fp32", sentence, matmul_precision="tf32")


def leaks_memory(row: StepRow, seen: RowContext) -> Found:
    """Finds memory that grows with each step. Where the process is counted and not the allocator, little growth says
    nothing, because a heap grows by itself."""
    growth, in_use = row.memory_growth_bytes, row.peak_allocated_bytes or row.peak_resident_bytes
    if growth is None or row.steps is None or not in_use:
        return
    if growth >= LEAK_BYTES and growth * row.steps >= LEAK_SHARE * in_use:
        left, in_all = format_bytes(growth), format_bytes(growth * row.steps)
        sentence = f"Every step leaves {left} behind, {in_all} in all: it leaks."
        yield doubt("leaks_memory", sentence, memory_growth_bytes=growth, steps=row.steps)


def loss_is_no_number(row: StepRow, seen: RowContext) -> Found:
    """Finds a measured step with a backward pass and no loss: the file keeps NaN and infinity as NULL. A published
    table, which may name no loss, says nothing about the matmul precision either."""
    if row.loss is None and row.mode in ("backward", "train") and row.matmul_precision is not None:
        sentence = (
            "The loss of the last step is NaN or infinite: the steps ran on values that a training run does not have, "
            "on which kernels may be faster (fewer bits change) and steps may be left out."
        )
        yield doubt("loss_is_no_number", sentence, mode=row.mode)


STEP_RULES: tuple[Rule, ...] = (
    phases_do_not_add, busy_machine, recompiled, compiler_fallback, wrong_result, above_peak, no_effect,
    leaks_memory, tf32_as_fp32, loss_is_no_number,
)  # fmt: skip

#: The largest difference between saved bytes and the closed formula, as a share, where the formula is exact.
OFF_FORMULA = 0.02


def above_peak_of_attention(row: AttentionRow, seen: RowContext) -> Found:
    """Compares FLOP/s with the datasheet's dense peak, and bytes/s with its bandwidth where the L2 cache is cold."""
    name = (seen.run.device_name if seen.run else None) or ""
    rate = max(row.forward_flops_per_s or 0.0, row.backward_flops_per_s or 0.0)
    moved = (row.forward_bytes_per_s or 0.0) if row.cache == "cold" else 0.0
    peak, width = hardware.peak_flops(name, row.precision), hardware.peak_bandwidth(name)
    tf32 = hardware.peak_flops(name, "tf32") if row.precision == "fp32" else None
    of, why = f"what the device can do in {row.precision}", "it was another precision, or not all was timed"
    too_fast = judge_rate(f"{format_quantity(rate, 'FLOP/s')} are", rate, peak, of=of, why=why, tf32=tf32)
    words, why = f"{format_quantity(moved, 'B/s')} are", "not all was timed"
    too_wide = judge_rate(words, moved, width, of="the bandwidth there is", why=why)
    yield from [*too_fast, *too_wide][:1]


def wrong_result_of_attention(row: AttentionRow, seen: RowContext) -> Found:
    error = max(row.output_error or 0.0, row.gradient_error or 0.0)
    if row.tolerance is not None and error > row.tolerance:
        sentence = f"Its result is {error:.1e} off the float64 one; {row.tolerance:.0e} is allowed."
        yield fault("wrong_result", sentence, error=error, tolerance=row.tolerance)


def swapped_axes(row: AttentionRow, seen: RowContext) -> Found:
    if row.d_head > row.seq_len:
        sentence = (
            f"Heads {row.d_head:,} wide over {row.seq_len:,} tokens: wider than the sequence is long, as when the two "
            "axes change places."
        )
        yield doubt("swapped_axes", sentence, d_head=row.d_head, seq_len=row.seq_len)


def prediction_off_of_attention(row: AttentionRow, seen: RowContext) -> Found:
    """Compares saved bytes with the formula where that is exact: for unfused eager cells."""
    saved, predicted = row.saved_bytes, row.predicted_saved_bytes
    exact = row.implementation in UNFUSED and row.backend == "eager"
    if exact and saved is not None and predicted and abs(saved / predicted - 1) > OFF_FORMULA:
        sentence = f"It keeps {saved / predicted:.2f} times the bytes for backward that its shape calls for."
        yield note("prediction_off", sentence, saved_bytes=saved, predicted_bytes=predicted)


ATTENTION_RULES: tuple[Rule, ...] = (
    above_peak_of_attention, wrong_result_of_attention, swapped_axes, prediction_off_of_attention,
)  # fmt: skip

MIB = 2**20
#: A peak this many times its prediction, and this much above it (bytes of libraries), is not the cell's own.
FOREIGN, OWN_SCRATCH = 5.0, 256 * MIB
#: A peak this far from its prediction, as a share, is not explained by it.
OFF = 0.10
#: The share of a peak that may stay unexplained: on a GPU, whose allocator counts every byte, and elsewhere.
UNEXPLAINED, UNEXPLAINED_ON_CPU = 0.02, 0.05
#: A cell that was predicted to need less than this share of the device should have fitted.
HALF = 0.5


def judge_peak(peak: float | None, most: float | None, *, of: str, is_again: bool = False) -> Found:
    """Compares a peak with about the most that there can be, in bytes; `is_again` says that it is that of a row
    before."""
    if peak and most and (is_again or peak > FOREIGN * most + OWN_SCRATCH):
        how = "again" if is_again else f"{peak / most:,.0f} times"
        sentence = f"The peak of {format_bytes(peak)} is {how} the {format_bytes(most)} {of}: it was left over from"
        yield fault("peak_carried_over", f"{sentence} the one before.", peak_bytes=peak, most_bytes=most)


def peak_carried_over(row: Audited, seen: RowContext) -> Found:
    return judge_peak(row.peak_allocated_bytes, row.predicted_peak_bytes, of="that this cell needs")


def unexpected_out_of_memory(row: Audited, seen: RowContext) -> Found:
    predicted, device = row.predicted_peak_bytes, getattr(row, "device_bytes", None) or seen.device_bytes
    if predicted and device and predicted < HALF * device:
        sentence = (
            f"It ran out of memory and was predicted to need {format_bytes(predicted)} of the {format_bytes(device)} "
            "there are: something else held them."
        )
        yield doubt("unexpected_out_of_memory", sentence, predicted_bytes=predicted, device_bytes=device)


def unexplained(row: MemoryRow, seen: RowContext) -> Found:
    if row.residual_bytes is None or not row.peak_allocated_bytes:
        return
    allowed = UNEXPLAINED_ON_CPU if seen.run and seen.run.device == "cpu" else UNEXPLAINED
    share = row.residual_bytes / row.peak_allocated_bytes
    if abs(share) > allowed:
        sentence = f"The parts leave {share:+.1%} of the peak unexplained; at most {allowed:.0%} may be."
        yield doubt("unexplained", sentence, residual_bytes=row.residual_bytes, share=share)


def not_by_formula(row: MemoryRow, seen: RowContext) -> Found:
    """Compares parameters, the optimizer's moments and, once backward is over, gradients with their exact formulas.
    Moments of 0 are those of a step before the first optimizer step."""
    if row.model_key is not None:  # nothing of an own model is known beforehand
        return
    known = [
        ("parameters", row.parameters_bytes, steps.parameter_bytes(row)),
        ("optimizer state", row.optimizer_state_bytes, steps.optimizer_state_bytes(row)),
        ("gradients", row.gradients_bytes if row.peak_phase == "optimizer" else None, steps.parameter_bytes(row)),
    ]
    for name, held, expected in [part for part in known if part[1] not in (None, part[2])][:1]:
        why = "" if held else ", as before the first optimizer step" if name == "optimizer state" else ""
        sentence = f"The peak holds {held:,} bytes of {name}{why}; the shape calls for {expected:,}."
        yield fault("not_by_formula", sentence, part=name, held_bytes=held or 0, expected_bytes=expected)


def prediction_off(row: MemoryRow, seen: RowContext) -> Found:
    peak, predicted = row.peak_allocated_bytes, row.predicted_peak_bytes
    if peak is not None and predicted and abs(peak / predicted - 1) > OFF and not any(peak_carried_over(row, seen)):
        sentence = f"The peak is {peak / predicted:.2f} times the predicted one: the formula misses something here."
        yield note("prediction_off", sentence, peak_bytes=peak, predicted_bytes=predicted)


BYTE_RULES: tuple[Rule, ...] = (peak_carried_over,)
MEMORY_RULES: tuple[Rule, ...] = (unexplained, not_by_formula, prediction_off)
LOST_RULES: tuple[Rule, ...] = (unexpected_out_of_memory,)
