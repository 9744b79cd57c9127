"""A verdict in words, the same in the terminal and on the page.

    print(describe_verdict(verdict))   # Steps: after is 1.25× faster than before (geometric mean of 12 comparable …)

Limits: English only. The numbers are in `verdict`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from runner.analysis.compare.host_bound import describe_shares
from runner.analysis.compare.verdict import Compared, Verdict, host_share
from runner.analysis.statistics import DECIDED, DECIDED_ALONE, MIN_DIFFERENCE, OWN_ROUNDS, Outcome, Ratio
from runner.formats import format_bytes, format_ms, format_number, format_times
from runner.schema import Cell
from runner.schema.titles import title

NAMES: Mapping[Compared, str] = {"steps": "Steps", "attention": "Attention", "memory": "Peak memory"}
#: The words for an outcome, of times and of peaks.
TIMED: Mapping[Outcome, str] = {"better": "faster", "worse": "slower", "same": "undecided"}
HELD: Mapping[Outcome, str] = {"better": "smaller", "worse": "larger", "same": "within 1%"}
#: The explanation of intervals below every figure of ratios.
INTERVALS = (
    "Intervals hold for the next process on this machine; where none is drawn, no cell of the kind was repeated, so "
    "that it is not known how much processes differ."
)
#: The interval of a ratio that a verdict needs to exclude 1.
DECIDING_INTERVAL = f"{DECIDED:.0%} interval ({DECIDED_ALONE:.1%} from {OWN_ROUNDS} rounds on)"
#: What a ratio rests on where it is of undisturbed times.
_UNDISTURBED = (
    f"On a CPU, cells with {OWN_ROUNDS} rounds or more on both sides are compared by their undisturbed times, the 10th "
    "percentile of each process, because neighbors of a CPU only add time."
)
RULE = (
    f"Faster or slower: the {DECIDING_INTERVAL} of the ratio, which holds for the next process, excludes 1× and the "
    "ratio is more than 1% away from it; everything else is undecided. Peaks of memory have no interval: smaller or "
    "larger is more than 1%."
)


def with_basis(text: str, ratios: Iterable[Ratio | None]) -> str:
    """Returns an explanation of these ratios, which also says so where one of them is of undisturbed times."""
    return f"{text} {_UNDISTURBED}" if any(one and one.undisturbed for one in ratios) else text


def name_outcomes(verdict: Verdict) -> Mapping[Outcome, str]:
    """Returns the words for better, worse and the same in this table."""
    return HELD if verdict.table == "memory" else TIMED


def describe_verdict(verdict: Verdict) -> str:
    """Returns the answer: how B compares on average, how many cells changed each way, how many were left out and why,
    and which sides are host-bound."""
    host = describe_shares([host_share(pair) for pair in verdict.pairs])
    return f"{_describe_result(verdict)} {host}".rstrip()


def _describe_result(verdict: Verdict) -> str:
    start = f"{NAMES[verdict.table]}: {_describe_mean(verdict)}"
    if not verdict.left_out:
        return f"{start}."
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in group_left_out(verdict).items())
    return f"{start}; {len(verdict.left_out):,} left out ({reasons})."


def _describe_mean(verdict: Verdict) -> str:
    a, b = (side.title for side in verdict.sides)
    if verdict.mean is None:
        return "nothing can be compared"
    counts = ", ".join(f"{verdict.outcomes[outcome]:,} {word}" for outcome, word in name_outcomes(verdict).items())
    return f"{b} {_compare_mean(verdict)} {a} ({_describe_pairs(verdict)}): {counts}"


def _describe_pairs(verdict: Verdict) -> str:
    number = len(verdict.pairs)
    unit = ("peak" if verdict.table == "memory" else "cell") + ("s" if number > 1 else "")
    mean = "geometric mean of " if number > 1 else ""
    phase = "" if verdict.phase == "step" or verdict.table == "memory" else f", {verdict.phase} pass"
    return f"{mean}{number:,} comparable {unit}{phase}"


def _compare_mean(verdict: Verdict) -> str:
    assert verdict.mean
    if max(verdict.mean, 1 / verdict.mean) <= 1 + MIN_DIFFERENCE:
        return "needs as much memory as" if verdict.table == "memory" else "is as fast as"
    better = verdict.mean > 1
    if verdict.table == "memory":
        return f"needs {format_times(verdict.mean)} {'less' if better else 'more'} memory than"
    if not {"better", "worse"} & {*verdict.outcomes}:
        return f"takes {format_number(1 / verdict.mean)}× as long as"
    return f"is {format_times(verdict.mean)} {'faster' if better else 'slower'} than"


def format_amount(verdict: Verdict, value: float) -> str:
    """Formats a peak in bytes or a time in ms with three digits."""
    return format_bytes(value) if verdict.table == "memory" else f"{format_ms(value)}"


def group_left_out(verdict: Verdict) -> dict[str, int]:
    """Returns the cells by reason, most frequent first."""
    return dict(Counter(item.reason for item in verdict.left_out).most_common())


def change(verdict: Verdict, pair: Ratio) -> str:
    """Formats a ratio as a change: `1.25× faster`."""
    better = pair.ratio >= 1
    return f"{format_times(pair.ratio)} {name_outcomes(verdict)['better' if better else 'worse']}"


def shorten_titles(cells: Sequence[Cell], *, without: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Returns the parts that all titles share, and each title without them. `without` are words to drop from every
    title."""
    parts = [[part for part in title(cell).split(" · ") if part not in without] for cell in cells]
    shared = [part for part in parts[0] if all(part in other for other in parts)] if len(parts) > 1 else []
    rest = [[part for part in own if part not in shared] for own in parts]
    if not all(rest):
        return "", [" · ".join(own) for own in parts]
    return " · ".join(shared), [" · ".join(own) for own in rest]
