"""B1: how long the phases of a step take."""

from collections.abc import Mapping, Sequence

from runner.answers.keys import Keys, make_keys
from runner.formats import format_count, format_list, format_ms, format_number, format_share
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import Footnotes, make_footnotes
from runner.report.rows import Rows
from runner.report.text import NONE, describe_failures, format_estimate, format_optional, format_spread
from runner.report.wanted import wanted_cells
from runner.results import Clock, PhaseTime, StepResult
from runner.schema import Phase, StepCell
from runner.schema.titles import WORDS, describe_status, title

PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer", "step")
#: The order of modes in a table.
_MODES = ("train", "backward", "forward", "inference")
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
    "Median over the measured steps, of several processes their geometric mean (from 8 on without the outermost), with "
    "the 95% interval of the time that holds from process to process on this machine, in ms. [unknown]: no cell of the "
    "kind was repeated."
)
_CLOCKS = " In a loop: steps that follow each other without waiting. Device: what the GPU needs if it never waits."


def usual_cells(cells: Sequence[StepResult]) -> list[StepResult]:
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


def _describe_longest(done: Sequence[StepResult], *, lost: int) -> str:
    longest = max(done, key=lambda cell: cell.times["step"].median_ms)
    step = longest.times["step"]
    parts = {phase: longest.times[phase].median_ms for phase in PHASES[:-1] if phase in longest.times}
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
    split = f": {format_list(shares)}" if len(shares) > 1 else ""
    of_all = f"{format_count(lost, 'cell')} of {lost + len(done)}"
    failed = f" {of_all} ended without a result; the table says how." if lost else ""
    return f"{start}{split}.{_describe_host(done)}{failed}"


def _describe_host(done: Sequence[StepResult]) -> str:
    """Says of how many cells the host sets the time; empty for none."""
    bound = sum(cell.bound == "host" for cell in done)
    if not bound:
        return ""
    start = f"The host sets the time of {bound} of {len(done)} cells"
    return f" {start}: their device waits, and a longer context may seem to be free."


def _make_means(cells: Sequence[StepResult], keys: Keys, notes: Footnotes) -> ReportTable:
    phases = [phase for phase in PHASES if any(phase in cell.times for cell in cells)]

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


def _write_phases(cell: StepResult, phases: Sequence[Phase], write: "object") -> list[str]:
    if cell.status != "ok":
        return [*[NONE] * (len(phases) - 1), describe_status(cell)]
    assert callable(write)
    return [str(write(cell.times[phase])) if phase in cell.times else NONE for phase in phases]


def _make_medians(cells: Sequence[StepResult], keys: Keys, notes: Footnotes) -> ReportTable:
    phases = [phase for phase in PHASES if any(phase in cell.times for cell in cells)]
    clocks: tuple[Clock, ...] = ("loop", "device")
    known = [clock for clock in clocks if any(time.by(clock) for cell in cells for time in cell.times.values())]

    def write(time: PhaseTime) -> str:
        return format_estimate(time.median_ms, time.low_ms, time.high_ms)

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


def want_times(rows: Rows) -> list[StepCell]:
    cells = wanted_cells(rows, "benchmark", StepCell)
    return [cell for cell in cells if cell.mode == "train" and cell.warmup_steps == 5]


QUESTIONS = (
    Question[Rows](
        id="B1",
        text="How long do forward pass, backward pass and optimizer take at each size?",
        page="training-step",
        answer=_answer_times,
        wanted=want_times,
    ),
)
