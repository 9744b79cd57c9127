"""The options of the commands: those that the schema gives to `sweep`, and what several commands share.

Those of `sweep` and `ab` are made when one of them runs: the schema, the presets and the engines are imported for them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional, cast

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperOption

DB_HELP = (
    "The results file; to read from, also a folder of them, A:B, or what `export --parquet` wrote. "
    "[default: STEPSCOPE_DB or data/results.duckdb]"
)
ONE_DB_HELP = "One results file, or what `export --parquet` wrote. [default: STEPSCOPE_DB or data/results.duckdb]"
#: What `compare` takes for A and B.
SPECS = "a run's id or its beginning, a label, or machine:…, commit:…, precision:…, backend:…, model:…, attention:…"
#: What `show` knows without rows. `columns` is Markdown, and `all` the three tables.
NAMES = ("presets", "experiments", "sizes", "columns", "all")
Db = Annotated[Path | None, typer.Option("--db", help=escape(DB_HELP), show_default=False)]
OneDb = Annotated[Path | None, typer.Option("--db", help=escape(ONE_DB_HELP), show_default=False)]

#: Options whose help shows them by name only, by `--help-all` with what they mean: all of `sweep` and `ab` but these.
FIRST = ("preset", "experiment", "model", "sizes", "contexts", "precisions", "backends", "label", "budget", "dry_run")
FIRST_OF_AB = ("a", "b", "model", "against", "contexts", "threshold", "clock", "budget", "label", "as_json", "form")


def _option(panel: str, text: str, *names: str, **how: Any) -> Any:
    return typer.Option(*names, help=escape(text), show_default=False, rich_help_panel=panel, **how)


_what = partial(_option, "What to measure", metavar="A,B,…")
_how = partial(_option, "How carefully")
where = partial(_option, "Where and how long")
_largest = partial(_option, "The largest that fits, of --experiment frontier")
_flag = partial(_option, "How it runs")


def _print_all(context: typer.Context, value: bool) -> None:
    if value:
        TyperCommand.format_help(cast(TyperCommand, context.command), context, context.make_formatter())
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Every option with what it means.", is_eager=True, callback=_print_all)
]


class LongCommand(TyperCommand):
    """A command with many options. Its help explains the most used ones and names the others by group; `--help-all`
    explains all."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown, example = self.params, self.epilog
        first = FIRST_OF_AB if self.name == "ab" else FIRST
        groups: dict[str, list[str]] = {}
        params = []
        for one in map(copy, sorted(shown, key=lambda one: first.index(one.name) if one.name in first else len(first))):
            if isinstance(one, TyperOption):
                one.hidden = one.name not in (*first, "help_all")
                if one.hidden:
                    groups.setdefault(one.rich_help_panel or "How it runs", []).append(one.opts[0])
                one.rich_help_panel = None
            params.append(one)
        more = [f"[bold]{name}[/]: {' '.join(names)}" for name, names in groups.items()]
        self.params, self.epilog = params, f"More, which --help-all explains. {'. '.join(more)}.\n\n{example}"
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.epilog = shown, example


class ShowCommand(TyperCommand):
    """A command whose help names the questions, for which they are imported."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from runner.answers import QUESTIONS

        names = f"A question: {', '.join(QUESTIONS)}. Or a run, by its id, label or name. Or {', '.join(NAMES)}. "
        cast(Any, self.params[0]).help = names + r"\[default: the latest run]"
        super().format_help(ctx, formatter)


_SKIP = "Do not try cells that are predicted not to fit."
_DRY_RUN = "Only print the plan, with predicted memory and time."
_CEILINGS = "Measure at its start and end what this machine can do at most. [default: --ceilings]"
SHAPE = "d_model=512,d_ff=2048,layers=8,heads=8[,vocabulary=N]"
_MODEL = "One of your own, repeatable; see `stepscope model --help`."
_SHARD = "Only this share of the plan, such as 2/8: the same command on 8 machines measures every cell once."
_ON = "GPUs to measure on at once: cuda:0,cuda:1 of this machine; with --engine ray, types such as H200. [ray: all]"


def _annotate(column: Any, choices: Sequence[str]) -> Any:
    flag, name = column.flag, column.flag.name.replace("_", "-")
    text = flag.help.format(choices=", ".join(choices))
    if flag.kind == "axis":
        return Annotated[list[str] | None if flag.open else str | None, _what(text)]
    if flag.kind == "limit":
        return Annotated[Optional[column.type], _how(text, min=flag.least)]  # noqa: UP045
    return Annotated[bool | None, _flag(text, f"--{name}/--no-{name}")]


def sweep_options() -> dict[str, Any]:
    """Returns the annotations of `sweep`'s options by name: those of the schema between those of a sweep itself."""
    from runner.engines.engine import ENGINES
    from runner.plan.planning import ON_CPU, PRESETS, QUESTIONS, USUAL
    from runner.sweep.request import CHOICES, FLAGS

    own: dict[str, dict[str, Any]] = {"axis": {}, "limit": {}, "switch": {}}
    for name, column in FLAGS.items():
        own[str(column.sets)][name] = _annotate(column, CHOICES.get(name, ()))
    undecided = (
        f"what is undecided (interval wider than ±{USUAL.width:.0%}, on a CPU ±{ON_CPU.width:.0%}), "
        f"up to {USUAL.rounds}, on a CPU {ON_CPU.rounds}"
    )
    rounds = f"auto: one more interleaved round, in fresh processes, for {undecided}; or a number. [default: auto]"
    return {
        "preset": Annotated[str | None, _what(f"{', '.join(PRESETS)}. [default: by the device]", metavar="NAME")],
        "experiment": Annotated[
            list[str] | None, _what(f"{', '.join(QUESTIONS)}, or frontier. [default: all but frontier]", metavar="NAME")
        ],
        "sizes": Annotated[str | None, _what("Models; see `stepscope show sizes`.")],
        "shape": Annotated[list[str] | None, _what("A shape of your own; repeatable.", metavar=SHAPE)],
        "model": Annotated[list[str] | None, _what(_MODEL, metavar="FILE.py:build")],
        **own["axis"],
        **own["limit"],
        "rounds": Annotated[str | None, _how(rounds, metavar="auto|N")],
        "engine": Annotated[str | None, where(f"One of {', '.join(ENGINES)}. [default: local]", metavar="NAME")],
        "on": Annotated[str | None, where(_ON)],
        "shard": Annotated[str | None, where(_SHARD, metavar="I/N")],
        "config": Annotated[Path | None, where("A TOML file with the same names; flags given here win.")],
        "db": Annotated[Path | None, where(DB_HELP)],
        "label": Annotated[str | None, where("A name for this run.")],
        "device": Annotated[str | None, where("auto, cuda, cuda:1, mps or cpu. [default: auto]")],
        "timeout": Annotated[str | None, where("Limit for one cell, such as 90s or 10m. [default: 10m]")],
        "budget": Annotated[str | None, where("Start no new cell after this, such as 15m or 2h.")],
        **own["switch"],
        "fresh": Annotated[bool | None, _flag("Measure finished cells again.", "--fresh")],
        "any_commit": Annotated[
            bool | None, _flag("Leave out cells that another commit of Stepscope measured as often.", "--any-commit")
        ],
        "skip_predicted_oom": Annotated[bool | None, _flag(_SKIP, "--skip-predicted-oom")],
        "ceilings": Annotated[bool | None, _flag(_CEILINGS, "--ceilings/--no-ceilings")],
        "grow": Annotated[
            str | None,
            _largest("What of a model's step grows; single-head attention without.", metavar="context|batch"),
        ],
        "limit": Annotated[
            str | None, _largest("What it has to fit in, such as 2GiB. [default: the GPU's memory, or what is free]")
        ],
        "resolution": Annotated[
            int | None, _largest("Steps of the answer. [default: 64; 1 for the batch]", "--resolution", "--step", min=1)
        ],
        "again": Annotated[str | None, where("Measure only this cell once more: a row's id, or its beginning.")],
        "yes": Annotated[bool | None, _flag("With --again: run an own model's code without asking.", "--yes")],
        "dry_run": Annotated[bool | None, _flag(_DRY_RUN, "--dry-run")],
        "as_json": Annotated[
            bool | None, _flag("The rows that it measured, or with --dry-run the plan, as JSON.", "--json")
        ],
    }


def with_options(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a function of any keywords the signature of these options, all None by default."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        only = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(name, only, default=None, annotation=how) for name, how in options.items()]
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = dict(options)
        return command

    return decorate


_NOT_OF_AB = (
    "rounds", "engine", "on", "shard", "fresh", "any_commit", "ceilings", "again", "yes", "dry_run", "grow", "limit",
    "resolution", "as_json",
)  # fmt: skip


def ab_options() -> dict[str, Any]:
    return {
        "a": Annotated[str | None, typer.Argument(help="The baseline: a commit, branch or tag.", show_default=False)],
        "b": Annotated[str | None, typer.Argument(help="What is compared with it.", show_default=False)],
        "against": Annotated[
            str | None,
            _what("B as another model, or another value of an option given once.", metavar="FILE.py:build|VALUE"),
        ],
        "threshold": Annotated[str | None, _how("How much slower or larger is a regression. [default: 5%]")],
        "clock": Annotated[str | None, _how("auto, latency, throughput or gpu. [default: auto]")],
        "form": Annotated[str | None, typer.Option("--format", help="text or markdown.", show_default=False)],
        "as_json": Annotated[bool | None, _flag("One object with every compared cell.", "--json")],
        **{name: how for name, how in sweep_options().items() if name not in _NOT_OF_AB},
    }
