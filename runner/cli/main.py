"""The commands: parse, call, print. Only they and their group exit. Each looks at the places that it is given, and then
imports what it needs: neither a refusal nor a help waits for that.

    stepscope sweep | show | tune | fit | compare | ab | report | import | export | doctor | app | note | model

`python -m runner` is the same. The old names audit, check, frontier, list, merge and replay work in this version, and
say the new ones.

Exit codes: 0 all cells ended ok, oom or skipped; 1 some did not, the budget ran out, `show --strict` found a row of
grade D, `sweep --again` landed outside, `doctor` found something wrong, or `compare --fail-on-regression` found a
regression; 2 wrong usage or a bad file; 74 all went well, but the output could not be written; 130 interrupted.
"""

import inspect
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runner.cli.options import (
    NAMES,
    SHAPE,
    SPECS,
    Db,
    HelpAll,
    LongCommand,
    OneDb,
    ShowCommand,
    ab_options,
    sweep_options,
    where,
    with_options,
)
from runner.cli.terminal import Terminal, errors
from runner.errors import INTERRUPTED, INTERRUPTED_CODE, NO_TORCH, DatabaseMissing, StepscopeError, UsageError
from runner.formats import format_bytes, format_count
from runner.places import check_results, check_room, check_source, explain_error, explained, is_fleet, split

#: The width of output to a pipe or a file, in characters, unless COLUMNS says another.
PIPED_WIDTH = 160
#: What the commands of before are now; the words after the name follow.
OLD_NAMES = {
    "audit": "show --findings --strict",
    "check": "doctor --check",
    "frontier": "sweep --experiment frontier",
    "list": "show",
    "merge": "import",
    "replay": "sweep --again",
}
_FIRST_STEPS = """\
Stepscope: where every millisecond and every byte of a training step goes.
  {0} sweep                          measure this machine
  {0} sweep --model train.py:build   measure a model of yours
  {0} app                            browse the rows, or an H200's
  {0} show precision                 fp32 against bf16; memory, …
  {0} report                         all of it on one page
  {0} compare before after           did it get slower?
  {0} --help                         every command"""

console = Terminal(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)


class Commands(TyperGroup):
    """The commands, by their old names too. Each error becomes one message and an exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if "" in args:
            before = args[max(args.index("") - 1, 0)]
            got = f"{before} got ''." if before.startswith("-") else "An argument is empty."
            raise UsageError(got, expected="a value", do="See whether a shell variable is unset, or leave it out.")
        if args and (new := OLD_NAMES.get(args[0])):
            errors.say(f"{args[0]} is now: python -m runner {new}")
            args = [*new.split(), *(args[1:] or (["all"] if args[0] == "list" else []))]
        if args[:2] == ["model", "check"]:
            errors.say("model check is now: python -m runner model")
            del args[1]
        name, command, rest = super().resolve_command(ctx, args)
        return name, make_command(str(name)) if isinstance(command, LongCommand) else command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            with explained("The working folder cannot be used", do="cd elsewhere.", kind=UsageError):
                os.getcwd()  # in a folder that is gone, relative names would lead nowhere
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                raise _explain_number(error) from None
            except ModuleNotFoundError as error:
                if find_spec("torch"):
                    raise
                raise UsageError(**NO_TORCH) from error
            except OSError as error:
                if error.filename is None or isinstance(error, BrokenPipeError):
                    raise
                raise StepscopeError(f"{error.filename} cannot be used: {explain_error(error)}.") from None
        except StepscopeError as error:
            errors.print("error:", style="red", end=" ")
            errors.say(str(error))
            raise typer.Exit(error.exit_code) from None
        except (KeyboardInterrupt, RuntimeError) as error:
            # During a query DuckDB turns a Ctrl-C into an error of its own.
            if isinstance(error, RuntimeError) and str(error) != "Query interrupted":
                raise
            errors.say(INTERRUPTED)
            if ctx.invoked_subcommand in ("sweep", "tune"):
                errors.say(f"  {shlex.join(['python', '-m', 'runner', *sys.argv[1:]])}")
            raise typer.Exit(INTERRUPTED_CODE) from None


def _explain_number(error: typer.BadParameter) -> Exception:
    """Returns what an option got and which numbers it takes, or the error itself where it is about something else."""
    found: dict[str, Any] = next(iter(getattr(error.__cause__, "errors", list)()), {})
    kind = str(found.get("type")).partition("_")[0]
    if kind not in ("int", "float", "greater", "less") or not error.param:
        return error
    low, high = (getattr(error.param, end, None) for end in ("min", "max"))
    is_whole = kind == "int" or (kind != "float" and not any(isinstance(one, float) for one in found["ctx"].values()))
    bounds = (f" from {low:,}" if low is not None else "") + (f" to {high:,}" if high is not None else "")
    expected = f"a {'whole number' if is_whole else 'number'}{bounds}"
    return UsageError(f"{error.param.opts[0]} got {found['input']!r}.", expected=expected)


app = typer.Typer(name="stepscope", cls=Commands, rich_markup_mode="rich", pretty_exceptions_enable=False)


def make_command(name: str) -> Any:
    """Returns `sweep` or `ab` with its options."""
    made = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    made.registered_commands = [one for one in app.registered_commands if one.name == name]
    command, options = (sweep_command, sweep_options()) if name == "sweep" else (ab_command, ab_options())
    with_options({**options, "help_all": HelpAll})(command)
    return typer.main.get_command(made)


def _check_places(given: Mapping[str, Any], config: Path | None) -> None:
    """Raises StepscopeError for places from which `sweep` and `ab` cannot read, or to which they cannot add."""
    if not config:
        check_results(given["db"], adds=True)
    for spec in given["model"] or ():
        _check_configuration(spec)


def _find_results(db: Path | None, *, one: bool = False) -> Path:
    """Returns the results that are named. Raises what `check_results` raises and, where it is to be `one` file,
    UsageError for a list and a folder of several."""
    named = check_results(db)
    from runner.store.packing import find_file

    path = find_file(named)
    if one and is_fleet(path):
        do = f"Join several first: python -m runner import {' '.join(map(str, split(named)))} --db all.duckdb"
        raise UsageError(f"{named} is a {'folder' if named.is_dir() else 'list'}.", expected="one results file", do=do)
    return path


def _check_configuration(spec: str) -> None:
    """Raises UsageError for an own model of a configuration that cannot be read."""
    kind, _, rest = spec.partition(":")
    if kind == "hf":
        place = Path(rest.partition(",")[0])
        place = place / "config.json" if os.path.isdir(place) else place
        check_source(place, do="Name a config.json on this disk, or its folder. Nothing is downloaded.")


@app.callback(invoke_without_command=True, epilog="Example: stepscope sweep, then stepscope app")
def start(context: typer.Context) -> None:
    """Measures Transformer training steps on this machine, and answers questions about them."""
    if context.invoked_subcommand is None:
        print(_FIRST_STEPS.format(context.info_name))


@app.command(
    name="sweep", cls=LongCommand, epilog="Example: stepscope sweep --preset laptop --precisions fp32,bf16 --budget 60s"
)
@with_options({})
def sweep_command(*, config: Path | None, dry_run: bool | None, as_json: bool | None, **given: Any) -> None:
    """Measure, and append rows to the results file. With no options it does the right thing for this machine.

    A finished cell is not measured again: an interrupted sweep goes on where it stopped. An axis such as --contexts
    makes one grid of an experiment: that axis, and the preset's first values for the others.

    --experiment frontier finds what still fits in memory, by real allocations. --again CELL measures a row once more,
    and says whether it lands where the file expects the next process (exit code 1 if not).
    """
    again, is_sure, progress = given.pop("again"), bool(given.pop("yes")), errors if as_json else console
    del given["help_all"]
    if not dry_run:
        _check_places(given, config)
    from runner.sweep.request import list_flags, parse_duration, parse_frontier, parse_request

    if again:
        came = {**given, "dry_run": dry_run}
        if others := sorted(name for name, value in came.items() if value and name not in ("db", "device", "timeout")):
            raise UsageError(f"--again measures one cell; {list_flags(others)} came with it.", do="Leave that out.")
        timeout_s = parse_duration("timeout", given["timeout"] or "10m")
        from runner.cli.again import measure_again

        known: dict[str, Any] = {"db": check_results(given["db"]), "device": given["device"], "timeout_s": timeout_s}
        raise typer.Exit(measure_again(console, again, **known, is_sure=is_sure, as_json=bool(as_json)))
    if asked := parse_frontier(given, config=config):
        if dry_run:
            got = "--dry-run came with --experiment frontier, which has no plan: each trial follows from the last."
            raise UsageError(got, do="Leave --dry-run out.")
        from runner.cli.progress import make_json
        from runner.schema import DONE
        from runner.store.database import check_writable
        from runner.sweep.frontier import explore

        check_writable(asked[1].db)
        rows = explore(*asked, say=progress.say)
        if as_json:
            console.dump([make_json(row) for row in rows])
        raise typer.Exit(1 if {row.status for row in rows} - DONE else 0)
    request, settings = parse_request(given, config=config)
    from runner.cli.progress import SweepLines, make_json, print_plan
    from runner.sweep.start import sweep

    if dry_run:
        from runner.engines.engine import open_engine
        from runner.sweep.prepare import prepare

        # No cluster is asked: the plan is that of this machine.
        name, on = ("local", ()) if settings.engine == "ray" else (settings.engine, settings.on)
        with open_engine(name, on=on) as (engine, *_):
            print_plan(console, prepare(request, settings, engine, report=progress.say), as_json=bool(as_json))
        return
    with closing(SweepLines(progress, db=settings.db, fresh=settings.fresh, budget_s=settings.budget_s)) as watcher:
        code = sweep(request, settings, watcher=watcher)
    if as_json:
        console.dump([make_json(row, timings) for row, timings in watcher.rows])
    raise typer.Exit(code)


@app.command(
    name="show",
    cls=ShowCommand,
    epilog="Example: stepscope show precision --clock latency",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def show_command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="[NAME]", show_default=False)] = "",
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON; an answer as the API gives it.")] = False,
    with_findings: Annotated[
        bool, typer.Option("--findings", help="What the audit found in the run, and what to do about it.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="The same, and exit code 1 if a row is graded D.")] = False,
) -> None:
    """Show the answer to a question, or the rows of a run as a table.

    An answer lists its choices: give them as options, such as --precision bf16. Grades of rows: A, nothing against it;
    B, a note; C, in doubt; D, it does not mean what it says.
    """
    path = Path() if what in NAMES else _find_results(db)
    from runner.answers import QUESTIONS
    from runner.cli import show

    if with_findings or strict:
        if what in QUESTIONS or what in NAMES or context.args:
            raise UsageError("--findings and --strict are about a run.", expected="a run, or no name for the latest")
        code = show.print_findings(console, what, db=path, as_json=as_json)
        raise typer.Exit(code if strict else 0)
    if what in QUESTIONS:
        show.print_question(console, what, context.args, db=path, as_json=as_json)
    elif context.args:
        raise UsageError(f"There is no question {what!r}.", expected=", ".join(QUESTIONS))
    elif what in NAMES:
        show.print_names(console, what, as_json=as_json)
    else:
        show.print_run(console, what, db=path, as_json=as_json)


@app.command(
    name="fit", epilog='Example: stepscope fit --sizes small,large --gpu "RTX 4090" --context 1024 --checkpoint 1'
)
def fit_command(
    spec: Annotated[str, typer.Argument(help="One of your own; see `stepscope model --help`.", metavar="[MODEL]")] = "",
    model: Annotated[str, typer.Option(help="The same.", metavar="FILE.py:build")] = "",
    sizes: Annotated[str, typer.Option(help=r"Stepscope's own. \[default: small]", metavar="A,B,…")] = "",
    shape: Annotated[list[str] | None, typer.Option(help=f"Repeatable: {SHAPE}", metavar="SHAPE")] = None,
    gpu: Annotated[str, typer.Option(help="Its name; a part is enough.")] = "H200",
    batch: Annotated[str, typer.Option(help="Sequences in one step.", metavar="N")] = "4",
    context: Annotated[str, typer.Option(help="Tokens of each sequence.", metavar="N")] = "1024",
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    weights: Annotated[str, typer.Option(help="Parameters' dtype.")] = "fp32",
    attention: Annotated[str, typer.Option(help="sdpa or naive.")] = "sdpa",
    optimizer: Annotated[str, typer.Option(help="fused or foreach.")] = "fused",
    checkpoint: Annotated[str, typer.Option(help="Blocks recomputed at once.", metavar="N")] = "0",
    timeout: Annotated[str, typer.Option(help="Limit for a model, such as 90s or 5m.")] = "5m",
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object; for several models a list.")] = False,
) -> None:
    """Say without a GPU whether a training step fits on one: its peak by part, and the largest batch and context.

    Stepscope's own models are predicted by formula. A step of any other is counted on fake tensors, without data and in
    seconds, with torch. The error bars come from measured peaks: those of the file, or those that Stepscope ships.
    """
    try:
        path = _find_results(db)
    except DatabaseMissing:
        if db is not None:
            raise
        path = None
    if own := spec or model:
        if sizes or shape:
            raise UsageError(f"{own} came with --sizes or --shape.", expected="one of them")
        _check_configuration(own)
    from runner.cli.fit import fit
    from runner.sweep.request import parse_duration

    numbers = {"batch": batch, "context": context, "checkpoint": checkpoint}
    asked = {"precision": precision, "weights": weights, "attention": attention, "optimizer": optimizer, **numbers}
    timeout_s = parse_duration("timeout", timeout)
    fit(console, own or sizes, shape or (), gpu, asked, is_own=bool(own), db=path, timeout_s=timeout_s, as_json=as_json)


@app.command(name="tune", epilog="Example: stepscope tune --sizes small --context 512 --budget 10m")
def tune_command(
    spec: Annotated[str, typer.Argument(help="One of your own; see `stepscope model --help`.", metavar="[MODEL]")] = "",
    model: Annotated[str, typer.Option(help="The same.", metavar="FILE.py:build")] = "",
    sizes: Annotated[str, typer.Option(help=r"One of Stepscope's own. \[default: small]", metavar="NAME")] = "",
    shape: Annotated[str, typer.Option(help=SHAPE, metavar="SHAPE")] = "",
    context: Annotated[int, typer.Option(help="Tokens of each sequence.", min=1, metavar="N")] = 512,
    budget: Annotated[str, typer.Option(help="Such as 10m or 1h.", metavar="TIME")] = "10m",
    objective: Annotated[str, typer.Option(help="tokens/s, tokens/J or cost.", metavar="NAME")] = "tokens/s",
    price_per_hour: Annotated[float, typer.Option(help="In your currency.", min=0.001, metavar="N")] = 2.0,
    memory: Annotated[str, typer.Option(help=r"To fit in: 40GiB. \[default: the device's]", metavar="SIZE")] = "",
    keep_math: Annotated[bool, typer.Option("--keep-math", help="Only what computes as plain fp32 does.")] = False,
    label: Annotated[str, typer.Option(help="A name for the run.", metavar="NAME")] = "",
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:1, mps or cpu.", metavar="NAME")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what was measured.")] = False,
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="The ranking and what was left out, as JSON.")] = False,
) -> None:
    """Race the ways to train one model for the fastest training step here: batch, precision, attention, compiler, …

    Short trials first; what they promise most goes on; the best are measured in interleaved rounds, and the winner with
    one setting taken back at a time. Every trial is a row, and the same command goes on with an interrupted race.
    `stepscope show tune` shows the ranking again.
    """
    path = check_results(db, adds=True)
    if sum(map(bool, (spec or model, sizes, shape))) > 1 or "," in sizes:
        raise UsageError("tune was given several models.", expected="one, by MODEL, --sizes or --shape")
    if own := spec or model:
        _check_configuration(own)
    from runner.cli import tune
    from runner.sweep.request import Settings, parse_duration

    budget_s = parse_duration("budget", budget)
    settings = Settings(db=path, device=device, label=label or None, budget_s=budget_s, fresh=fresh)
    tune.tune(
        console,
        errors if as_json else console,
        settings,
        {"model": own} if own else {"shape": (shape,)} if shape else {"sizes": (sizes or "small",)},
        context=context,
        objective=objective,
        price=price_per_hour,
        memory=memory,
        keep_math=keep_math,
        as_json=as_json,
    )


@app.command(name="report", epilog="Example: stepscope report --format html --out report.html")
def report_command(
    form: Annotated[
        str, typer.Option("--format", help=r"markdown, html, latex or json. \[default: markdown]", show_default=False)
    ] = "",
    out: Annotated[Path | None, where("A file, or a folder that exists. [default: standard output]")] = None,
    edition: Annotated[str | None, where("2025 or 2026: its questions and cells alone. [default: all]")] = None,
    machine: Annotated[str | None, where("Whose rows. [default: the machine that measured last]")] = None,
    run: Annotated[str | None, where("Only this run: its id, the beginning of it, or its label.")] = None,
    question: Annotated[str | None, where("Only this question, by its name as `show` has it.")] = None,
    brief: Annotated[
        bool | None, typer.Option("--brief/--whole", help="One page. [default: on a terminal]", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    db: Db = None,
) -> None:
    """Answer every question from the rows: a sentence, tables, and the commands that measure them again.

    On a terminal it is one page: the machine, and six answers with a table each; `--out` writes the whole. Questions of
    the course's handout come first; at the end stands what the rows cannot answer yet, with the command
    that would. Pages with charts that open offline are written by `python -m pages.export`.
    """
    if out is not None:
        check_room(out / "report" if os.path.isdir(out) else out)
    path, form = _find_results(db), "json" if as_json else form
    from runner.cli import report

    is_brief = sys.stdout.isatty() and out is None and question is None if brief is None else brief
    options = report.ReportOptions(
        out=out, form=form, edition=edition, machine=machine, run=run, question=question, brief=is_brief
    )
    if is_brief and sys.stdout.isatty() and not form and out is None:
        report.print_brief(console, options, db=path)
    else:
        sys.stdout.write(report.write_report(options, db=path))


@app.command(name="compare", epilog="Example: stepscope compare before after --fail-on-regression --threshold 5%")
def compare_command(
    a: Annotated[str, typer.Argument(help=f"The baseline: {SPECS}.", metavar="A")],
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
    path = _find_results(db)
    from runner.cli import compare

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
    raise typer.Exit(compare.compare(console, options, db=path))


@app.command(name="ab", cls=LongCommand, epilog="Example: stepscope ab main HEAD --model train.py:build --budget 10m")
@with_options({})
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
    """Compare two versions, measured interleaved: two commits or builders of your model, or two values of an option.

    Commits of the repository that you are in are checked out into temporary worktrees. Both versions are measured in
    fresh processes, shuffled in each round, and rounds are added until every cell is decided or the budget ends. Exit
    codes: 0 no regression beyond the threshold, 1 some, 2 a version that cannot be built or measured, 130 interrupted.
    """
    del given["help_all"]
    _check_places(given, config)
    from runner.cli import ab, compare
    from runner.sweep.request import parse_request

    request, settings = parse_request(dict.fromkeys(sweep_options()) | given, config=config)
    options = compare.CompareOptions(
        a=a or "",
        b=b or "",
        threshold=compare.percent(threshold or "5%"),
        clock=clock or "auto",
        form=form or "text",
        as_json=bool(as_json),
    )
    raise typer.Exit(ab.ab(console, Terminal(stderr=True), options, against or "", request, settings))


@app.command(name="import", epilog="Example: stepscope import report.sqlite --label 'their run'")
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
    as_json: Annotated[bool, typer.Option("--json", help="What was added and what was not, as JSON.")] = False,
) -> None:
    """Add what another machine measured or somebody else recorded.

    It takes results files (.duckdb), folders of them or what `export --parquet` wrote, the pickle of a
    torch.cuda.memory snapshot, the SQLite export of an Nsight Systems report, what `nsys stats` prints, a trace of
    torch.profiler (.json, .json.gz; a folder of them is the ranks of one run), or a published table as CSV, TSV,
    Markdown, HTML or JSON.

    Nothing in the file is executed. Of a results file only the rows are added that are not there yet. Of a published
    table it says what was understood, what was assumed and what was refused; of a folder of them, one line each.
    The exit code is 1 where a file, a table or a row is not stored; a cell without a readable number is, as its text.
    """
    path = Path() if propose else check_results(db, adds=True)
    for file in (*(files if len(files) == 1 else ()), *([mapping] if mapping else ())):
        check_source(file, do="Name a file to import.")
    from runner.cli import imports

    if not propose and imports.are_results(files):
        raise typer.Exit(imports.merge(console, files, path, label=label, mapping=mapping, as_json=as_json))
    if len(files) > 1:
        raise UsageError(f"{len(files)} files are named.", expected="one, or only results files (.duckdb)")
    if propose:
        from runner.published.reading import propose_mapping

        print(propose_mapping(files[0]), end="")
    else:
        raise typer.Exit(imports.import_into(console, files[0], path, label=label, mapping=mapping, as_json=as_json))


@app.command(name="export", epilog="Example: stepscope export backup.duckdb --db results.duckdb")
def export_command(
    out: Annotated[Path, typer.Argument(help="The new file (.duckdb) or, with --parquet, folder.", metavar="OUT")],
    db: OneDb = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="A folder with one small Parquet file a table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was written, with its bytes, as JSON.")] = False,
) -> None:
    """Write a whole copy of the results file, at any moment, also while a sweep adds to it.

    What waits in the spool is in the copy, too. With --parquet the copy is small enough for git, equal rows make equal
    files, and --db and STEPSCOPE_DB take the folder for a results file to read. `python -m pages.export` writes pages
    as HTML files.
    """
    if not parquet and out.suffix != ".duckdb":
        do = f"Name it {out.stem}.duckdb, or write Parquet files, which other programs read."
        raise UsageError(f"OUT is {str(out)!r}.", expected="a name ending in .duckdb, or --parquet and a folder", do=do)
    check_room(out / "runs.parquet" if parquet else out)
    path = _find_results(db, one=True)
    from runner.store.packing import copy_file, pack

    if parquet:
        sizes = pack(path, out)
        total, more = sum(sizes.values()), f" in {format_count(len(sizes), 'file')}"
        lines = [f"{table}: {format_bytes(size)}" for table, size in sizes.items()]
        found: dict[str, Any] = {"bytes": total, "tables": sizes}
    else:
        waiting = copy_file(path, out)
        total, lines = out.stat().st_size, []
        more = f", {format_count(waiting, 'cell')} from the spool" if waiting else ""
        found = {"bytes": total, "cells_from_spool": waiting}
    if as_json:
        console.dump({"out": out, **found})
        return
    for line in (*lines, f"{out}: {format_bytes(total)}{more}."):
        console.say(line)


@app.command(name="note", epilog="Example: stepscope note before 'the fan was broken'")
def note_command(
    about: Annotated[
        str, typer.Argument(help="A run by id, label or name, or a cell by id.", metavar="[RUN|CELL]")
    ] = "",
    text: Annotated[str, typer.Argument(help="What to say of it.", metavar="[TEXT]")] = "",
    name: Annotated[str, typer.Option(help="Call the run so.")] = "",
    tag: Annotated[str, typer.Option(help="Put this tag on the run.")] = "",
    baseline: Annotated[bool, typer.Option("--baseline", help="Compare the latest run with this one.")] = False,
    hide: Annotated[bool, typer.Option("--hide", help="Leave the run out of every page; nothing is deleted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take back what is named, or else its text notes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What is said of it then, as JSON.")] = False,
    db: Db = None,
) -> None:
    """Say something of a run or a cell: a note, and of a run a name, a tag, that it is the baseline or hidden.

    Notes are rows: pages, reports, exports and the API show them, and merging files brings them along. Without a text
    it lists what was said.
    """
    path = check_results(db)
    from runner.cli import notes

    texts = {"note": text, "name": name, "tag": tag}
    marks = {"baseline": baseline, "hidden": hide}
    notes.note(console, about, texts, [kind for kind in marks if marks[kind]], remove=remove, db=path, as_json=as_json)


@app.command(name="model", epilog="Example: stepscope model train.py:build --batch 8 --context 512")
def model_command(
    spec: Annotated[str, typer.Argument(help="FILE.py:build, package.module:build or hf:CONFIG.", metavar="MODEL")],
    batch: Annotated[int, typer.Option(help="Samples in one step.", min=1)] = 4,
    context: Annotated[int, typer.Option(help="Tokens of each sequence.", min=1)] = 128,
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:1, mps or cpu.")] = "auto",
    timeout: Annotated[str, typer.Option(help="When a model that is not built yet is given up: 90s, 5m.")] = "60s",
    as_json: Annotated[bool, typer.Option("--json", help="The same as one object.")] = False,
) -> None:
    """Build a model of yours once, run two steps, and say what was understood: parameters, batch, blocks, FLOPs, and
    which experiments apply.

    `FILE.py:build` or `package.module:build` is a function of one argument. It returns a module and a batch (a
    tensor, a tuple of arguments or a dictionary of keywords) and, if wanted, a function from the module's output to
    a loss:

    def build(want): return MyModel(), torch.randint(50257, (want.batch, want.context))

    `want` has device, dtype, batch, context, attention and option(name, default), which `FILE.py:build,name=value`
    sets. `hf:CONFIG` is a config.json of transformers on this disk, or its folder: random weights, nothing
    downloaded.
    """
    _check_configuration(spec)
    from runner.cli.model import check_model
    from runner.sweep.request import parse_duration

    timeout_s = parse_duration("timeout", timeout)
    check_model(console, spec, device=device, batch=batch, context=context, timeout_s=timeout_s, as_json=as_json)


@app.command(name="doctor", epilog="Example: stepscope doctor --repair --db results.duckdb")
def doctor_command(
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:1, mps or cpu.")] = "auto",
    db: OneDb = None,
    check: Annotated[bool, typer.Option("--check", help="Verify the results file, as --db does.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be, and keep a copy of the file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The machine and its checks, or the problems, as JSON.")
    ] = False,
) -> None:
    """Say what this machine is, and what can and cannot be measured on it, and why.

    With --db, --check or --repair it verifies the results file instead: pages that can be read, impossible values,
    duplicates, rows that belong to nothing, and what is left over in its spool. Exit codes: 0 nothing is wrong, or all
    was repaired; 1 something is wrong; 2 it is no results file.
    """
    path = _find_results(db, one=True) if db is not None or repair or check else None
    from runner.cli import doctor
    from runner.engines.local import LocalEngine

    if path is not None:
        raise typer.Exit(doctor.check_results(console, path, repair=repair, as_json=as_json))
    doctor.print_report(console, LocalEngine().describe(device), as_json=as_json)


@app.command(
    name="app",
    epilog="Example: stepscope app --port 8502 --db results.duckdb",
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
    if db is not None and os.path.lexists(db):
        check_results(db)
    from runner.cli import dashboard

    raise typer.Exit(dashboard.serve(console, port=port, db=db, words=context.args, measure=measure))


for one in app.registered_commands:
    # A docstring's paragraphs are lines for readers of the code, and flow in a terminal.
    one.help = "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(one.callback) or "").split("\n\n"))


def main() -> None:
    """Runs the command line. SIGTERM stops a sweep as Ctrl-C does: finished cells are kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
