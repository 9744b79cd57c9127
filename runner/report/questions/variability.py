"""B2: how much the time of a step varies, within a process and from one to the next, and what explains it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from uuid import UUID

from runner.answers.keys import make_keys
from runner.formats import format_count, format_list, format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import make_footnotes
from runner.report.questions.times import PHASES, usual_cells, want_times
from runner.report.rows import Rows
from runner.report.text import MAX_LINES, NONE, format_optional, format_spread
from runner.results import StepResult
from runner.schema import Phase
from runner.schema.titles import title
from runner.store.queries.noise import load_known_noise
from runner.store.queries.raw import load_samples

#: A standard deviation above this share of the mean is large.
LARGE = 0.05
#: The findings that explain a large one.
_EXPLAINING = frozenset(
    {"busy_machine", "cold_step", "drifting", "machine_drift", "page_faults", "recompiled", "shared_gpu", "throttled"}
)
#: The most raw samples of one process that are printed.
_MAX_SAMPLES = 30


def _answer_variability(rows: Rows) -> Answer:
    cells = [cell for cell in usual_cells(rows.steps) if cell.times.get("step")]
    known = {cell.cell_id: share for cell in cells if (share := _share_of_std(cell)) is not None}
    if not known:
        return Answer(lacks="no step has a standard deviation")
    every = [cell for cell in cells if cell.cell_id in known]
    shown = every[: MAX_LINES + 1]
    notes, keys = make_footnotes(rows, shown, "steps"), make_keys([cell.cell for cell in shown])
    noisiest = max(every, key=lambda cell: known[cell.cell_id])
    lines, spread = [], _load_extremes(rows, shown)
    for cell in shown:
        step, ends = cell.times["step"], spread.get(cell.cell_id, (None, None))
        numbers = (f"{step.n or 0:,}", format_spread(step.mean_ms, step.std_ms), f"{known[cell.cell_id]:.1%}")
        between = step.step.std
        rest = (*map(format_optional, ends), NONE if between is None else f"{between:.1%}")
        marks = notes.marks(cell.cell_id)
        lines.append(Line(values=(*keys.values(cell.cell), *numbers, *rest), marks=marks))
    table = ReportTable(
        caption=f"Spread of the whole step: {keys.shared}",
        headings=(*keys.headings, "n", "Mean ± std (ms)", "Std / mean", "Least (ms)", "Most (ms)", "Between processes"),
        lines=tuple(lines),
        note="Standard deviation within a process, least and most over all measured steps. Between processes: standard "
        "deviation of ln(median) from one process to the next, of this cell's rounds and of equal cells of its kind.",
    )
    return Answer(
        sentence=_describe_spread(rows, every, known),
        tables=(table, _make_samples(rows, noisiest)),
        footnotes=notes.texts,
        behind=behind(shown),
    )


def _share_of_std(cell: StepResult) -> float | None:
    step = cell.times["step"]
    return step.std_ms / step.mean_ms if step.std_ms is not None and step.mean_ms else None


def _load_extremes(rows: Rows, cells: Sequence[StepResult]) -> dict[UUID, tuple[float, float]]:
    """Returns the least and the most time of a measured step of each cell, over its rounds (ms)."""
    found: dict[UUID, tuple[float, float]] = {}
    for cell in cells:
        times = [ms for _, _, is_warmup, ms in load_whole_steps(rows, cell) if not is_warmup]
        if times:
            found[cell.cell_id] = (min(times), max(times))
    return found


def load_whole_steps(rows: Rows, cell: StepResult) -> list[tuple[int, int, bool, float]]:
    """Returns round, step, whether it was warm-up, and time (ms) of every step of a cell."""
    steps: dict[tuple[int, int, bool], dict[Phase, float]] = {}
    for sample in load_samples(rows.path, "steps", cell.cell_id):
        steps.setdefault((sample.round, sample.step, sample.is_warmup), {})[sample.phase] = sample.duration_ms
    parts = PHASES[:-1]
    return [
        (*key, phases.get("step", sum(phases.get(phase, 0.0) for phase in parts)))
        for key, phases in sorted(steps.items())
    ]


def _describe_spread(rows: Rows, cells: Sequence[StepResult], known: Mapping[UUID, float]) -> str:
    large = [cell for cell in cells if known[cell.cell_id] > LARGE]
    worst = max(cells, key=lambda cell: known[cell.cell_id])
    typical = median(known.values())
    start = (
        f"Within a process the standard deviation of the step is {typical:.1%} of its mean in the median cell, and "
        f"{known[worst.cell_id]:.1%} at most ({title(worst.cell)}); "
    )
    start += f"it is small, at most {LARGE:.0%}, in {len(cells) - len(large)} of {len(cells)} cells."
    why = f" {_explain_spread(rows, large)}" if large else ""
    kinds = [item for item in load_known_noise(rows.path) if item.kind.machine == rows.machine]
    kinds = [item for item in kinds if item.table == "steps" and item.kind.clock == "step"]
    between = [
        f"{f'{item.kind.bound}-bound ' if item.kind.bound else ''}steps by {item.noise.std:.1%} "
        f"({format_count(item.noise.cells, 'repeated cell')})"
        for item in kinds
    ]
    if not between:
        return f"{start}{why} No cell was repeated, so that it is not known how much processes differ."
    return f"{start}{why} From process to process the medians of equal cells vary, too: {format_list(between)}."


def _explain_spread(rows: Rows, large: Sequence[StepResult]) -> str:
    """Says of how many cells of large spread the audit knows a reason, and which."""
    found = rows.findings(large, "steps")
    reasons = [{one.code for findings in rounds for one in findings} & _EXPLAINING for rounds in found.values()]
    explained = sum(map(bool, reasons))
    if not explained:
        return f"The audit found no explanation for the {len(large)} above that."
    most = Counter(code for codes in reasons for code in codes).most_common()
    named = format_list([f"{code.replace('_', ' ')} ({many})" for code, many in most])
    return f"The audit found what can explain it in {explained} of the {len(large)} above that: {named}."


def _make_samples(rows: Rows, cell: StepResult) -> ReportTable:
    """Returns the raw samples of the cell that varies most, one line a round."""
    rounds: dict[int, list[str]] = {}
    for number, _, is_warmup, ms in load_whole_steps(rows, cell):
        rounds.setdefault(number, []).append(f"({format_number(ms)})" if is_warmup else format_number(ms))
    lines = [
        Line(values=(str(number), " ".join(times[:_MAX_SAMPLES]) + (" …" if len(times) > _MAX_SAMPLES else "")))
        for number, times in rounds.items()
    ]
    return ReportTable(
        caption=f"Raw samples of the cell that varies most: {title(cell.cell)}",
        headings=("Round", "Whole steps in order (ms)"),
        lines=tuple(lines),
        note=f"Warm-up steps in parentheses; the first {_MAX_SAMPLES} steps of each process.",
    )


QUESTIONS = (
    Question[Rows](
        id="B2", text="Is the variability small?", page="trust", answer=_answer_variability, wanted=want_times
    ),
)
