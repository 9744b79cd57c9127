"""The options of the commands: those that the schema gives to `sweep`, and what several commands share.

@with_options(sweep_options())
def sweep_command(**given: Any) -> None: ...
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.markup import escape

from runner.engines.engine import ENGINES
from runner.plan.planning import PRESETS
from runner.schema import Column
from runner.sweep.request import CHOICES, FLAGS
from runner.sweep.rounds import ON_CPU, USUAL

DB_HELP = (
    "The results file; to read from, also a folder of them, A:B, or what `export --parquet` wrote. "
    "[default: STEPSCOPE_DB or data/results.duckdb]"
)
Db = Annotated[Path | None, typer.Option("--db", help=escape(DB_HELP), show_default=False)]

RUN_HELP = "A run's id, its beginning, or its label. [default: the latest]"
Run = Annotated[str, typer.Argument(help=escape(RUN_HELP), show_default=False)]


def _what(text: str, *, metavar: str = "A,B,…") -> Any:
    return typer.Option(help=escape(text), show_default=False, metavar=metavar, rich_help_panel="What to measure")


def _how(text: str, **limits: Any) -> Any:
    return typer.Option(help=escape(text), show_default=False, rich_help_panel="How carefully", **limits)


def where(text: str, *, metavar: str | None = None) -> Any:
    return typer.Option(help=escape(text), show_default=False, metavar=metavar, rich_help_panel="Where and how long")


def _flag(name: str, text: str) -> Any:
    return typer.Option(name, help=text, show_default=False)


_SKIP = "Do not try cells that are predicted not to fit."
_DRY_RUN = "Print the plan with predicted FLOPs, memory and time; measure nothing."
_CEILINGS = "Measure at its start and end what this machine can do at most. [default: --ceilings]"
_UNDECIDED = (
    f"what is undecided (interval wider than ±{USUAL.width:.0%}, on a CPU ±{ON_CPU.width:.0%}), "
    f"up to {USUAL.rounds}, on a CPU {ON_CPU.rounds}"
)
_ROUNDS = f"auto: one more interleaved round, in fresh processes, for {_UNDECIDED}; or a number. [default: auto]"
_SHAPE = "d_model=512,d_ff=2048,layers=8,heads=8[,vocabulary=N]"
_MODEL = (
    "A model of your own: a Python file or module and its function, or a configuration of transformers; repeatable. "
    "See `python -m runner model --help`."
)
_SHARD = "Only this share of the plan, such as 2/8: the same command on 8 machines measures every cell once."
_ON = "With --engine ray: accelerator types or custom resources, such as H200,A100. [default: every GPU]"
_PRESETS = f"One of {', '.join(PRESETS)}. [default: standard on CUDA, else laptop]"


def _annotate(column: Column) -> Any:
    """Returns the annotation of the option that sets a column of cells."""
    assert column.flag is not None
    flag, name = column.flag, column.flag.name.replace("_", "-")
    text = flag.help.format(choices=", ".join(CHOICES.get(flag.name, ())))
    if flag.kind == "axis":
        return Annotated[str | None, _what(text)]
    if flag.kind == "limit":
        return Annotated[Optional[column.type], _how(text, min=flag.least)]  # noqa: UP045
    return Annotated[bool | None, _flag(f"--{name}/--no-{name}", text)]


def sweep_options() -> dict[str, Any]:
    """Returns the annotations of `sweep`'s options by name: those of the schema between those of a sweep itself."""
    own: dict[str, dict[str, Any]] = {"axis": {}, "limit": {}, "switch": {}}
    for name, column in FLAGS.items():
        own[str(column.sets)][name] = _annotate(column)
    return {
        "preset": Annotated[str | None, _what(_PRESETS, metavar="NAME")],
        "experiment": Annotated[list[str] | None, _what("Only this experiment; repeatable.", metavar="NAME")],
        "sizes": Annotated[str | None, _what("Shapes by name; see `python -m runner list sizes`.")],
        "shape": Annotated[list[str] | None, _what("A shape of your own; repeatable.", metavar=_SHAPE)],
        "model": Annotated[list[str] | None, _what(_MODEL, metavar="FILE.py:build|hf:CONFIG")],
        **own["axis"],
        **own["limit"],
        "rounds": Annotated[str | None, _how(_ROUNDS, metavar="auto|N")],
        "engine": Annotated[str | None, where(f"One of {', '.join(ENGINES)}. [default: local]", metavar="NAME")],
        "on": Annotated[str | None, where(_ON)],
        "shard": Annotated[str | None, where(_SHARD, metavar="I/N")],
        "config": Annotated[Path | None, where("A TOML file with the same names; flags given here win.")],
        "db": Annotated[Path | None, where(DB_HELP)],
        "label": Annotated[str | None, where("A name for this run.")],
        "device": Annotated[str | None, where("auto, cuda, cuda:1, mps or cpu. [default: auto]")],
        "timeout": Annotated[str | None, where("Limit for one cell, such as 90s or 10m. [default: 10m]")],
        "budget": Annotated[str | None, where("No new cell is started after this time, such as 15m or 2h.")],
        **own["switch"],
        "fresh": Annotated[bool | None, _flag("--fresh", "Measure finished cells again.")],
        "any_commit": Annotated[
            bool | None, _flag("--any-commit", "Do not measure cells again that another commit of Stepscope measured.")
        ],
        "skip_predicted_oom": Annotated[bool | None, _flag("--skip-predicted-oom", _SKIP)],
        "ceilings": Annotated[bool | None, _flag("--ceilings/--no-ceilings", escape(_CEILINGS))],
        "again": Annotated[str | None, where("Measure only this cell once more: a row's id, or its beginning.")],
        "yes": Annotated[bool | None, _flag("--yes", "With --again: run an own model's code without asking.")],
        "dry_run": Annotated[bool | None, _flag("--dry-run", _DRY_RUN)],
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


FRONTIER: dict[str, Any] = {
    "attention": Annotated[str | None, _what(f"Of {', '.join(CHOICES['attention'])}. [default: naive]")],
    "d_heads": Annotated[str | None, _what("Head widths of single-head attention. [default: 16,32,64,128]")],
    "precisions": Annotated[str | None, _what(f"Of {', '.join(CHOICES['precisions'])}. [default: fp32]")],
    "causal": Annotated[str | None, _what("Of true, false, for single-head attention. [default: true]")],
    "batch": Annotated[str | None, _what("Sequences together. [default: 8; 4 for a model]")],
    "sizes": Annotated[str | None, _what("Models by name, instead of single-head attention; with --grow.")],
    "grow": Annotated[str | None, _what("What of a model's step grows.", metavar="context|batch")],
    "modes": Annotated[str | None, _what("A model's step: what has to fit. [default: train]")],
    "contexts": Annotated[str | None, _what("Tokens of each sequence, where the batch grows. [default: 512]")],
    "limit": Annotated[
        str | None, where("What it has to fit in, such as 2GiB. [default: the GPU's memory; what is free, on a CPU]")
    ],
    "step": Annotated[int | None, _how("Resolution of the answer. [default: 64; 1 for the batch]", min=1)],
    "db": Annotated[Path | None, where(DB_HELP)],
    "label": Annotated[str | None, where("A name for this run.")],
    "device": Annotated[str | None, where("auto, cuda, cuda:1, mps or cpu. [default: auto]")],
    "timeout": Annotated[str | None, where("Limit for one trial, such as 90s or 10m. [default: 10m]")],
    "fresh": Annotated[bool | None, _flag("--fresh", "Ask again what was answered before.")],
}

_NOT_OF_AB = ("rounds", "engine", "on", "shard", "fresh", "any_commit", "ceilings", "dry_run")
AB: dict[str, Any] = {
    "a": Annotated[str | None, typer.Argument(help="The baseline: a commit, branch or tag.", show_default=False)],
    "b": Annotated[str | None, typer.Argument(help="What is compared with it.", show_default=False)],
    "against": Annotated[str | None, _what("B as another model, instead of two commits.", metavar="FILE.py:build")],
    "threshold": Annotated[str | None, _how("How much slower or larger is a regression. [default: 5%]")],
    "clock": Annotated[str | None, _how("auto, latency, throughput or gpu. [default: auto]")],
    "form": Annotated[str | None, typer.Option("--format", help="text or markdown.", show_default=False)],
    "as_json": Annotated[bool | None, _flag("--json", "One object with every compared cell.")],
    **{name: how for name, how in sweep_options().items() if name not in _NOT_OF_AB},
}
