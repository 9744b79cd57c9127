"""A against B, in the terminal: the same verdicts as on the page Compare.

    python -m runner compare before after
    python -m runner compare precision:fp32 precision:bf16 --format markdown

A and B are resolved here (`resolve`); rows and verdicts come from `store.queries.compare` and `analysis.verdict`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.table import Table as Grid

from runner.analysis.compare.environments import (
    both_uncommitted,
    describe_differences,
    describe_environment,
)
from runner.analysis.compare.verdict import (
    ComparedPhase,
    Kind,
    Side,
    Verdict,
    compared_values,
    lost,
    select_movers,
    select_regressions,
)
from runner.analysis.compare.verdict_text import (
    RULE,
    change,
    describe_verdict,
    format_amount,
    group_left_out,
    shorten_titles,
    with_basis,
)
from runner.analysis.statistics import Ratio
from runner.cli.terminal import Terminal
from runner.errors import StepscopeError, UsageError
from runner.schema.titles import title
from runner.store.queries.compare import Comparison, ComparisonRequest, load_comparison
from runner.store.queries.sides import OF_RUNS, load_sides

FORMATS = ("text", "markdown")
SPECS = "a run's id or its beginning, a label, or machine:…, commit:…, precision:…, backend:…, label:…, run:…"
#: More lines than these are for the page.
MAX_ROWS, MAX_NAMED = 40, 3


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What the command line said."""

    a: str
    b: str
    within: Sequence[str] = ()
    phase: str = "step"
    form: str = "text"
    threshold: float | None = None


def compare(console: Terminal, asked: CompareOptions, *, db: Path) -> int:
    """Print how B compares with A; returns 1 when a threshold is asked for and something is worse beyond it."""
    if asked.form not in FORMATS:
        raise UsageError(f"There is no format {asked.form!r}.", expected=" or ".join(FORMATS))
    if asked.phase not in get_args(ComparedPhase):
        raise UsageError(f"{asked.phase!r} is not compared.", expected=", ".join(get_args(ComparedPhase)))
    known = load_sides(db)
    request = ComparisonRequest(
        a=resolve(asked.a, known),
        b=resolve(asked.b, known),
        within=tuple(resolve(text, {kind: known[kind] for kind in OF_RUNS}) for text in asked.within),
        phase=asked.phase,  # type: ignore[arg-type]  # one of its words, as has been checked
    )
    found = load_comparison(db, request)
    if not found.verdicts:
        within = "".join(f" within {side.spec}" for side in request.within)
        neither = f"Neither {request.a.spec} nor {request.b.spec}"
        raise UsageError(f"{neither} has a row of steps, attention or memory that is compared{within}.")
    (_print_markdown if asked.form == "markdown" else _print_text)(console, request, found)
    return 0 if asked.threshold is None else _gate(console, found, threshold=asked.threshold)


def percent(text: str) -> float:
    """`5%` or `5` as 0.05. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not match:
        raise UsageError(f"--threshold is {text!r}.", expected="percent, such as 5%")
    return float(match[1]) / 100


# ------------------------------------------------------------------------------------------------------------- A and B


def resolve(text: str, known: Mapping[Kind, Sequence[Side]]) -> Side:
    """The side that a word of the command line means. Raises UsageError for none and for several."""
    prefix, colon, rest = text.partition(":")
    kinds: list[Kind] = [kind for kind in known if colon and kind == prefix] or ["label", "run"]
    value = rest if kinds == [prefix] else text
    for kind in kinds:
        found = [side for side in known[kind] if side.value == value or side.title == value] or [
            side for side in known[kind] if value and _means(value, side)
        ]
        if len(found) > 1:
            raise UsageError(
                f"{text!r} may be {_listed([side.spec for side in found])}.", expected="the beginning of one alone"
            )
        if found:
            return found[0]
    there = [f"{kind} {_listed([side.title for side in known[kind]])}" for kind in known if known[kind]]
    raise UsageError(f"Nothing in the file is called {text!r}.", expected=SPECS, do=f"There are: {'; '.join(there)}.")


def _means(value: str, side: Side) -> bool:
    """Returns whether a part of a name is enough: the beginning of an id, any part of a machine's name."""
    if side.kind == "machine":
        return value.lower() in side.value.lower()
    if side.kind == "run":
        return side.value.replace("-", "").startswith(value.replace("-", "").lower())
    return side.kind == "commit" and side.value.startswith(value)


def _listed(names: Sequence[str], *, most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# ------------------------------------------------------------------------------------------------------------ printing


def _print_text(console: Terminal, request: ComparisonRequest, found: Comparison) -> None:
    say = console.say
    for line in _write_heading(request, found):
        say(line)
    for verdict in found.verdicts:
        say("")
        say(describe_verdict(verdict))
        headings, rows = _make_rows(verdict)
        if rows:
            grid = Grid(box=None, header_style="bold", pad_edge=False)
            for place, name in enumerate(headings):
                grid.add_column(name, justify="right" if place else "left", overflow="fold")
            for row in rows:
                grid.add_row(*row)
            console.print(grid)
        for line in (*_count_unlisted(verdict), *_list_left_out(verdict)):
            say(line)
    say("")
    say(with_basis(RULE, (pair for verdict in found.verdicts for pair in verdict.pairs)))


def _print_markdown(console: Terminal, request: ComparisonRequest, found: Comparison) -> None:
    def say(*lines: str) -> None:
        for line in (*lines, ""):
            console.say(line)

    say(f"### {request.b.title} against {request.a.title}")
    say(*(f"- {line}" for line in _write_heading(request, found)))
    for verdict in found.verdicts:
        say(f"**{describe_verdict(verdict)}**")
        headings, rows = _make_rows(verdict)
        if rows:
            rule = ["---", *["--:"] * (len(headings) - 1)]
            say(*(_piped(row) for row in (headings, rule, *rows)))
        said = [*_count_unlisted(verdict), *_list_left_out(verdict)]
        if said:
            say(*(f"- {line}" for line in said))
    say(with_basis(RULE, (pair for verdict in found.verdicts for pair in verdict.pairs)))


def _piped(row: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in row) + " |"


def _write_heading(request: ComparisonRequest, found: Comparison) -> list[str]:
    """Returns the lines that say what A and B are, and how their environments differ."""
    lines = [
        f"{name}: {side.kind} {side.title}, {describe_environment(runs)}"
        for name, side, runs in (("A", request.a, found.a_runs), ("B", request.b, found.b_runs))
    ]
    lines.append(describe_differences(found.differences))
    if both_uncommitted(found.a_runs, found.b_runs):
        lines.append("Both checkouts had uncommitted changes: the same commit may be different code.")
    return lines


def _make_rows(verdict: Verdict) -> tuple[list[str], list[list[str]]]:
    """Returns the headings and rows of the changes, the largest first."""
    a, b = verdict.sides
    moved = select_movers(verdict)[:MAX_ROWS]
    if not moved:
        return [], []
    shared, names = shorten_titles([pair.named.cell for pair in moved], without=(a.value, b.value))
    headings = [f"cell ({shared})" if shared else "cell", a.title, b.title, f"{b.title} is", "95% interval"]
    rows = [
        [
            name,
            *(format_amount(verdict, value) for value in compared_values(pair)),
            change(verdict, pair),
            _format_interval(pair),
        ]
        for name, pair in zip(names, moved, strict=True)
    ]
    # A peak has no interval.
    return (headings[:-1], [row[:-1] for row in rows]) if verdict.table == "memory" else (headings, rows)


def _format_interval(pair: Ratio) -> str:
    """Returns the interval of the ratio by which B is faster or, where it is slower, slower."""
    if pair.low is None or pair.high is None:
        return ""
    low, high = (pair.low, pair.high) if pair.ratio >= 1 else (1 / pair.high, 1 / pair.low)
    return f"{low:.2f}–{high:.2f}×"


def _count_unlisted(verdict: Verdict) -> list[str]:
    more = len(select_movers(verdict)) - MAX_ROWS
    return [f"… and {more} more, which the page Compare lists."] if more > 0 else []


def _list_left_out(verdict: Verdict) -> list[str]:
    """Returns one line a reason, with the cells and the detail of the first."""
    lines = []
    for reason in group_left_out(verdict):
        cells = [item for item in verdict.left_out if item.reason == reason]
        _, names = shorten_titles([item.named.cell for item in cells[:MAX_NAMED]])
        more = f" and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
        lines.append(f"Left out, {reason}: {'; '.join(names)}{more}. {cells[0].detail}")
    return lines


# ----------------------------------------------------------------------------------------------------- for a pipeline


def _gate(console: Terminal, found: Comparison, *, threshold: float) -> int:
    """Says what regressed; 1 when something did. Raises StepscopeError when nothing could be compared."""
    worse = [
        f"{title(pair.named.cell)}: {change(verdict, pair)}"
        for verdict in found.verdicts
        for pair in select_regressions(verdict, threshold=threshold)
    ]
    gone = [f"{title(item.named.cell)}: {item.reason}" for verdict in found.verdicts for item in lost(verdict)]
    if not gone and not any(verdict.pairs for verdict in found.verdicts):
        raise StepscopeError(
            "No cell of A and B can be compared, so nothing is known of a regression.",
            expected="the same cells measured on both sides",
        )
    count = len(worse) + len(gone)
    words = f"{count:,} regression{'s' if count > 1 else ''}" if count else "No regression"
    for line in (f"{words} beyond {threshold * 100:.3g}%{':' if count else '.'}", *(f"- {it}" for it in worse + gone)):
        console.say(line)
    return 1 if count else 0
