"""A against B, in the terminal: the answer that the page Compare draws, and a gate for continuous integration.

python -m runner compare before after
python -m runner compare precision:fp32 precision:bf16 --format markdown
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.analysis.pair import CLOCKS, Pair
from runner.answers import ask
from runner.answers.answer import Answer, View
from runner.answers.compare import AUTO, NEEDS, list_side, list_sides
from runner.answers.words import PHASES
from runner.cli.options import SPECS
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.render.document import MARKDOWN, write
from runner.render.text import print_answer
from runner.results.rows import OF_CELL, Rows, RunSummary
from runner.schema import Phase, table_of
from runner.store.read import read
from runner.store.read.runs import load_runs
from runner.store.read.selection import Selection

FORMATS = ("text", "markdown")
#: The clocks by the words of the command line.
CLOCK_WORDS = {"auto": AUTO, "latency": "latency", "throughput": "throughput", "gpu": "GPU time"}

#: The clocks by their names in the JSON object.
_IN_JSON = {"throughput": "throughput", "latency": "latency", "GPU time": "device"}
#: How a cell of B may end that worked in A.
_LOST = ("oom", "timeout", "crashed", "error")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of a comparison; `threshold` is how much slower or larger is a regression, as a share. Raises
    UsageError for a format or a clock that there is not."""

    a: str
    b: str
    within: Sequence[str] = ()
    phase: str = "step"
    clock: str = "auto"
    form: str = "text"
    threshold: float | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise UsageError(f"There is no format {self.form!r}.", expected=" or ".join(FORMATS))
        if self.clock not in CLOCK_WORDS:
            raise UsageError(f"There is no clock {self.clock!r}.", expected=", ".join(CLOCK_WORDS))


def compare(console: Terminal, options: CompareOptions, *, db: Path) -> int:
    """Prints how B compares with A; returns 1 when a threshold is asked for and something is worse beyond it."""
    phases = {name: words for words, name in PHASES.items()}
    if options.phase not in phases:
        raise UsageError(f"{options.phase!r} is not compared.", expected=", ".join(phases))
    hidden = [run for run in load_runs(db) if run.is_hidden]
    rows = _narrow(read(db, Selection(hidden=tuple(run.run_id for run in hidden)), NEEDS), options.within)
    sides = list_sides(rows.by_run)
    ids = {one.run.run_id.hex: one.run.name for one in rows.by_run}
    (by, a), (by_b, b) = (resolve(text, sides, ids, hidden) for text in (options.a, options.b))
    if (by, a) == (by_b, b):
        raise UsageError(f"A and B are both {by}:{a}.", expected="two different things to compare")
    if by != by_b:
        raise UsageError(
            f"{by}:{a} cannot be compared with {by_b}:{b}.",
            expected="two runs, labels, machines, commits or values of one setting, such as two precisions",
        )
    asked = {"by": by, "a": a, "b": b, "clock": CLOCK_WORDS[options.clock], "phase": phases[options.phase]}
    answer = ask("compare", rows, asked)
    if not answer.views:
        raise UsageError(f"{answer.missing[0].words}.", expected="cells that both sides have" if answer.missing else "")
    return print_comparison(console, answer, rows, options)


def print_comparison(console: Terminal, answer: Answer, rows: Rows, options: CompareOptions) -> int:
    """Prints a comparison as the options say; returns 1 when a threshold is given and something is worse beyond it."""
    _, a, b = (one.chosen for one in answer.choices[:3])
    if options.as_json:
        console.dump(make_json(answer, rows, a, b))
    elif options.form == "markdown":
        for line in write(answer, MARKDOWN, words=f"{b} against {a}", commands=False).splitlines():
            console.say(line)
    else:
        print_answer(console, replace(answer, choices=()), command=False)
    if (limit := options.threshold) is None:
        return 0
    worse = []
    for view in answer.views:
        for row in view.rows:
            ratio, outcome = view.get(row, "ratio"), str(view.get(row, "outcome"))
            is_lost = ratio is None and " and " not in outcome and any(word in outcome for word in _LOST)
            if (outcome in ("slower", "larger") and 1 / ratio > 1 + limit) or is_lost:
                what = f"{1 / ratio:.3f}× the {'bytes' if outcome == 'larger' else 'time'}" if ratio else outcome
                worse.append(f"{row.values[0]}: {what}")
    if not options.as_json:
        console.say(
            f"Regressions beyond {limit:.0%}: {'; '.join(worse)}" if worse else f"No regression beyond {limit:.0%}."
        )
    return 1 if worse else 0


def percent(text: str) -> float:
    """`5%` or `5` as 0.05. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not match:
        raise UsageError(f"--threshold is {text!r}.", expected="percent, such as 5%")
    return float(match[1]) / 100


def resolve(
    text: str, sides: Mapping[str, Sequence[str]], ids: Mapping[str, str], hidden: Sequence[RunSummary] = ()
) -> tuple[str, str]:
    """Returns the side that a word of the command line means: by what, and its name. Raises UsageError for none and
    for several."""
    prefix, colon, rest = text.partition(":")
    kinds, value = ([prefix], rest) if colon and prefix in sides else (["label", "run"], text)
    for kind in kinds:
        names = [name for name in sides[kind] if name == value] or [
            name for name in sides[kind] if value and _means(kind, value, name, ids)
        ]
        if len(names) > 1:
            shown = ", ".join(f"{kind}:{name}" for name in names[:8])
            raise UsageError(f"{text!r} may be {shown}.", expected="the beginning of one alone")
        if names:
            return kind, names[0]
    for run in hidden:
        if value in (run.label, run.given, run.name) or (value and str(run.run_id).startswith(value)):
            do = f"Show it again: python -m runner note {run.run_id} --hide --remove"
            raise UsageError(f"The run {value!r} is hidden.", expected="a run whose rows count", do=do)
    there = [f"{kind} {', '.join(names[:8])}" for kind, names in sides.items() if names]
    raise UsageError(f"Nothing in the file is called {text!r}.", expected=SPECS, do=f"There are: {'; '.join(there)}.")


def _means(kind: str, value: str, name: str, ids: Mapping[str, str]) -> bool:
    """Returns whether a part of a name is enough: either end of an id, any part of a machine's name."""
    if kind == "machine":
        return value.lower() in name.lower()
    if kind == "run":
        wanted = value.replace("-", "").lower()
        return any(wanted in (known[: len(wanted)], known[-6:]) and named == name for known, named in ids.items())
    return kind == "commit" and (name.startswith(value) or value.startswith(name))


def _narrow(rows: Rows, within: Sequence[str]) -> Rows:
    """Returns the rows of the runs that every `--within` leaves."""
    runs = rows.by_run
    for text in within:
        sides = {kind: names for kind, names in list_sides(runs).items() if kind not in OF_CELL}
        kind, name = resolve(text, sides, {one.run.run_id.hex: one.run.name for one in runs})
        runs = tuple(one for one in runs if name in list_sides([one])[kind])
    if not within:
        return rows
    narrowed: dict[str, Any] = {
        name: tuple(cell for one in runs for cell in getattr(one, kind)) for name, kind in NEEDS.items() if kind
    }
    return replace(rows, by_run=runs, **narrowed)


def make_json(answer: Answer, rows: Rows, a: str, b: str) -> dict[str, Any]:
    """Returns the comparison as one object: every compared cell, peaks of memory, and what was left out."""
    by = answer.choices[0].chosen
    cells = (list_side(rows, by, name, kind) for name in (a, b) for kind in ("steps", "attention"))
    measured = {one.cell_id: one for one in chain.from_iterable(cells)}
    times = [(view, row) for view in answer.views if view.name != "compare-memory" for row in view.rows]
    peaks = [(view, row) for view in answer.views if view.name == "compare-memory" for row in view.rows]
    compared = [(view, row) for view, row in times if view.get(row, "ratio") is not None]
    verdicts = [view.get(row, "outcome") for view, row in compared]
    return {
        "a": a,
        "b": b,
        "phase": next((one.chosen for one in answer.choices if one.name == "phase"), None),
        "rows": [_make_row(answer, measured, view, row) for view, row in compared],
        "memory": [
            {
                "cell": _describe_cell(answer, row),
                **{name: view.get(row, name) for name in ("a_bytes", "b_bytes", "ratio")},
                "verdict": view.get(row, "outcome"),
            }
            for view, row in peaks
        ],
        "left_out": [
            {"cell": _describe_cell(answer, row), "why": view.get(row, "why") or view.get(row, "outcome")}
            for view, row in times
            if view.get(row, "ratio") is None
        ],
        "summary": {word: verdicts.count(word) for word in ("faster", "slower", "same", "undecided")},
    }


def _make_row(answer: Answer, measured: Mapping[UUID, Any], view: View, row: Any) -> dict[str, Any]:
    """Returns one compared cell with its ratio by every clock that both sides have, and the clock that decides."""
    pair = Pair(base=measured[row.cells[0]], other=measured[row.cells[1]])
    phase: Phase = "forward_backward"
    if view.name == "compare-cells":
        phase = next(PHASES[one.chosen] for one in answer.choices if one.name == "phase")
    elif phase not in pair.base.times:
        phase = "forward"
    clocks = {}
    for name, clock in CLOCKS.items():
        if ratio := pair.ratio(phase=phase, clock=clock):
            a_ms, b_ms = ratio.undisturbed or [side.times[phase].by(clock).ms for side in pair.sides]
            clocks[_IN_JSON[name]] = {
                "a_ms": a_ms,
                "b_ms": b_ms,
                **{name: getattr(ratio, name) for name in ("ratio", "low", "high", "level")},
                "verdict": ratio.outcome,
            }
    return {
        "cell": _describe_cell(answer, row),
        "cell_ids": {"a": [str(row.cells[0])], "b": [str(row.cells[1])]},
        "phase": phase,
        "clocks": clocks,
        "clock": _IN_JSON[view.get(row, "clock")],
        "verdict": view.get(row, "outcome"),
        "rounds": {
            name: side.times[phase].step.rounds if phase in side.times else 0
            for name, side in zip("ab", pair.sides, strict=True)
        },
    }


def _describe_cell(answer: Answer, row: Any) -> dict[str, Any]:
    cell = answer.cells[row.cells[0]]
    return {name: getattr(cell, name) for name in table_of(cell).question if getattr(cell, name) is not None}
