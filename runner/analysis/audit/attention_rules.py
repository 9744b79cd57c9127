"""Audits attention cells: rules about their rate, their result and their axes.

[finding for rule in ATTENTION_RULES if (finding := rule(row, seen))]

Each rule's name is its finding's code.
"""

from collections.abc import Callable

from runner.analysis.audit.findings import Finding, RowContext, doubt, fault, note
from runner.analysis.costs import hardware
from runner.analysis.costs.attention_tensors import is_unfused
from runner.formats import format_quantity
from runner.schema import AttentionRow

AttentionRule = Callable[[AttentionRow, RowContext], Finding | None]

#: The largest difference between saved bytes and the closed formula, as a share, where the formula is exact.
OFF = 0.02


def above_peak(row: AttentionRow, seen: RowContext) -> Finding | None:
    """Compares the achieved FLOP/s with the datasheet's dense peak, and the bytes/s with its bandwidth where the L2
    cache is cold."""
    name = seen.run.device_name if seen.run else None
    peak, bandwidth = hardware.peak_flops(name or "", row.precision), hardware.peak_bandwidth(name or "")
    rate = max(row.forward_flops_per_s or 0.0, row.backward_flops_per_s or 0.0)
    if peak and rate > peak:
        sentence = (
            f"{format_quantity(rate, 'FLOP/s')} are {rate / peak:.2f} times what the device can do in {row.precision}: "
            "it was another precision, or not all was timed."
        )
        return fault("above_peak", sentence, flops_per_s=rate, peak_flops_per_s=peak)
    moved = row.forward_bytes_per_s or 0.0
    if bandwidth and row.cache == "cold" and moved > bandwidth:
        sentence = (
            f"{format_quantity(moved, 'B/s')} are {moved / bandwidth:.2f} times the bandwidth there is: not all was "
            "timed."
        )
        return fault("above_peak", sentence, bytes_per_s=moved, peak_bytes_per_s=bandwidth)
    return None


def wrong_result(row: AttentionRow, seen: RowContext) -> Finding | None:
    error = max(row.output_error or 0.0, row.gradient_error or 0.0)
    if row.tolerance is None or error <= row.tolerance:
        return None
    sentence = f"Its result is {error:.1e} off the float64 one; {row.tolerance:.0e} is allowed."
    return fault("wrong_result", sentence, error=error, tolerance=row.tolerance)


def swapped_axes(row: AttentionRow, seen: RowContext) -> Finding | None:
    if row.d_head <= row.seq_len:
        return None
    sentence = (
        f"Heads {row.d_head:,} wide over {row.seq_len:,} tokens: wider than the sequence is long, as when the two axes "
        "change places."
    )
    return doubt("swapped_axes", sentence, d_head=row.d_head, seq_len=row.seq_len)


def prediction_off(row: AttentionRow, seen: RowContext) -> Finding | None:
    """Compares saved bytes with the formula where that is exact: for unfused eager cells."""
    saved, predicted = row.saved_bytes, row.predicted_saved_bytes
    exact = is_unfused(row) and row.backend == "eager"
    if not exact or saved is None or not predicted or abs(saved / predicted - 1) <= OFF:
        return None
    sentence = f"It keeps {saved / predicted:.2f} times the bytes for backward that its shape calls for."
    return note("prediction_off", sentence, saved_bytes=saved, predicted_bytes=predicted)


ATTENTION_RULES: tuple[AttentionRule, ...] = (above_peak, wrong_result, swapped_axes, prediction_off)
