"""Which runs does the file have, and what did each measure on?"""

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, verbatim
from runner.answers.shared import describe_machine
from runner.answers.words import lacks
from runner.formats import format_count
from runner.results.rows import Rows, RunSummary

RUN = Field("run", "Run", doc="Its start, its name and the end of its id.")
OK = Field("ok", "Measured", unit="cells", role="value")
FAILED = Field("failed", "Failed", unit="cells", role="note", doc="Out of memory, timed out or crashed.")
SKIPPED = Field("skipped", "Skipped", unit="cells", role="note")
COMMIT = Field.of("runs", "git_commit", "note", label="Commit")
TORCH = Field.of("runs", "torch", "note", label="torch")
MACHINE = Field("machine", "Machine", role="note")
SOURCE = Field.of("runs", "source", "note")
ARGV = Field.of("runs", "argv", "note", label="Command")
TAGS = Field("tags", "Tags", role="note", doc="Also “hidden”: its rows do not count.")


def answer(rows: Rows, asked: Asked) -> Answer:
    if not rows.runs:
        return Answer(missing=lacks("no run"))
    machines = list(dict.fromkeys(run.machine.split(" · ")[0] for run in rows.runs if run.source != "published"))
    view = View(
        name="runs",
        title="Runs",
        about=" · ".join(machines),
        fields=(RUN, OK, FAILED, SKIPPED, COMMIT, TORCH, MACHINE, SOURCE, TAGS, ARGV),
        rows=tuple(map(_make_row, rows.runs)),
        draw=Draw("table", "ok", down=("run",)),
        note="The newest first. Failed cells keep their settings and the reason.",
    )
    return Answer(sentence=_say(rows, view, machines), views=(view,))


def _make_row(run: RunSummary) -> Row:
    commit = f"{run.git_commit[:9]}{' (changed)' if run.git_dirty else ''}" if run.git_commit else ""
    where = (run.torch or "", run.machine, run.source or "measured")
    tags = ", ".join(("hidden", *run.tags) if run.is_hidden else run.tags)
    return Row(values=(run.name, run.ok, run.failed, run.skipped, commit, *where, tags, run.argv or ""))


def _say(rows: Rows, view: View, machines: list[str]) -> str:
    measured = [run for run in rows.runs if run.source in (None, "measured")]
    name, *parts = map(verbatim, describe_machine(measured or rows.runs))
    others = f" and {format_count(len(machines) - 1, 'other machine')}" if len(machines) > 1 else ""
    counts = {field: sum(view.column(field)) for field in ("ok", "failed")}
    text = f"**{counts['ok']:,}** cells were measured on **{name}**{others}: {', '.join(parts)}"
    hidden = sum(run.is_hidden for run in rows.runs)
    last = f" {format_count(hidden, 'run')} hidden: such rows do not count elsewhere." if hidden else ""
    return f"{text}; {format_count(counts['failed'], 'cell')} failed.{last}"


QUESTION = Question(answer=answer, needs=("runs",))
