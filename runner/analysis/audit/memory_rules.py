"""Audits bytes: rules about peaks, their parts and their predictions.

    [finding for rule in BYTE_RULES if (finding := rule(row, seen))]

`BYTE_RULES` apply to every row with a peak, `MEMORY_RULES` to those of `memory`, `LOST_RULES` to cells that ran out.
Each rule's name is its finding's code.
"""

from collections.abc import Callable, Iterator

from runner.analysis.audit.findings import Audited, Finding, RowContext, doubt, fault, note
from runner.analysis.costs import steps
from runner.formats import format_bytes
from runner.schema import MemoryRow

ByteRule = Callable[[Audited, RowContext], Finding | None]
MemoryRule = Callable[[MemoryRow, RowContext], Finding | None]

MIB = 2**20
#: A peak this many times its prediction, and this much above it (bytes: what libraries keep for themselves), is not
#: the cell's own.
FOREIGN, OWN_SCRATCH = 5.0, 256 * MIB
#: A peak this far from its prediction, as a share, is not explained by it.
OFF = 0.10
#: The share of a peak that may stay unexplained: on a GPU, whose allocator counts every byte, and elsewhere.
UNEXPLAINED, UNEXPLAINED_ON_CPU = 0.02, 0.05
#: A cell that was predicted to need less than this share of the device should have fitted.
HALF = 0.5


def peak_carried_over(row: Audited, seen: RowContext) -> Finding | None:
    peak, predicted = row.peak_allocated_bytes, row.predicted_peak_bytes
    if peak is None or not predicted or peak <= FOREIGN * predicted + OWN_SCRATCH:
        return None
    sentence = (
        f"The peak of {format_bytes(peak)} is {peak / predicted:,.0f} times the {format_bytes(predicted)} that this "
        "cell needs: it was left over from the one before."
    )
    return fault("peak_carried_over", sentence, peak_bytes=peak, predicted_bytes=predicted)


def unexpected_out_of_memory(row: Audited, seen: RowContext) -> Finding | None:
    own = getattr(row, "device_bytes", None)
    predicted, device = row.predicted_peak_bytes, own or seen.device_bytes
    if not predicted or not device or predicted >= HALF * device:
        return None
    sentence = (
        f"It ran out of memory and was predicted to need {format_bytes(predicted)} of the {format_bytes(device)} "
        "there are: something else held them."
    )
    return doubt("unexpected_out_of_memory", sentence, predicted_bytes=predicted, device_bytes=device)


def unexplained(row: MemoryRow, seen: RowContext) -> Finding | None:
    if row.residual_bytes is None or not row.peak_allocated_bytes:
        return None
    allowed = UNEXPLAINED_ON_CPU if seen.run and seen.run.device == "cpu" else UNEXPLAINED
    share = row.residual_bytes / row.peak_allocated_bytes
    if abs(share) <= allowed:
        return None
    sentence = f"The parts leave {share:+.1%} of the peak unexplained; at most {allowed:.0%} may be."
    return doubt("unexplained", sentence, residual_bytes=row.residual_bytes, share=share)


def not_by_formula(row: MemoryRow, seen: RowContext) -> Finding | None:
    """Compares parameters, the optimizer's moments and, once backward is over, gradients with their exact formulas.
    Moments of 0 are those of a step before the first optimizer step."""
    wrong = [part for part in _known_parts(row) if part[1] is not None and part[1] != part[2]]
    if not wrong:
        return None
    name, held, expected = wrong[0]
    why = "" if held else ", as before the first optimizer step" if name == "optimizer state" else ""
    sentence = f"The peak holds {held:,} bytes of {name}{why}; the shape calls for {expected:,}."
    return fault("not_by_formula", sentence, part=name, held_bytes=held or 0, expected_bytes=expected)


def _known_parts(row: MemoryRow) -> Iterator[tuple[str, int | None, int]]:
    """Yields name, bytes at the peak, and bytes by formula (`costs`). Nothing of an own model is known beforehand."""
    if row.model_key is not None:
        return
    yield "parameters", row.parameters_bytes, steps.parameter_bytes(row)
    yield "optimizer state", row.optimizer_state_bytes, steps.optimizer_state_bytes(row)
    if row.peak_phase == "optimizer":
        yield "gradients", row.gradients_bytes, steps.gradient_bytes(row)


def prediction_off(row: MemoryRow, seen: RowContext) -> Finding | None:
    peak, predicted = row.peak_allocated_bytes, row.predicted_peak_bytes
    if peak is None or not predicted or abs(peak / predicted - 1) <= OFF or peak_carried_over(row, seen):
        return None
    sentence = f"The peak is {peak / predicted:.2f} times the predicted one: the formula misses something here."
    return note("prediction_off", sentence, peak_bytes=peak, predicted_bytes=predicted)


BYTE_RULES: tuple[ByteRule, ...] = (peak_carried_over,)
MEMORY_RULES: tuple[MemoryRule, ...] = (unexplained, not_by_formula, prediction_off)
LOST_RULES: tuple[ByteRule, ...] = (unexpected_out_of_memory,)
