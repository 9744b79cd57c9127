"""What is different between two runs, two labels or two machines? Their equal cells, one against the other."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from runner.analysis.compare.pairs import match_closest
from runner.analysis.compare.speedups import compute_ratio
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Missing, Question, Row, View, choose
from runner.answers.keys import make_keys
from runner.answers.shared import CLOCKS, PHASES, about, cells_of, clock_choice, ended, sizes_of
from runner.formats import format_count, format_number
from runner.results import StepResult
from runner.results.rows import Rows, RunSteps
from runner.schema import TABLES

CELL = Field(name="cell", label="Cell")
RATIO = Field(name="ratio", label="Ratio", unit="×", role="value", doc="Time of the first over that of the second.")
LOW = Field(name="low", label="Ratio, low", unit="×", role="low", doc="95% interval.")
HIGH = Field(name="high", label="Ratio, high", unit="×", role="high")
ROUNDS = Field(name="rounds", label="Processes", role="note")
VERDICT = Field(name="outcome", label="Verdict", role="status", doc="Faster or slower where 99% certain and beyond 1%.")
_WORDS = {"better": "faster", "worse": "slower", "same": "undecided"}
#: How runs are put on a side.
_SIDES: Mapping[str, Callable[[RunSteps], str]] = {
    "label": lambda one: one.run.given or one.run.label or "no label",
    "run": lambda one: one.run.name,
    "machine": lambda one: one.run.machine,
}


def answer(rows: Rows, asked: Asked) -> Answer:
    # Runs come latest first; the first of a cell on a side counts.
    sides = {by: list(dict.fromkeys(map(of, rows.by_run))) for by, of in _SIDES.items()}
    by = choose(asked, "by", "Compare", [name for name, found in sides.items() if len(found) > 1], prefix="by ")
    if not by.chosen:
        return Answer(question="compare", missing=(Missing(words="all rows are of one run"),))
    alike = max(combinations(sides[by.chosen], 2), key=lambda names: _count_common(rows.by_run, by.chosen, *names))
    base = choose(asked, "base", "First", sides[by.chosen], default=alike[1])
    others = [name for name in sides[by.chosen] if name != base.chosen]
    other = choose(asked, "other", "Second", others, default=alike[0], prefix="against ")
    pairs = _pair(*(_of_side(rows.by_run, by.chosen, one.chosen) for one in (base, other)))
    clock = clock_choice(asked, [side for pair in pairs for side in pair])
    if not pairs or not clock.chosen:
        return Answer(
            question="compare",
            choices=(by, base, other),
            missing=(Missing(words=f"{base.chosen} and {other.chosen} have no cell in common"),),
        )
    phase = choose(
        asked, "phase", "Phase", [words for words, name in PHASES.items() if any(name in one.times for one, _ in pairs)]
    )
    cells = [one.cell for one, _ in pairs]
    keys, sizes = make_keys(cells), sizes_of([one for one, _ in pairs])
    alone = len({*sizes.values()}) == 1

    def row(pair: tuple[StepResult, StepResult]) -> Row:
        found = compute_ratio(*pair, phase=PHASES[phase.chosen], clock=CLOCKS[clock.chosen])
        times = [
            side.times[PHASES[phase.chosen]].by(CLOCKS[clock.chosen]) if PHASES[phase.chosen] in side.times else None
            for side in pair
        ]
        said = [word for word in keys.values(pair[0].cell)[alone:] if word not in ("–", "as usual")]
        ratio = (found.ratio, found.low, found.high) if found else (None, None, None)
        words = _WORDS[found.outcome] if found else next((ended(side) for side in pair if ended(side)), "no such time")
        values = (
            " · ".join(said),
            *ratio,
            *(time and time.ms for time in times),
            min(one.rounds for one in pair),
            words,
        )
        return Row(values=values, cells=tuple(side.cell_id for side in pair))

    fields = (
        CELL,
        RATIO,
        LOW,
        HIGH,
        *(_time(place, one.chosen) for place, one in enumerate((base, other))),
        ROUNDS,
        VERDICT,
    )
    found = sorted(map(row, pairs), key=lambda row: -abs(math.log(row.values[1])) if row.values[1] else 1)
    words = about(
        [one for pair in pairs for one in pair],
        more=[*([next(iter(sizes.values()))] if alone else []), phase.chosen, clock.chosen],
    )
    view = View(
        name="compare-cells",
        title=f"{base.chosen} over {other.chosen}",
        about=words,
        fields=fields,
        rows=tuple(found),
        draw=Draw(
            kind="dots",
            value="ratio",
            low="low",
            high="high",
            down=("cell",),
            log="x",
            center=1.0,
            guides=(Guide(words=f"← {other.chosen} slower · equal · faster →", at=1.0),),
        ),
        note="Farthest from 1 first. Faint: the 95% interval includes 1.",
    )
    return Answer(
        question="compare",
        sentence=_say(view, base.chosen, other.chosen),
        views=(view,),
        choices=(by, base, other, clock, phase),
        cells=cells_of([side for pair in pairs for side in pair]),
    )


def _say(view: View, base: str, other: str) -> str:
    known = [row for row in view.rows if view.get(row, "ratio") is not None]
    if not known:
        return f"No cell of **{base}** and **{other}** has a time on both sides."
    moved = [row for row in known if view.get(row, "outcome") != "undecided"]
    count = format_count(len(known), "equal cell")
    low, high = (format_number(pick(view.get(row, "ratio") for row in known)) for pick in (min, max))
    if not moved:
        said = f"between **{base}** and **{other}** in {count}"
        return f"**No difference is certain** {said}: ratios lie from {low}× to {high}×."
    first = moved[0]
    rest = f"**{len(moved)} of {count}** differ for certain between **{base}** and **{other}**"
    name = " · ".join(str(view.get(first, "cell")).split(" · ")[:4])
    return f"{rest}; most: {name}, **{format_number(view.get(first, 'ratio'))}×** ({view.get(first, 'outcome')})."


def _time(place: int, side: str) -> Field:
    return Field(name=f"ms_{place}", label=side, unit="ms", role="note")


def _of_side(runs: Sequence[RunSteps], by: str, name: str) -> list[StepResult]:
    found: dict[str, StepResult] = {}
    for one in runs:
        if _SIDES[by](one) == name:
            for step in one.steps:
                found.setdefault(f"{step.machine} {step.cell_key}" if by != "machine" else step.cell_key, step)
    return [one for one in found.values() if one.status != "skipped"]


def _count_common(runs: Sequence[RunSteps], by: str, a: str, b: str) -> int:
    """Returns how many cells two sides have in common: a page opens on the two that can be compared best."""
    keys = [
        {step.cell_key for one in runs if _SIDES[by](one) == name for step in one.steps if step.status == "ok"}
        for name in (a, b)
    ]
    return len(keys[0] & keys[1])


def _pair(base: Sequence[StepResult], other: Sequence[StepResult]) -> list[tuple[StepResult, StepResult]]:
    """Returns the cells of both sides that agree in all of their settings: `analysis.pair(axis="run")` is to be
    this."""
    sides: dict[tuple[object, ...], tuple[list[StepResult], list[StepResult]]] = {}
    for place, steps in enumerate((base, other)):
        for one in steps:
            key = tuple(getattr(one.cell, name) for name in TABLES["steps"].question)
            sides.setdefault(key, ([], []))[place].append(one)
    return [match_closest(a, b) for a, b in sides.values() if a and b]


QUESTION = Question(
    name="compare",
    page="Compare",
    words="What is different between two runs, labels or machines?",
    needs=("by_run",),
    of_file=True,
    answer=answer,
)
