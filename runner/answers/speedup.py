"""What one setting buys over another: the views that precision, torch.compile and the ways of attention share.

A pair differs in `field` alone; every other setting that differs among the pairs and is not drawn becomes a choice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.analysis.pair import CLOCKS, Pair, is_interleaved, pair_cells, partner_key
from runner.analysis.statistics import Ratio
from runner.answers.answer import Answer, Asked, Choice, Draw, Field, Guide, Row, View, choose
from runner.answers.shared import about, cells_of, narrow, place_of, sizes_of, unmeasured
from runner.answers.words import CONTEXT, LEVEL, PHASES, SIZE, ended, explain_level
from runner.formats import at_tokens, format_count, format_number
from runner.results.cells import StepResult
from runner.results.rows import Rows
from runner.results.times import Clock
from runner.schema import Model, Phase

PARAMETERS = Field.of("steps", "parameters", "note")
RATIO = Field("ratio", "Speedup", unit="×", role="value", doc="Time of the first over that of the second.")
LOW = Field("low", "Low", unit="×", role="low", doc="The interval is the one that decides.")
HIGH = Field("high", "High", unit="×", role="high", doc="The interval is the one that decides.")
DEVICE = Field("device_ratio", "By GPU time", unit="×", role="note", doc="Kernels alone.")
DEVICE_OUTCOME = Field("device_outcome", "Verdict by GPU time", role="note", is_long=True)
ROUNDS = Field("rounds", "Processes", role="note", doc="Of the side with fewer.")
VERDICT = Field("outcome", "Verdict", role="status", doc="Faster or slower where the interval excludes 1.")


def ratio_fields(base: str, other: str) -> tuple[Field, ...]:
    """Returns the columns of a ratio: value, interval, the times of both sides, GPU time, processes, verdict."""
    times = [Field(f"{side}_ms", name, unit="ms", role="note") for side, name in
             (("base", base), ("other", other))]  # fmt: skip
    return (RATIO, LOW, HIGH, *times, DEVICE, DEVICE_OUTCOME, LEVEL, ROUNDS, VERDICT)


def ratio_values(pair: Pair[StepResult], *, phase: Phase, clock: Clock) -> tuple[object, ...]:
    """Returns the values of `ratio_fields`."""
    ratio = pair.ratio(phase=phase, clock=clock)
    times = [side.time(phase, clock) for side in pair.sides]
    device = pair.ratio(phase=phase, clock="device") if clock != "device" else None
    lost = [side for side in pair.sides if side.status != "ok"]
    failed = f"{ended(lost[0])}{', both' if len(lost) == 2 else ''}" if lost else pair.objection
    return (
        *((ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)),
        *(time and time.ms for time in times),
        device and device.ratio,
        device and device.outcome,
        ratio and ratio.level,
        min(pair.base.rounds, pair.other.rounds),
        ratio.outcome if ratio else failed or "no such time",
    )


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The pairs that are shown, by one phase and clock."""

    name: str
    base: str
    other: str
    field: str
    pairs: tuple[Pair[StepResult], ...]
    phase: str
    clock: str
    choices: tuple[Choice, ...]
    about: str

    @property
    def by(self) -> Clock:
        return CLOCKS.get(self.clock, "step")

    @property
    def sides(self) -> list[StepResult]:
        return [side for pair in self.pairs for side in pair.sides]

    def answer(self, matrix: View, *more: View, words: str = "") -> Answer:
        """Returns the answer with the matrix, the phases and further views, and with further words."""
        views, cells = (matrix, self.draw_phases(), *more), cells_of(self.sides)
        kernels = [found for row in matrix.rows if (found := matrix.get(row, DEVICE_OUTCOME.name))]
        counted = f"By GPU time it is faster in {kernels.count('faster')} of {len(kernels)}. " if kernels else ""
        words = f"{counted}{words}".strip()
        return Answer(sentence=self.say(matrix), more=words, views=views, choices=self.choices, cells=cells)

    def ratios(self) -> list[Ratio | None]:
        return [pair.ratio(phase=PHASES[self.phase], clock=self.by) for pair in self.pairs]

    def values(self, pair: Pair[StepResult]) -> tuple[object, ...]:
        """Returns the values of `ratio_fields` by the chosen phase and clock."""
        return ratio_values(pair, phase=PHASES[self.phase], clock=self.by)

    def draw_matrix(self) -> View:
        """Returns the ratio of the phase by size and context; places that were not measured have what would."""
        sizes, by_context = sizes_of(self.sides), [pair.base for pair in self.pairs]
        lines = [
            Row.of(pair.sides, *place_of(pair.base, sizes), *self.values(pair), pair.base.parameters)
            for pair in self.pairs
        ]
        fields = (SIZE, CONTEXT, *ratio_fields(self.base, self.other), PARAMETERS)
        gaps = [
            Row(
                values=(sizes[Model.of(one.cell)], column, *[None] * (len(fields) - 4), "", one.parameters),
                wanted=(cell, replace(cell, **{self.field: self.other})),
            )
            for one, column, cell in unmeasured(by_context, across="context")
        ]
        return View(
            name=f"{self.name}-by-size",
            title=f"{self.other} over {self.base}, {self.phase}",
            about=self.about,
            fields=fields,
            rows=(*lines, *gaps),
            draw=Draw("matrix", "ratio", down=("size",), across="context", center=1.0),
            note=f"Time in {self.base} over time in {self.other} by {self.clock}: above 1× {self.other} is faster."
            + explain_level(self.ratios()),
        )

    @property
    def usual_context(self) -> int:
        """The context of most pairs; of two, that with more intervals."""
        contexts = [pair.base.cell.context for pair in self.pairs]
        ratios = zip(contexts, self.ratios(), strict=True)
        pairs, known = Counter(contexts), Counter(one for one, ratio in ratios if ratio and ratio.low is not None)
        return max(pairs, key=lambda one: (pairs[one], known[one]))

    def draw_phases(self) -> View:
        """Returns the ratio of each phase, at the context that most sizes have."""
        sizes, context = sizes_of(self.sides), self.usual_context
        guide = Guide(words="as fast", at=1.0)
        return View(
            name=f"{self.name}-by-phase",
            title=f"By phase{at_tokens(context)}",
            about=self.about,
            fields=(SIZE, Field.of("timings", "phase"), *ratio_fields(self.base, self.other)),
            rows=tuple(
                Row.of(
                    pair.sides, sizes[Model.of(pair.base.cell)], words, *ratio_values(pair, phase=phase, clock=self.by)
                )
                for pair in self.pairs
                if pair.base.cell.context == context
                for words, phase in PHASES.items()
                if pair.ratio(phase=phase, clock=self.by)
            ),
            draw=Draw("dots", "ratio", down=("size", "phase"), series="phase", log="x", center=1.0, guides=(guide,)),
        )

    def say(self, matrix: View) -> str:
        """Returns the headline: how many pairs are decided, and their range with its ends named; where none is, that
        of all."""
        known = [row for row in matrix.rows if matrix.get(row, "ratio") is not None]
        if not known:
            return f"No pair of {self.base} and {self.other} has a time of the {self.phase}."
        decided = [row for row in known if matrix.get(row, "outcome") in ("faster", "slower")]
        ordered = sorted(decided or known, key=lambda row: matrix.get(row, "ratio"))
        ends = " to ".join(
            f"**{format_number(matrix.get(row, 'ratio'))}×** ({_place(row)})" for row in (ordered[0], *ordered[1:][-1:])
        )
        if len(known) == 1:
            outcome = matrix.get(known[0], "outcome")
            return f"{self.other} is {ends} as fast as {self.base}, {outcome} ({self.clock})."
        if not decided:
            apart = f"no pair of {len(known)} is told apart ({self.clock})."
            return f"{self.other} is {ends} as fast as {self.base}, but {apart}"
        faster, slower = (sum(matrix.get(row, "outcome") == name for row in known) for name in ("faster", "slower"))
        counts = f"faster in {faster} of {len(known)} pairs, slower in {slower}"
        return f"{self.other} is {ends} as fast as {self.base}: {counts} ({self.clock})."


def _place(row: Row) -> str:
    return f"{row.values[0]}{at_tokens(row.values[1] or 0)}"


def compare_steps(
    rows: Rows, asked: Asked, *, name: str, field: str, base: str, others: Sequence[str]
) -> Compared | None:
    """Returns the pairs of steps that differ in a field alone; None where there are none. The choice `against` says
    with what the base is compared; plain settings are chosen where the rows have them."""
    steps = [one for one in rows.every_step if one.status != "skipped"]
    values = {getattr(one.cell, field) for one in steps}
    there = [one for one in others if one in values]
    against = choose(asked, "against", f"Against {base}", there)
    of_base, of_other = (
        [one for one in steps if getattr(one.cell, field) == value] for value in (base, against.chosen)
    )
    pairs = {pair.base.cell_id: pair for pair in pair_cells(of_base, of_other, key=lambda one: partner_key(one, field))}
    if not pairs:
        return None
    bases, choices = narrow([pair.base for pair in pairs.values()], asked, drawn=("size", "context", field))
    bases.sort(key=lambda one: (one.cell.model_key is not None, one.cell.order, one.cell.context))
    shown = [pairs[one.cell_id] for one in bases]
    clocks = [words for words, clock in CLOCKS.items() if any(pair.ratio(clock=clock) for pair in shown)]
    clock = choose(asked, "clock", "Clock", clocks)
    by = CLOCKS.get(clock.chosen, "step")
    phases = [words for words, phase in PHASES.items() if any(pair.ratio(phase=phase, clock=by) for pair in shown)]
    phase = choose(asked, "phase", "Phase", phases or [*PHASES][:1])
    sides = [side for pair in shown for side in pair.sides]
    known = [is_interleaved(*pair.sides, "step") for pair in shown if pair.ratio(clock=by)]
    sweeps = [] if all(known) else [f"{known.count(False)} of {format_count(len(known), 'pair')} from two sweeps"]
    return Compared(
        name=name,
        base=base,
        other=against.chosen,
        field=field,
        pairs=tuple(shown),
        phase=phase.chosen,
        clock=clock.chosen or "latency",
        choices=(against, *choices, clock, phase),
        about=about(sides, field, more=[f"{base} → {against.chosen}", clock.chosen, *sweeps]),
    )
