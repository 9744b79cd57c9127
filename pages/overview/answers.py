"""The sentences of Overview: what was measured on what, by whose command, and the best way to run each size."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pages.figures.frame import format_named_interval
from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted
from runner.analysis.audit.findings import Grade
from runner.analysis.audit.report import AuditedRow
from runner.analysis.compare.best import BestWay
from runner.analysis.compare.counterfactuals import PLAIN
from runner.formats import at_tokens, cut_text, format_count, format_ms, format_number
from runner.report.head import describe_machine, describe_versions
from runner.results import RunSummary
from runner.schema import RunRow, StepCell
from runner.schema.own import is_unread

#: What the words of this page mean, where they first appear.
WORDS = (
    "A cell is one combination of settings; a round measures it in a process of its own. A 95% interval says where the "
    "time of the next process is expected. Grades go from A (nothing found against a row) to D (its number does not "
    "mean what it says)."
)
#: The letters of a command that stand on top; the table of runs has all.
_MAX_COMMAND = 120
#: What an option is called in a sentence, where its value does not say it.
_OPTIONS = {"weights_dtype": "{} weights", "attention": "{} attention", "optimizer": "{} optimizer",
            "checkpoint_blocks": "checkpointing {}"}  # fmt: skip


def describe_counts(runs: Sequence[RunSummary], machines: Sequence[str]) -> str:
    """Says how many cells were measured, and how the others ended."""
    ok, failed, skipped = (sum(getattr(run, name) for run in runs) for name in ("ok", "failed", "skipped"))
    where = f"{format_count(len(runs), 'run')} on {format_count(len(machines), 'machine')}"
    return (
        f"**{format_count(ok, 'measured cell')}** from {where}"
        + (f"; {', '.join(ended)}" if (ended := _describe_ended(failed, skipped)) else "")
        + "."
    )


def _describe_ended(failed: int, skipped: int) -> list[str]:
    ended = [f"{failed:,} ended without a result"] if failed else []
    return ended + ([f"{skipped:,} {'was' if skipped == 1 else 'were'} skipped"] if skipped else [])


def describe_study(machine: str, runs: Sequence[RunSummary], details: Sequence[RunRow]) -> str:
    """Lists the machine, its software, when it measured and the latest command; `runs` are those of the machine, newest
    first."""
    lines = [
        ("Machine", literal(describe_machine(machine, details))),
        ("Software", literal(describe_versions(details))),
    ]
    dates = sorted(run.started_at for run in runs if run.started_at)
    if dates:
        first, last = (f"{date:%Y-%m-%d %H:%M}" for date in (dates[0], dates[-1]))
        spread = f"from {first} to {last}" if first != last else first
        lines.append(("Measured", f"{spread} UTC, in {format_count(len(runs), 'run')}"))
    latest = next((run for run in runs if run.argv), None)
    if latest:
        others = f", the latest of {len(runs)}: {literal(latest.name)}" if len(runs) > 1 else ""
        lines.append(("Command", f"{quoted(cut_text(latest.argv or '', longest=_MAX_COMMAND))}{others}"))
    return "  \n".join(f"**{name}:** {words}" for name, words in lines if words)


def describe_best(frame: Frame, best: BestWay) -> str:
    """Says how fast a step can be, with what, and against the plain one."""
    cell, step = best.cell.cell, best.cell.times["step"]
    start = f"**{frame.size_of(cell).split(' · ')[0]}**{at_tokens(cell.context)}: **{format_ms(step.median_ms)}** "
    start += f"({format_named_interval(step.low_ms, step.high_ms, unit='ms')}) with {name_options(cell)}"
    if best.tried == 1:
        return f"{start}, the only way measured."
    if best.speedup is None or best.plain is best.cell:
        against = f", the fastest of {best.tried} ways"
    elif best.plain in best.rivals and len(best.rivals) == 1:
        times = format_number(best.speedup.ratio)
        return f"{start}, {times} times as fast as the plain fp32 step, but not significantly."
    else:
        against = f", {format_number(best.speedup.ratio)} times as fast as the plain fp32 step"
    return f"{start}{against}{_describe_rivals(best)}."


def _describe_rivals(best: BestWay) -> str:
    if not best.rivals:
        return ""
    nearest = min(best.rivals, key=lambda cell: cell.times["step"].median_ms)
    rest = f" and {len(best.rivals) - 1} more" if len(best.rivals) > 1 else ""
    return f" (not significantly faster than {name_options(nearest.cell)}{rest})"


def name_options(cell: StepCell) -> str:
    """Returns precision and backend, and every other option that is on: `bf16, compiled, sdpa attention`."""
    values = {name: getattr(cell, name) for name in _OPTIONS}
    on = {name: value for name, value in values.items() if value != PLAIN[name] and not is_unread(name, value)}
    return ", ".join([cell.precision, cell.backend, *(_OPTIONS[name].format(value) for name, value in on.items())])


def describe_basis(rows: Sequence[Any]) -> str:
    """Says how many samples, in how many processes, are behind an answer; of peaks, which have no samples, only the
    processes. Empty without rows."""
    times = [max(row.times.values(), key=lambda time: time.n or 0) for row in rows if getattr(row, "times", None)]
    samples, rounds = sum(time.n or 0 for time in times), sum(time.step.rounds for time in times)
    if samples:
        return f"Rests on {format_count(samples, 'sample')} in {format_count(rounds, 'process')}."
    peaks = [row for row in rows if getattr(row, "peak_allocated_bytes", None)]
    return f"Rests on {format_count(len(peaks), 'process')}." if peaks else ""


def describe_grades(rows: Sequence[Any], audited: Mapping[UUID, AuditedRow]) -> str:
    """Says the grades of the rows behind an answer, and what is most often against them; empty where none is graded."""
    graded = [found for row in rows if (found := audited.get(row.cell_id)) and found.grade]
    if not graded:
        return ""
    counts: Counter[Grade | None] = Counter(row.grade for row in graded)
    if set(counts) == {"A"}:
        return (
            f"The audit found nothing against {'the row' if len(graded) == 1 else f'the {len(graded)} rows'} behind it."
        )
    codes = Counter(found.code for row in graded for found in row.findings if found.severity != "note")
    most = f"; most frequent: {codes.most_common(1)[0][0].replace('_', ' ')}" if codes else ""
    listed = ", ".join(f"{counts[grade]} {grade}" for grade in ("A", "B", "C", "D") if counts[grade])
    return f"Grades of the rows behind it: {listed}{most}."


def command_for(frame: Frame, missing: Sequence[str]) -> str:
    """Returns one line that measures these experiments; the search for what fits is a command of its own."""
    experiments = [f"--experiment {name}" for name in dict.fromkeys(missing) if name != "frontier"]
    sweep = [frame.sweep(*experiments)] if experiments else []
    return " && ".join([*sweep, *(["python -m runner frontier"] if "frontier" in missing else [])])
