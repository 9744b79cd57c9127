"""The commands: parse, call, print. Only they and their group exit.

    python -m runner sweep | show | compare | ab | report | import | export | doctor | app | note | model |
    frontier | list

The old names audit, check, merge and replay work in this version, and say the new ones.

Exit codes: 0 all cells ended ok, oom or skipped; 1 some did not, the budget ran out, `show --strict` found a row of
grade D, `sweep --again` landed outside, `doctor` found something wrong, or `compare --fail-on-regression` found a
regression; 2 wrong usage or a bad file; 74 all went well, but the output could not be written; 130 interrupted.
"""

import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from runner.answers import QUESTIONS
from runner.cli import (
    ab,
    compare,
    dashboard,
    doctor,
    export,
    findings,
    imports,
    lists,
    model,
    notes,
    replay,
    report,
    show,
)
from runner.cli.commands import Commands, errors
from runner.cli.options import AB, FRONTIER, Db, Run, sweep_options, where, with_options
from runner.cli.progress import PlainLines, TerminalBar
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.store.database import check_writable, default_path
from runner.store.reference import find_file
from runner.sweep.frontier import explore
from runner.sweep.prepare import Settings, prepare
from runner.sweep.request import parse_duration, parse_request
from runner.sweep.start import sweep

#: The width of output to a pipe or a file, in characters, unless COLUMNS says another.
PIPED_WIDTH = 160

_WHAT = f"A question ({', '.join(QUESTIONS)}), or a run by its id, its beginning or its label."

console = Terminal(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)

app = typer.Typer(
    name="runner",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Measures Transformer training steps on this machine and appends rows to a DuckDB file.\n\n"
    "Example: [bold]python -m runner sweep[/] then [bold]streamlit run app.py[/]",
)


@app.command(
    name="sweep", epilog="Example: python -m runner sweep --sizes small,medium --precisions fp32,bf16 --contexts 512"
)
@with_options(sweep_options())
def sweep_command(*, config: Path | None, dry_run: bool | None, **given: Any) -> None:
    """Measure, and append rows to the results file. With no options it does the right thing for this machine.

    A finished cell is not measured again: an interrupted sweep goes on where it stopped.

    With an axis set here an experiment is one grid: that axis, and for the others what the preset's first grid has. Its
    warm-up ablation, timelines and other additions are then left out; ask with --warmup, --timeline, --cache, ….

    With --again CELL that cell is measured once more, and whether it lands inside the interval that the file claims for
    the next process is said: exit code 0 if so or if there is none, 1 if not. On the same machine, torch and commit the
    new row is one more round of the cell's run.
    """
    again, is_sure = given.pop("again"), bool(given.pop("yes"))
    if again:
        if others := sorted(name for name, value in given.items() if value and name not in ("db", "device", "timeout")):
            others = [f"--{name.replace('_', '-')}" for name in others]
            raise UsageError(f"--again measures one cell; {', '.join(others)} came with it.", do="Leave that out.")
        timeout_s = parse_duration("timeout", given["timeout"] or "10m")
        options = replay.ReplayOptions(cell=again, device=given["device"], timeout_s=timeout_s, is_sure=is_sure)
        raise typer.Exit(replay.replay(console, options, db=given["db"] or default_path()))
    request, settings = parse_request(given, config=config)
    if dry_run:
        lists.print_plan(console, prepare(request, settings, LocalEngine()))
        return
    with closing((TerminalBar if console.is_terminal else PlainLines)(console, db=settings.db)) as watcher:
        raise typer.Exit(sweep(request, settings, watcher=watcher))


@app.command(name="frontier", epilog="Example: python -m runner frontier --d-heads 16,64 --limit 2GiB")
@with_options(FRONTIER)
def frontier_command(
    *, db: Path | None, label: str | None, device: str | None, timeout: str | None, fresh: bool | None, **given: Any
) -> None:
    """Find the longest sequence, or a model's largest context or batch, that fits in memory.

    By prediction, then by real allocations in fresh processes that may take no more than the limit.
    """
    settings = Settings(
        db=db or default_path(),
        device=device or "auto",
        label=label,
        timeout_s=parse_duration("timeout", timeout or "10m"),
        fresh=bool(fresh),
    )
    check_writable(settings.db)
    raise typer.Exit(explore(given, settings, say=console.say))


@app.command(name="list", epilog="Example: python -m runner list runs")
def list_command(
    what: Annotated[
        str, typer.Argument(help="presets, experiments, sizes, runs, columns or all", metavar="[WHAT]")
    ] = "all",
    db: Db = None,
) -> None:
    """List the presets, experiments and sizes there are, and the runs in the file; or every column, as Markdown."""
    lists.print_lists(console, what, db=find_file(db))


@app.command(
    name="show",
    epilog="Example: python -m runner show precision --clock latency",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def show_command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help=_WHAT, metavar="[QUESTION|RUN]", show_default=False)] = "",
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON, as the API gives it.")] = False,
    with_findings: Annotated[
        bool, typer.Option("--findings", help="What the audit found in the run, and what to do about it.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="The same, and exit code 1 if a row is graded D.")] = False,
) -> None:
    """Show the answer to a question, or the rows of a run as a table; without a name, of the latest run.

    An answer has choices, which it lists: give them as options, such as --precision bf16. Grades: A, nothing against a
    row; B, a note; C, in doubt; D, it does not mean what it says.
    """
    if with_findings or strict:
        if what in QUESTIONS or context.args or as_json:
            raise UsageError("--findings and --strict are about a run.", expected="a run, or no name for the latest")
        code = findings.print_findings(console, what, db=find_file(db))
        raise typer.Exit(code if strict else 0)
    if what in QUESTIONS:
        show.print_question(console, what, context.args, db=find_file(db), as_json=as_json)
        return
    if context.args or as_json:
        raise UsageError(f"There is no question {what!r}.", expected=", ".join(QUESTIONS))
    show.print_run(console, what, db=find_file(db))


@app.command(name="audit", hidden=True, epilog="Example: python -m runner show nightly --findings --strict")
def audit_command(run: Run = "", db: Db = None) -> None:
    """The old name of `show RUN --findings --strict`."""
    _say_new_name("audit", "show --findings --strict")
    raise typer.Exit(findings.print_findings(console, run, db=find_file(db)))


@app.command(name="report", epilog="Example: python -m runner report --format html --out report.html")
def report_command(
    form: Annotated[
        str, typer.Option("--format", help=r"markdown, html or latex. \[default: markdown]", show_default=False)
    ] = "",
    out: Annotated[Path | None, where("A file, or a folder that exists. [default: standard output]")] = None,
    edition: Annotated[str | None, where("2025 or 2026: only its sizes and contexts. [default: what there is]")] = None,
    machine: Annotated[str | None, where("Whose rows. [default: the machine that measured last]")] = None,
    run: Annotated[str | None, where("Only this run: its id, the beginning of it, or its label.")] = None,
    question: Annotated[str | None, where("Only this question, by its name as `show` has it.")] = None,
    brief: Annotated[
        bool | None, typer.Option("--brief/--whole", help="One page. [default: on a terminal]", show_default=False)
    ] = None,
    db: Db = None,
) -> None:
    """Answer every question from the rows: a sentence, tables, and the commands that measure them again.

    On a terminal it is one page: the machine, and six answers with a table each; `--out` writes the whole. Questions of
    the course's handout come first; at the end stands what the rows cannot answer yet, with the command
    that would. Pages with charts that open offline are written by `python -m pages.export`. Exit codes: 0 it was
    written, 2 wrong usage or a bad file.
    """
    is_brief = sys.stdout.isatty() and out is None and question is None if brief is None else brief
    options = report.ReportOptions(
        out=out, form=form, edition=edition, machine=machine, run=run, question=question, brief=is_brief
    )
    if is_brief and sys.stdout.isatty() and not form and out is None:
        report.print_brief(console, options, db=find_file(db))
    else:
        sys.stdout.write(report.write_report(options, db=find_file(db)))


@app.command(name="replay", hidden=True, epilog="Example: python -m runner sweep --again 01a2037e-c114")
def replay_command(
    cell: Annotated[str, typer.Argument(help="The id of a row of steps or attention, or its beginning.")],
    db: Db = None,
    device: Annotated[str | None, where("auto, cuda, cuda:1, mps or cpu. [default: the row's]")] = None,
    timeout: Annotated[str, where("Limit for the cell, such as 90s or 10m. [default: 10m]")] = "10m",
    yes: Annotated[bool, typer.Option("--yes", help="Run an own model's code without asking.")] = False,
) -> None:
    """The old name of `sweep --again CELL`."""
    _say_new_name("replay", "sweep --again CELL")
    options = replay.ReplayOptions(cell=cell, device=device, timeout_s=parse_duration("timeout", timeout), is_sure=yes)
    raise typer.Exit(replay.replay(console, options, db=db or default_path()))


@app.command(
    name="compare", epilog="Example: python -m runner compare before after --fail-on-regression --threshold 5%"
)
def compare_command(
    a: Annotated[str, typer.Argument(help=f"The baseline: {compare.SPECS}.", metavar="A")],
    b: Annotated[str, typer.Argument(help="What is compared with it, named in the same ways.", metavar="B")],
    within: Annotated[list[str] | None, typer.Option(help="Only rows of this run, label, machine or commit.")] = None,
    phase: Annotated[str, typer.Option(help="Of step, forward, backward, optimizer: which times.")] = "step",
    clock: Annotated[str, typer.Option(help="auto, latency, throughput or gpu: by which clock.")] = "auto",
    form: Annotated[str, typer.Option("--format", help="text, or markdown for a pull request.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="One object with every compared cell.")] = False,
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit with 1 if some cell of B is worse beyond the threshold.")
    ] = False,
    threshold: Annotated[str, typer.Option(help="How much slower or larger is a regression.")] = "5%",
    db: Db = None,
) -> None:
    """Compare A with B: runs, labels, machines, commits, precisions or backends. Their cells differ in nothing else.

    A regression takes more than the threshold longer, its 99% interval (99.5% from 6 rounds on) excluding 1, or needs
    as much more memory at its peak; or it worked in A and not in B. Exit codes: 0 none, 1 some, 2 nothing could be
    compared.
    """
    limit = compare.percent(threshold)
    options = compare.CompareOptions(
        a=a,
        b=b,
        within=within or (),
        phase=phase,
        clock=clock,
        form=form,
        threshold=limit if fail_on_regression else None,
        as_json=as_json,
    )
    raise typer.Exit(compare.compare(console, options, db=find_file(db)))


@app.command(name="ab", epilog="Example: python -m runner ab main HEAD --model train.py:build --budget 10m")
@with_options(AB)
def ab_command(
    *,
    a: str | None,
    b: str | None,
    against: str | None,
    threshold: str | None,
    clock: str | None,
    form: str | None,
    as_json: bool | None,
    config: Path | None,
    **given: Any,
) -> None:
    """Compare two versions of a model of your own, measured interleaved: two commits, or two builders.

    Commits of the repository that you are in are checked out into temporary worktrees. Both versions are measured in
    fresh processes, shuffled in each round, and rounds are added until every cell is decided or the budget ends. Exit
    codes: 0 no regression beyond the threshold, 1 some, 2 a version that cannot be built or measured, 130 interrupted.
    """
    given = {**given, "experiment": given["experiment"] or ["benchmark"]}
    request, settings = parse_request(dict.fromkeys(sweep_options()) | given, config=config)
    options = ab.AbOptions(
        a=a,
        b=b,
        against=against,
        threshold=compare.percent(threshold or "5%"),
        clock=clock or "auto",
        form=form or "text",
        as_json=bool(as_json),
    )
    raise typer.Exit(ab.ab(console, Terminal(stderr=True), options, request, settings))


@app.command(name="import", epilog="Example: python -m runner import report.sqlite --label 'their run'")
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A results file or several, a memory snapshot, an nsys export or statistics, a trace of "
            "torch.profiler, a published table or a folder.",
            metavar="FILE …",
        ),
    ],
    db: Db = None,
    label: Annotated[str | None, typer.Option(help=r"A name for it. \[default: the file's name]")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="A TOML file: what the columns of published tables mean.", show_default=False)
    ] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="Print a first draft of the mapping of a published table; add nothing.")
    ] = False,
) -> None:
    """Add what another machine measured or somebody else recorded: a results file (.duckdb), the pickle of a
    torch.cuda.memory snapshot, the SQLite export of an Nsight Systems report, what `nsys stats` prints, a trace of
    torch.profiler (.json, .json.gz; a folder of them is the ranks of one run), or a published table as CSV, TSV,
    Markdown, HTML or JSON.

    Nothing in the file is executed. Of a results file only the rows are added that are not there yet. Of a published
    table it says what was understood, what was assumed and what was refused; of a folder of them, one line each.
    The exit code is 1 where something that was wanted is not stored.
    """
    if imports.are_results(files):
        raise typer.Exit(imports.merge(console, files, db or default_path()))
    if len(files) > 1:
        raise UsageError(f"{len(files)} files are named.", expected="one, or only results files (.duckdb)")
    code = imports.import_into(console, files[0], db or default_path(), label=label, mapping=mapping, propose=propose)
    raise typer.Exit(code)


@app.command(name="merge", hidden=True, epilog="Example: python -m runner import h200.duckdb a100.duckdb results/")
def merge_command(
    files: Annotated[list[Path], typer.Argument(help="Results files, and folders of them.", metavar="A B …")],
    db: Db = None,
) -> None:
    """The old name of `import` for results files."""
    _say_new_name("merge", "import A B …")
    raise typer.Exit(imports.merge(console, files, db or default_path()))


@app.command(name="export", epilog="Example: python -m runner export backup.duckdb --db results.duckdb")
def export_command(
    out: Annotated[Path, typer.Argument(help="The name of the new file or, with --parquet, folder.", metavar="OUT")],
    db: Db = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="A folder with one small Parquet file a table.")] = False,
) -> None:
    """Write a whole copy of the results file, at any moment, also while a sweep adds to it.

    What waits in the spool is in the copy, too. With --parquet the copy is small enough for git, equal rows make equal
    files, and --db and STEPSCOPE_DB take the folder for a results file to read. `python -m pages.export` writes pages
    as HTML files.
    """
    export.export(console, find_file(db), out, parquet=parquet)


@app.command(name="check", hidden=True, epilog="Example: python -m runner doctor --repair --db results.duckdb")
def check_command(
    db: Db = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be, and keep a copy of the file.")] = False,
) -> None:
    """The old name of `doctor --db FILE`."""
    _say_new_name("check", "doctor --db FILE")
    raise typer.Exit(doctor.check_results(console, find_file(db), repair=repair))


@app.command(name="note", epilog="Example: python -m runner note nightly 'the fan was broken'")
def note_command(
    about: Annotated[
        str, typer.Argument(help="A run by id, label or name, or a cell by id.", metavar="[RUN|CELL]")
    ] = "",
    text: Annotated[str, typer.Argument(help="What to say of it.", metavar="[TEXT]")] = "",
    name: Annotated[str, typer.Option(help="Call the run so.")] = "",
    tag: Annotated[str, typer.Option(help="Put this tag on the run.")] = "",
    baseline: Annotated[bool, typer.Option("--baseline", help="Compare later runs with this one.")] = False,
    hide: Annotated[bool, typer.Option("--hide", help="Leave the run out of every page; nothing is deleted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take back what is named, or all notes of it.")] = False,
    db: Db = None,
) -> None:
    """Say something of a run or a cell: a note, and of a run a name, a tag, that it is the baseline or hidden.

    Notes are rows: pages, reports, exports and the API show them, and merging files brings them along. Without a text
    it lists what was said.
    """
    asked = notes.NoteOptions(about=about, text=text, name=name, tag=tag, baseline=baseline, hide=hide, remove=remove)
    notes.note(console, asked, db=db or default_path())


app.add_typer(model.make_group(console), name="model")


@app.command(name="doctor", epilog="Example: python -m runner doctor --repair --db results.duckdb")
def doctor_command(
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:1, mps or cpu.")] = "auto",
    db: Db = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be, and keep a copy of the file.")] = False,
) -> None:
    """Say what this machine is, and what can and cannot be measured on it, and why.

    With --db or --repair it verifies the results file instead: pages that can be read, impossible values, duplicates,
    rows that belong to nothing, and what is left over in its spool. Exit codes: 0 nothing is wrong, or all was
    repaired; 1 something is wrong; 2 it is no results file.
    """
    if db is not None or repair:
        raise typer.Exit(doctor.check_results(console, find_file(db), repair=repair))
    doctor.doctor(console, device)


@app.command(
    name="app",
    epilog="Example: python -m runner app --port 8502 --db results.duckdb",
    context_settings={"allow_extra_args": True},
)
def app_command(
    context: typer.Context,
    port: Annotated[int | None, typer.Option(help=r"Where it listens. \[default: 8501]", min=1, max=65535)] = None,
    db: Db = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run a sweep of this machine beside it, which fills its pages.")
    ] = False,
) -> None:
    """Start the dashboard, from any folder: the rows of the results file, or those that Stepscope ships.

    Ctrl-C ends it. What follows -- are options of the sweep with --measure, else of `streamlit run`.
    """
    raise typer.Exit(dashboard.serve(console, port=port, db=db, words=context.args, measure=measure))


def _say_new_name(old: str, new: str) -> None:
    errors.say(f"{old} is now: python -m runner {new}")


def main() -> None:
    """Runs the command line. SIGTERM stops a sweep as Ctrl-C does: finished cells are kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
