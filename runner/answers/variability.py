"""How much does the time of a step vary within a process, and what explains it?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import about, best, cells_of, narrow, place_of, sizes_of
from runner.answers.words import CONTEXT, SIZE, STATUS, ended, lacks, plain_cells
from runner.formats import at_tokens, format_count, format_list, format_number
from runner.results.cells import PhaseSample, StepResult
from runner.results.rows import Rows
from runner.schema import Cell, Model, StepCell
from runner.schema.sizes import title

#: A standard deviation above this share of the mean is large.
LARGE = 5.0
#: The findings of the audit that explain a large one.
EXPLAINING = frozenset(
    {"busy_machine", "cold_step", "drifting", "machine_drift", "page_faults", "recompiled", "shared_gpu", "throttled"}
)
SHARE = Field(
    "std_share",
    "Standard deviation",
    unit="% of the mean",
    role="value",
    doc="Of the measured steps of a process; over several processes, by their mean variance.",
)
MEAN, STD, N = (Field.of("timings", name, "note") for name in ("mean_ms", "std_ms", "n"))
LEAST = Field("least_ms", "Least", unit="ms", role="note", doc="The shortest measured step.")
MOST = Field("most_ms", "Most", unit="ms", role="note", doc="The longest measured step.")
BETWEEN = Field(
    "between_share",
    "Between processes",
    unit="% of the mean",
    role="note",
    doc="Standard deviation of ln(median) from one process to the next, pooled with that of cells of its kind, and no "
    "less than what the samples within a process account for.",
)
WHY = Field("why", "Explained by", role="note", doc="Findings of the audit that can explain the spread.")
ROUND = Field.of("steps", "round", label="Process")
STEP = Field.of("samples", "step")
SAMPLED = Field.of("samples", "phase")
TIME = Field.of("samples", "duration_ms", "value")
WARMUP = Field.of("samples", "is_warmup", "note")


def answer(rows: Rows, asked: Asked) -> Answer:
    steps = [one for one in rows.steps if one.status != "skipped"]
    shown, choices = narrow(steps, asked, drawn=("size", "context"))
    if not any(_share(one) is not None for one in shown):
        return Answer(choices=tuple(choices), missing=lacks("no step has a standard deviation", plain_cells(StepCell)))
    sizes, reasons = sizes_of(steps), _find_reasons(rows)
    spreads = {one.cell_id: one for one in rows.spreads}
    lines = []
    for one in shown:
        spread, time = spreads.get(one.cell_id), one.times.get("step")
        ends = (spread.least_ms, spread.most_ms) if spread and time else (None, None)
        mean, std, n = (time.mean_ms, time.std_ms, time.n) if time else (None, None, None)
        between = 100 * time.step.std if time and time.step.std is not None else None
        why = ", ".join(sorted(reasons.get((one.machine, one.cell_key), ())))
        lines.append(Row.of(one, *place_of(one, sizes), _share(one), mean, std, *ends, between, why, n, ended(one)))
    matrix = View(
        name="variability",
        title="Spread of a whole step within a process",
        about=about(shown, more=["latency"]),
        fields=(SIZE, CONTEXT, SHARE, MEAN, STD, LEAST, MOST, BETWEEN, WHY, N, STATUS),
        rows=tuple(lines),
        draw=Draw("matrix", "std_share", down=("size",), across="context", log="x"),
        note="Standard deviation over mean of the measured steps.",
    )
    views = [matrix]
    for one in [one for one in shown if one.cell_id in spreads and spreads[one.cell_id].samples][:1]:
        words = f"Every step of the cell that varies most: {sizes[Model.of(one.cell)]}{at_tokens(one.cell.context)}"
        of_one, samples = about([one], more=["latency"]), spreads[one.cell_id].samples
        views.append(draw_steps(one.cell_id, samples, name="variability-samples", title=words, words=of_one))
    return Answer(
        sentence=_say(matrix),
        more=f"{_say_between(matrix)} {_explain(matrix)}".strip(),
        views=tuple(views),
        choices=tuple(choices),
        cells=cells_of(shown),
    )


def _share(one: StepResult) -> float | None:
    time = one.times.get("step")
    return 100 * time.std_ms / time.mean_ms if time and time.std_ms is not None and time.mean_ms else None


def _find_reasons(rows: Rows) -> Mapping[tuple[str, str | None], set[str]]:
    """Returns the explaining findings of each cell of `steps`, over its rounds, by machine and cell key."""
    reasons: dict[tuple[str, str | None], set[str]] = {}
    for row in rows.audited:
        if row.table == "steps":
            codes = {one.code.replace("_", " ") for one in row.findings if one.code in EXPLAINING}
            reasons.setdefault((row.machine, row.row.cell_key), set()).update(codes)
    return reasons


def draw_steps(
    cell_id: UUID, samples: Sequence[PhaseSample], *, name: str, title: str, words: str = "", names_phase: bool = False
) -> View:
    """Draws every step of one cell, each round by itself; with the phase where that need not be the whole step."""
    early = len({one.step for one in samples if one.is_warmup})
    return View(
        name=name,
        title=title,
        about=words,
        fields=(ROUND, STEP, TIME, WARMUP, *([SAMPLED] if names_phase else [])),
        rows=tuple(
            Row(values=(*values, one.phase) if names_phase else values, cells=(cell_id,))
            for one in samples
            for values in [(one.round, one.step, one.duration_ms, one.is_warmup)]
        ),
        draw=Draw("strip", "duration_ms", across="step", series="round", hollow="is_warmup"),
        note=f"The first {format_count(early, 'step')} of each process, drawn hollow, warm up and are in no summary."
        if early
        else "",
    )


def answer_samples(cell_id: UUID, cell: Cell, samples: Sequence[PhaseSample]) -> Answer:
    """Returns every measured step of one cell: what a click on any mark opens."""
    whole = [one for one in samples if one.phase == "step"] or [one for one in samples if one.phase == "forward"]
    measured = sorted(one.duration_ms for one in whole if not one.is_warmup)
    if not measured:
        return Answer(question="samples", sentence="No samples were kept.", cells={cell_id: cell})
    strip = draw_steps(cell_id, whole, name=f"samples-{cell_id}", title=title(cell), names_phase=True)
    processes = format_count(len({one.round for one in whole}), "process")
    reach = f"{format_number(measured[0])} to {format_number(measured[-1])} ms"
    sentence = f"**{len(measured)}** steps in {processes}, {reach}."
    return Answer(question="samples", sentence=sentence, views=(strip,), cells={cell_id: cell})


def _say(view: View) -> str:
    known = [row for row in view.rows if view.get(row, "std_share") is not None]
    small = [row for row in known if view.get(row, "std_share") <= LARGE]
    worst = best(view)
    assert worst is not None
    return (
        f"Within a process the standard deviation of a step is at most {LARGE:.0f}% of its mean in **{len(small)} of "
        f"{len(known)}** cells; **{worst.values[0]}**{at_tokens(worst.values[1] or 0)} has the most, "
        f"**{format_number(view.get(worst, 'std_share'))}%**."
    )


def _say_between(view: View) -> str:
    known = [row for row in view.rows if view.get(row, "between_share") is not None]
    worst = max(known, key=lambda row: view.get(row, "between_share"), default=None)
    if worst is None:
        return ""
    share, place = view.get(worst, "between_share"), f"{worst.values[0]}{at_tokens(worst.values[1] or 0)}"
    return f"Between processes the standard deviation of the median is {format_number(share)}% at most ({place})."


def _explain(view: View) -> str:
    large = [row for row in view.rows if (view.get(row, "std_share") or 0.0) > LARGE]
    if not large:
        return ""
    codes = Counter(code for row in large for code in view.get(row, "why").split(", ") if code)
    explained = sum(bool(view.get(row, "why")) for row in large)
    if not explained:
        return f"The audit does not explain {'it' if len(large) == 1 else f'any of the {len(large)} larger ones'}."
    if len(large) == 1:
        return f"The audit can explain it: {format_list(list(codes))}."
    named = format_list([f"{code} ({count})" for code, count in codes.most_common()])
    worst = best(view)
    why = view.get(worst, "why") if worst else ""
    most = f" The finding of the cell that varies most: {why}." if why else ""
    return f"The audit can explain {explained} of the {format_count(len(large), 'larger one')}: {named}.{most}"


QUESTION = Question(answer=answer, needs=("steps", "spreads", "audited"), course=("B2",))
