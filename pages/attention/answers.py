"""Sentences about attention cells: names of implementations and places, growth, and the page's answer.

growth_sentence(cells, what="Time of forward", value=milliseconds("forward"))
"""

from collections.abc import Sequence

from pages.figures.frame import format_exponent
from runner.analysis.compare.pairs import describe_effort_difference, describe_unusual_effort
from runner.analysis.compare.speedups import name_attention
from runner.analysis.growth import Value, growth
from runner.formats import format_bytes, format_number
from runner.results import AttentionResult
from runner.schema import AttentionCell, Phase


def place_of(cell: AttentionCell) -> str:
    """Returns the length and the head width."""
    return " · ".join(
        part for part in (f"{cell.seq_len:,} tok", f"d {cell.d_head}", describe_unusual_effort(cell)) if part
    )


def growth_sentence(cells: Sequence[AttentionResult], *, what: str, value: Value) -> str:
    """Says the fitted exponent of every implementation, the steepest first, and where it was fitted, once for all that
    share it. Two-point fits are left out where others have more points."""
    fits = {way: growth([c for c in cells if name_attention(c.cell) == way], value=value) for way in ways(cells)}
    known = {way: fit for way, fit in fits.items() if fit}
    most = max((fit.lengths for fit in known.values()), default=0)
    ordered = sorted(
        ((fit, way) for way, fit in known.items() if fit.lengths == most), key=lambda pair: -pair[0].exponent
    )
    spans: dict[str, list[str]] = {}
    for fit, way in ordered:
        spans.setdefault(f"{fit.low:,} to {fit.high:,}", []).append(f"{way} as **{format_power(fit.exponent)}**")
    sentence = "; ".join(f"from {span} tokens {', '.join(each)}" for span, each in spans.items())
    return f"{what} grows with the length S: {sentence}." if sentence else ""


def format_power(exponent: float) -> str:
    """Formats the length to a power: `S¹·⁹⁴`."""
    return f"S{format_exponent(f'{exponent:.2f}')}"


def ways(cells: Sequence[AttentionResult]) -> list[str]:
    """Returns the implementations, in the order of the rows."""
    return list(dict.fromkeys(name_attention(cell.cell) for cell in cells))


def milliseconds(phase: Phase) -> Value:
    """Returns a function that reads the median of a phase from a cell."""
    return lambda cell: cell.times[phase].median_ms if phase in cell.times else None


def answer(cells: Sequence[AttentionResult]) -> str:
    """Says what naive attention costs at the longest length that it can run, beside the fastest other implementation,
    and where memory runs out."""
    done = [cell for cell in cells if cell.status == "ok" and "forward_backward" in cell.times]
    if not done:
        timed = any(cell.status == "ok" for cell in cells)
        return f"None of these cells has a {'time of forward and backward together' if timed else 'result'}."
    longest = find_longest_naive(done) or done[0]
    mask = "causal" if longest.cell.causal else "full"
    words = (f"d {longest.cell.d_head}", longest.cell.precision, mask, describe_unusual_effort(longest.cell))
    where = ", ".join(word for word in words if word)
    parts = [f"At **{longest.cell.seq_len:,} tokens** ({where}), {_describe_cost(longest, name=True)}"]
    same = [cell for cell in done if cell.cell.seq_len == longest.cell.seq_len and cell is not longest]
    beside = [cell for cell in same if not describe_effort_difference(longest.cell, cell.cell)]
    if beside:
        quickest = min(beside, key=_sum_ms)
        ratio = _sum_ms(longest) / _sum_ms(quickest)
        pace = f"{format_number(ratio)}× as fast" if ratio >= 1 else f"{format_number(1 / ratio)}× as slow"
        name = name_attention(quickest.cell)
        parts.append(f"; **{name}**, the fastest alternative, {_describe_cost(quickest)} ({pace})")
    return "".join(parts) + "." + _describe_memory(longest, cells)


def find_longest_naive(cells: Sequence[AttentionResult]) -> AttentionResult | None:
    """Returns the naive cell of the longest length that has a time, or any other where none is naive; None without."""
    done = [cell for cell in cells if cell.status == "ok" and "forward_backward" in cell.times]
    naive = [cell for cell in done if name_attention(cell.cell) == "naive"]
    return max(naive or done, key=lambda cell: cell.cell.seq_len, default=None)


def _describe_cost(cell: AttentionResult, *, name: bool = False) -> str:
    at_peak = f" and {format_bytes(cell.peak_allocated_bytes)} at its peak" if cell.peak_allocated_bytes else ""
    verb = f"{name_attention(cell.cell)} takes " if name else ""
    return f"{verb}**{format_number(_sum_ms(cell))} ms** forward and backward{at_peak}"


def _sum_ms(cell: AttentionResult) -> float:
    return cell.times["forward_backward"].median_ms


def _describe_memory(longest: AttentionResult, cells: Sequence[AttentionResult]) -> str:
    """Says how the memory of the same implementation grows, and the shortest length that ran out."""
    same = [cell for cell in cells if name_attention(cell.cell) == name_attention(longest.cell)]
    fit = growth(same, value=lambda cell: cell.peak_allocated_bytes)
    grows = f" Memory of {name_attention(longest.cell)} grows as {format_power(fit.exponent)}" if fit else ""
    lost = [cell for cell in cells if cell.status == "oom"]
    if not lost:
        return f"{grows}; no cell here ran out." if grows else " No cell here ran out of memory."
    first = min(lost, key=lambda cell: cell.cell.seq_len)
    out = f"**{name_attention(first.cell)} runs out at {first.cell.seq_len:,} tokens**"
    if first.predicted_peak_bytes and first.limit_bytes:
        needed, there = format_bytes(first.predicted_peak_bytes), format_bytes(first.limit_bytes)
        out += f": it would need {needed} of the {there} there are"
        if first.is_fragmented:
            out += f", but {format_bytes(first.asked_bytes or 0)} of it were not free in one piece"
    return f"{grows}; {out}." if grows else f" {out}."


def agreement(cells: Sequence[AttentionResult]) -> str:
    """Says whether outputs and gradients agree with float64."""
    judged = [c for c in cells if c.tolerance and (c.output_error, c.gradient_error) != (None, None)]
    off = [c for c in judged if max(c.output_error or 0, c.gradient_error or 0) > (c.tolerance or 0)]
    if not judged:
        return "No cell here was compared with a float64 result."
    if off:
        names = "; ".join(f"{name_attention(cell.cell)} at {place_of(cell.cell)}" for cell in off[:3])
        return f"**{len(off)} of {len(judged)} cells differ from float64 results by more than the tolerance**: {names}."
    return (
        f"Outputs and gradients of {len(judged)} of {len(cells)} cells were compared with float64 results: all agree."
    )
