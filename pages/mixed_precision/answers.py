"""Sentences about rows of `numerics`: sizes of errors, why a sum is off, what autocast leaves wide.

>>> format_error(0.0047), format_error(3.4e-7)
('0.470%', '3.40×10⁻⁷')
"""

from collections.abc import Mapping, Sequence

from pages.figures.frame import format_error, format_small
from pages.mixed_precision.format_figures import format_scale
from runner.formats import format_tokens, join_parts
from runner.results import AccumulationResult, NormalizationResult
from runner.schema import AccumulationRow, NumericsCell
from runner.schema.sizes import model_name


def place_of(cell: NumericsCell) -> str:
    """Returns the name of the model and the pass, without the precision."""
    rare = [f"{name.replace('_', ' ')} {getattr(cell, name)}" for name in ("batch", "attention", "weights_dtype")
            if getattr(cell, name) != NumericsCell.__dataclass_fields__[name].default]  # fmt: skip
    return join_parts(model_name(cell), format_tokens(cell.context), *rare)


def sum_of(row: AccumulationRow) -> str:
    """Returns how the sum is written: `fp32 += fp16`."""
    return f"{row.accumulator} += {row.addend}" + (", upcast first" if row.upcast else "")


def explain_sum(row: AccumulationRow) -> str:
    """Says why the sum is what it is: how the addend is represented, or what the last addition made of it."""
    if row.total is None or row.rounded_value is None or row.spacing is None or row.last_increment is None:
        return f"**{sum_of(row)}** has no result."
    error = row.error or 0
    start = f"**{sum_of(row)}** gives **{row.total:.9g}**, off by {format_signed(error)}"
    apart_by = f"{row.spacing:g}" if row.spacing >= 1e-4 else format_small(row.spacing)
    apart = f"near {row.total:.3g}, {row.accumulator}'s numbers are {apart_by} apart"
    if row.slips_at is not None:
        return (
            f"{start}: {apart}, so that adding {row.rounded_value:.9g} adds {row.last_increment:g}. From addend "
            f"{row.slips_at:,} on, the sum grows by a tenth too much or too little."
        )
    offset = row.addends * (row.rounded_value - row.value)
    if abs(error - offset) < 0.01 * abs(error):
        return (
            f"{start}: {row.addend} holds {row.value:g} as {row.rounded_value:.9g}, and {row.addends:,} times that is "
            f"off by as much. Adding in {row.accumulator} costs nothing more."
        )
    return f"{start}: {apart}, and every addition is rounded to one of them."


def describe_worst(sums: Sequence[AccumulationResult]) -> str:
    """Says how far off the narrowest sum was before its end; empty if that was the worst."""
    last = sums[-1]
    offs = [total - addend * last.row.value for addend, total in last.on_the_way]
    worst = max(offs, key=abs, default=0.0)
    if abs(worst) <= abs(last.row.error or 0):
        return ""
    off = f"{sum_of(last.row)} was off by as much as **{format_signed(worst)}**"
    return f"{off} on the way; that it ends close to the exact sum is a coincidence."


def format_signed(value: float) -> str:
    """Formats a number with its sign; the minus is as wide as a plus."""
    return ("−" if value < 0 else "+") + format_small(abs(value))


def describe_dtypes(by_precision: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Says which parts are in which format; precisions that differ only in their own name share a sentence."""
    sentences: dict[str, list[str]] = {}
    for precision, formats in by_precision.items():
        groups: dict[str, list[str]] = {}
        for part, names in formats.items():
            clause = " and ".join("the lower precision" if name == precision else f"**{name}**" for name in names)
            groups.setdefault(clause, []).append(part)
        text = "; ".join(f"{clause} holds {', '.join(parts)}" for clause, parts in groups.items())
        sentences.setdefault(text, []).append(precision)
    return " ".join(f"Under {' and '.join(same)} autocast, {text}." for text, same in sentences.items())


def describe_sensitivity(points: Sequence[NormalizationResult], *, statistic: str) -> str:
    """Says how far off each 16-bit format is for a statistic, and at which scales it loses it."""
    clauses = []
    for name in ("fp16", "bf16"):
        line = [point for point in points if point.computed_in == name and point.statistic == statistic]
        usual = next((point for point in line if point.scale == 1), None)
        if usual is None:
            continue
        scales: dict[str, list[str]] = {}
        for point in line:
            if describe_loss(point):
                scales.setdefault(describe_loss(point), []).append(f"{format_scale(point.scale)}×")
        ends = [f"at {', '.join(at)} it {lost}" for lost, at in scales.items()]
        fate = "; ".join(ends) if ends else "at no scale is it lost"
        clauses.append(f"**{name}** it is off by {format_error(usual.error)} at 1×; {fate}")
    return f"The {statistic} of a residual stream: in {'. In '.join(clauses)}." if clauses else ""


def describe_loss(point: NormalizationResult) -> str:
    """Says which share of a statistic is lost; empty below 0.5%."""
    words = [("overflows", point.overflowed_share), ("becomes 0", point.underflowed_share)]
    return ", ".join(f"{word} for {100 * share:.0f}% of tokens" for word, share in words if share >= 0.005)
