"""B1 and B2: how long the phases of a step take, and how much that varies."""

from collections.abc import Mapping, Sequence
from statistics import median
from uuid import UUID

from runner.formats import format_ms, format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import Footnotes, make_footnotes
from runner.report.keys import Keys, make_keys
from runner.report.rows import Rows
from runner.report.text import (
    NONE,
    count,
    describe_failures,
    describe_status,
    format_interval,
    format_optional,
    format_share,
    format_spread,
    join,
)
from runner.report.wanted import wanted_cells
from runner.results import Clock, Measured, PhaseTime
from runner.schema import Cell, Phase, StepCell
from runner.schema.titles import WORDS, title
from runner.store.queries.noise import load_known_noise
from runner.store.queries.raw import load_samples

_PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer", "step")
#: The order of modes in a table.
_MODES = ("train", "backward", "forward", "inference")
#: A standard deviation above this share of the mean is large.
LARGE = 0.05
#: So many raw samples of one process are printed.
_MAX_SAMPLES = 30
#: The fields of a plain step: their defaults, in fp32.
_PLAIN: Mapping[str, str | int] = {
    "precision": "fp32",
    "backend": "eager",
    "attention": "naive",
    "optimizer": "foreach",
    "weights_dtype": "fp32",
    "checkpoint_blocks": 0,
}
_MEANS = (
    "Mean ± sample standard deviation of the measured steps within a process, in ms; of several processes (rounds) the "
    "mean of both. n counts the measured steps of all rounds, warm-up left out. Every step is waited for."
)
_MEDIANS = (
    "Median over the measured steps, of several processes their geometric mean, with the 95% interval of the time that "
    "holds from process to process on this machine, in ms. [unknown]: no cell of the kind was repeated."
)
_CLOCKS = " In a loop: steps that follow each other without waiting. Device: what the GPU needs if it never waits."


def usual_cells(cells: Sequence[Measured]) -> list[Measured]:
    """Returns the plain cells: fp32, eager, nothing changed. All where no plain one trains or has a result."""
    plain = [cell for cell in cells if all(getattr(cell.cell, name) == value for name, value in _PLAIN.items())]
    done = any(cell.status == "ok" and cell.cell.mode in ("backward", "train") for cell in plain)
    chosen = plain if done else [cell for cell in cells if cell.status != "skipped"]
    return sorted(chosen, key=lambda cell: _MODES.index(cell.cell.mode))


def _answer_times(rows: Rows) -> Answer:
    cells = usual_cells(rows.steps)
    done = [cell for cell in cells if "step" in cell.times]
    if not done:
        return Answer(lacks=f"no step has a time. {describe_failures(cells)}".strip())
    notes, keys = make_footnotes(rows, cells, "steps"), make_keys([cell.cell for cell in cells])
    lacks = "" if any("optimizer" in cell.times for cell in done) else "no training step with its optimizer was timed"
    return Answer(
        sentence=_describe_longest(done, lost=len(cells) - len(done)),
        tables=(_make_means(cells, keys, notes), _make_medians(cells, keys, notes)),
        footnotes=notes.texts,
        behind=behind(cells),
        lacks=lacks,
    )


def _describe_longest(done: Sequence[Measured], *, lost: int) -> str:
    longest = max(done, key=lambda cell: cell.times["step"].median_ms)
    step = longest.times["step"]
    parts = {phase: longest.times[phase].median_ms for phase in _PHASES[:-1] if phase in longest.times}
    whole = sum(parts.values())
    shares = [
        f"{WORDS[phase]} {format_ms(ms)} ({format_share(ms / whole)})"
        for phase, ms in sorted(parts.items(), key=lambda item: -item[1])
    ]
    known = (
        ""
        if step.low_ms is None
        else f" (95% interval {format_number(step.low_ms)}–{format_number(step.high_ms or 0)} ms)"
    )
    start = f"The longest step, {title(longest.cell)}, takes {format_ms(step.median_ms)}{known}"
    split = f": {join(shares)}" if len(shares) > 1 else ""
    failed = f" {count(lost, 'cell')} of {lost + len(done)} ended without a result; the table says how." if lost else ""
    return f"{start}{split}.{_describe_host(done)}{failed}"


def _describe_host(done: Sequence[Measured]) -> str:
    """Says of how many cells the host sets the time; empty for none."""
    bound = sum(cell.bound == "host" for cell in done)
    if not bound:
        return ""
    start = f"The host sets the time of {bound} of {len(done)} cells"
    return f" {start}: their device waits, and a longer context may seem to be free."


def _make_means(cells: Sequence[Measured], keys: Keys, notes: Footnotes) -> ReportTable:
    phases = [phase for phase in _PHASES if any(phase in cell.times for cell in cells)]

    def write(time: PhaseTime) -> str:
        return format_spread(time.mean_ms, time.std_ms)

    lines = []
    for cell in cells:
        n = cell.times["step"].n if "step" in cell.times else None
        values = (*_write_phases(cell, phases, write), format_optional(n) if n is None else f"{n:,}")
        lines.append(Line(values=(*keys.values(cell.cell), *values), marks=notes.marks(cell.cell_id)))
    headings = (*keys.headings, *(f"{WORDS[phase].capitalize()} (ms)" for phase in phases), "n")
    failures = describe_failures(cells)
    return ReportTable(
        caption=f"Mean ± standard deviation of each phase: {keys.shared}",
        headings=headings,
        lines=tuple(lines),
        note=f"{_MEANS} {failures}".strip(),
    )


def _write_phases(cell: Measured, phases: Sequence[Phase], write: "object") -> list[str]:
    if cell.status != "ok":
        return [*[NONE] * (len(phases) - 1), describe_status(cell)]
    assert callable(write)
    return [str(write(cell.times[phase])) if phase in cell.times else NONE for phase in phases]


def _make_medians(cells: Sequence[Measured], keys: Keys, notes: Footnotes) -> ReportTable:
    phases = [phase for phase in _PHASES if any(phase in cell.times for cell in cells)]
    clocks: tuple[Clock, ...] = ("loop", "device")
    known = [clock for clock in clocks if any(time.by(clock) for cell in cells for time in cell.times.values())]

    def write(time: PhaseTime) -> str:
        return format_interval(time.median_ms, time.low_ms, time.high_ms)

    lines = []
    for cell in cells:
        step = cell.times.get("step")
        others = [found.ms if step and (found := step.by(clock)) else None for clock in known]
        bound = [cell.bound or NONE] if known else []
        values = (*_write_phases(cell, phases, write), *map(format_optional, others), *bound, str(cell.rounds))
        lines.append(Line(values=(*keys.values(cell.cell), *values), marks=notes.marks(cell.cell_id)))
    more = {"loop": "In a loop (ms)", "device": "Device (ms)"}
    headings = (
        *keys.headings,
        *(f"{WORDS[phase].capitalize()} (ms)" for phase in phases),
        *(more[clock] for clock in known),
        *(["Set by"] if known else []),
        "Rounds",
    )
    return ReportTable(
        caption=f"Median and 95% interval of each phase: {keys.shared}",
        headings=headings,
        lines=tuple(lines),
        note=_MEDIANS + (_CLOCKS if known else ""),
    )


def _want_times(rows: Rows) -> list[StepCell]:
    cells = wanted_cells(rows, "benchmark", StepCell)
    return [cell for cell in cells if cell.mode == "train" and cell.warmup_steps == 5]


# ------------------------------------------------------------------------------------------------------------------- B2


def _answer_variability(rows: Rows) -> Answer:
    cells = [cell for cell in usual_cells(rows.steps) if cell.times.get("step")]
    known = {cell.cell_id: share for cell in cells if (share := _share_of_std(cell)) is not None}
    if not known:
        return Answer(lacks="no step has a standard deviation")
    shown = [cell for cell in cells if cell.cell_id in known]
    notes, keys = make_footnotes(rows, shown, "steps"), make_keys([cell.cell for cell in shown])
    noisiest = max(shown, key=lambda cell: known[cell.cell_id])
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
        sentence=_describe_spread(rows, shown, known, notes),
        tables=(table, _make_samples(rows, noisiest)),
        footnotes=notes.texts,
        behind=behind(shown),
    )


def _share_of_std(cell: Measured) -> float | None:
    step = cell.times["step"]
    return step.std_ms / step.mean_ms if step.std_ms is not None and step.mean_ms else None


def _load_extremes(rows: Rows, cells: Sequence[Measured]) -> dict[UUID, tuple[float, float]]:
    """Returns the least and the most time of a measured step of each cell, over its rounds (ms)."""
    found: dict[UUID, tuple[float, float]] = {}
    for cell in cells:
        times = [ms for _, _, is_warmup, ms in load_whole_steps(rows, cell) if not is_warmup]
        if times:
            found[cell.cell_id] = (min(times), max(times))
    return found


def load_whole_steps(rows: Rows, cell: Measured) -> list[tuple[int, int, bool, float]]:
    """Returns round, step, whether it was warm-up, and time (ms) of every step of a cell."""
    steps: dict[tuple[int, int, bool], dict[Phase, float]] = {}
    for sample in load_samples(rows.path, "steps", cell.cell_id):
        steps.setdefault((sample.round, sample.step, sample.is_warmup), {})[sample.phase] = sample.duration_ms
    parts = _PHASES[:-1]
    return [
        (*key, phases.get("step", sum(phases.get(phase, 0.0) for phase in parts)))
        for key, phases in sorted(steps.items())
    ]


def _describe_spread(rows: Rows, cells: Sequence[Measured], known: Mapping[UUID, float], notes: Footnotes) -> str:
    large = [cell for cell in cells if known[cell.cell_id] > LARGE]
    worst = max(cells, key=lambda cell: known[cell.cell_id])
    typical = median(known.values())
    start = (
        f"Within a process the standard deviation of the step is {typical:.1%} of its mean in the median cell, and "
        f"{known[worst.cell_id]:.1%} at most ({title(worst.cell)}); "
    )
    start += f"it is small, at most {LARGE:.0%}, in {len(cells) - len(large)} of {len(cells)} cells."
    explained = sum(bool(notes.marks(cell.cell_id)) for cell in large)
    why = f" Of the {len(large)} above that, the findings below say something of {explained}." if large else ""
    kinds = [item for item in load_known_noise(rows.path) if item.kind.machine == rows.machine]
    kinds = [item for item in kinds if item.table == "steps" and item.kind.clock == "step"]
    between = [
        f"{f'{item.kind.bound}-bound ' if item.kind.bound else ''}steps by {item.noise.std:.1%} "
        f"({count(item.noise.cells, 'repeated cell')})"
        for item in kinds
    ]
    if not between:
        return f"{start}{why} No cell was repeated, so that it is not known how much processes differ."
    return f"{start}{why} From process to process the medians of equal cells vary, too: {join(between)}."


def _make_samples(rows: Rows, cell: Measured) -> ReportTable:
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


def _want_any(rows: Rows) -> list[Cell]:
    return [*_want_times(rows)]


QUESTIONS = (
    Question[Rows](
        id="B1",
        text="How long do forward pass, backward pass and optimizer take at each size?",
        page="training-step",
        answer=_answer_times,
        wanted=_want_times,
    ),
    Question[Rows](
        id="B2",
        text="Is the variability small?",
        page="trust",
        answer=_answer_variability,
        wanted=_want_any,
    ),
)
