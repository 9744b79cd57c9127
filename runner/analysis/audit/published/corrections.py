"""Corrects published figures where their own table says what they would have been without a mistake.

    for one in correct(findings):
        print(one.line, one.figure, one.published, "→", one.instead, one.why)

Each correction is computed from the evidence of a finding. A figure that has to be measured again has none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.analysis.audit.published.findings import PublishedFinding
from runner.formats import format_bytes, format_ms


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One figure of one line in words, as it is published and as it would have been. `why` is the calculation."""

    line: int
    figure: str
    published: str
    instead: str
    why: str


def correct(findings: Sequence[PublishedFinding]) -> list[Correction]:
    """Returns the corrections, by line."""
    return sorted((one for found in findings for one in _correct(found)), key=lambda one: (one.line, one.figure))


def _correct(found: PublishedFinding) -> Iterator[Correction]:
    make = _BY_CODE.get(found.finding.code)
    return make(found) if make else iter(())


def _read_numbers(found: PublishedFinding) -> dict[str, float]:
    return {name: value for name, value in found.finding.evidence.items() if isinstance(value, int | float)}


def _correct_cold_step(found: PublishedFinding) -> Iterator[Correction]:
    numbers, known = _read_numbers(found), found.finding.evidence
    root = "√(n − 1)" if known["std"] == "population" else "√n"
    for name in (name.removesuffix("_steady_ms") for name in numbers if name.endswith("_steady_ms")):
        why = f"mean − std / {root} with n = {known['steps']}: without the one cold step"
        yield _fix_time(found, name, numbers[f"{name}_mean_ms"], numbers[f"{name}_steady_ms"], why)


def _correct_subtraction(found: PublishedFinding) -> Iterator[Correction]:
    numbers = _read_numbers(found)
    if "backward_steady_ms" in numbers:
        why = "forward + backward less forward, both without their cold step"
        yield _fix_time(found, "backward", numbers["backward_ms"], numbers["backward_steady_ms"], why)


def _correct_range(found: PublishedFinding) -> Iterator[Correction]:
    numbers = _read_numbers(found)
    yield _fix_time(found, "range", numbers["range_ms"], numbers["kernels_ms"], "the time of its kernels on the GPU")


def _correct_peak(found: PublishedFinding) -> Iterator[Correction]:
    numbers = _read_numbers(found)
    yield Correction(
        line=found.lines[0],
        figure="peak memory",
        published=format_bytes(numbers["peak_bytes"]),
        instead=("at most " if found.finding.severity == "fault" else "") + format_bytes(numbers["own_bytes"]),
        why=f"less {format_bytes(numbers['left_bytes'])} of the row before",
    )


def _correct_precision(found: PublishedFinding) -> Iterator[Correction]:
    numbers = _read_numbers(found)
    rate, peak = (numbers[name] / 1e12 for name in ("flops_per_s", "peak_flops_per_s"))
    instead = "tf32" if found.finding.severity == "fault" else "tf32, probably"
    why = f"{rate:,.0f} TFLOP/s, where fp32 has {peak:,.0f}"
    yield Correction(line=found.lines[0], figure="precision", published="fp32", instead=instead, why=why)


def _correct_axes(found: PublishedFinding) -> Iterator[Correction]:
    """Yields the intended axes. Where the bytes agree with the headings, another grid was run; elsewhere two headings
    may have been swapped."""
    numbers = _read_numbers(found)
    width, length = (f"{numbers[f'least_{name}']:,} to {numbers[f'largest_{name}']:,}" for name in ("width", "length"))
    was_run = found.finding.evidence["bytes_agree"] == "yes"
    yield Correction(
        line=found.lines[0],
        figure=f"axes of {len(found.rows)} rows",
        published=f"{width} wide, {length} tokens",
        instead=f"{length} wide, {width} tokens" + (": not measured" if was_run else ", perhaps"),
        why="the grid of the question; the bytes say that the other one was run"
        if was_run
        else "in each other's place",
    )


def _correct_zero_bytes(found: PublishedFinding) -> Iterator[Correction]:
    for row in found.rows:
        yield Correction(
            line=row.line, figure="memory", published="0", instead="unknown", why="there is no such counter"
        )


def _correct_sum(found: PublishedFinding) -> Iterator[Correction]:
    printed, expected = (str(found.finding.evidence[name]) for name in ("printed", "expected"))
    why = "IEEE arithmetic, rounded to nearest"
    yield Correction(line=found.lines[0], figure="result", published=printed, instead=expected, why=why)


def _fix_time(found: PublishedFinding, name: str, published: float, instead: float, why: str) -> Correction:
    return Correction(
        line=found.lines[0],
        figure=name.replace("_", " + "),
        published=format_ms(published),
        instead=format_ms(instead),
        why=why,
    )


_BY_CODE: Mapping[str, Callable[[PublishedFinding], Iterator[Correction]]] = {
    "cold_step": _correct_cold_step,
    "impossible_ratio": _correct_subtraction,
    "range_ended_early": _correct_range,
    "peak_carried_over": _correct_peak,
    "swapped_axes": _correct_axes,
    "tf32_as_fp32": _correct_precision,
    "zero_bytes": _correct_zero_bytes,
    "wrong_accumulation": _correct_sum,
}
