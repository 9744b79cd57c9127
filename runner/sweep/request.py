"""The flags of `sweep` and the values of a `sweep.toml`, checked and turned into a `Request` and `Settings`.

    request, settings = parse_request({"sizes": "small,medium", "precisions": "bf16", ...}, config=None)

A config file has the flags' names: `sizes = ["small"]`, `max-seconds = 5`. Flags win over the file.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.engines.engine import ENGINES
from runner.errors import UsageError
from runner.places import default_path, explain_place
from runner.plan.planning import PRESETS, QUESTIONS, Request, Rounds, parse_shard
from runner.schema import flags
from runner.schema.own import find_part, is_own_part, parse_spec
from runner.schema.sizes import size_named

FLAGS = {name: column for name, column in flags().items() if column.flag}
#: The allowed values of the axes that do not take every whole number.
CHOICES: Mapping[str, tuple[str, ...]] = {
    name: ("true", "false") if column.type is bool else column.choices
    for name, column in FLAGS.items()
    if column.choices or column.type is bool
}
#: The axes of whole numbers that may be 0.
_FROM_0 = ("checkpoint", "warmup")
#: The options of `--experiment frontier` alone, those that it shares with the other experiments, and what it answers.
FRONTIER = ("grow", "limit", "resolution")
FRONTIER_AXES = ("attention", "d_heads", "precisions", "causal", "batch", "sizes", "modes", "contexts")
FRONTIER_QUESTION = "How long a sequence, or how large a context or batch, fits in memory?"
_FRONTIER_SETTINGS = ("db", "label", "device", "timeout", "fresh")
#: More rounds add nothing, and a plan of them is too long to read.
MAX_ROUNDS = 100
#: The types that a config file may give for names that take one value; all other names take a value or a list.
TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("preset", "label", "device", "db", "shard", "engine", "grow", "limit"), (str,)),
    **dict.fromkeys(("timeout", "budget"), (str, int, float)),
    **dict.fromkeys(("fresh", "any_commit", "skip_predicted_oom", "ceilings"), (bool,)),
    "rounds": (int, str),
    "resolution": (int,),
    **{
        name: (int, float) if column.type is float else (column.type,)
        for name, column in FLAGS.items()
        if column.sets != "axis"
    },
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep or a frontier search runs, apart from what it measures. `timeout_s` is for one cell or trial; no cell
    is started after `budget_s`. `joins` names a run: with its machine, torch and commit, cells become further rounds of
    it; with others, they get a run of their own. With `any_commit` what other commits measured counts as done. `on` are
    the types of device that the `engine` is to use; all if it is empty. `command` is the command line of the run, where
    that is not the runner's own."""

    db: Path
    device: str = "auto"
    label: str | None = None
    timeout_s: float = 600.0
    budget_s: float | None = None
    fresh: bool = False
    any_commit: bool = False
    skip_predicted_oom: bool = False
    ceilings: bool = True
    joins: UUID | None = None
    engine: str = "local"
    on: tuple[str, ...] = ()
    command: str | None = None

    def torch_device(self, machine: Mapping[str, Any]) -> str:
        """Returns the device string for the workers; `auto` is the device that the machine described."""
        return str(machine["device"]) if self.device == "auto" else self.device


def parse_request(given: Mapping[str, Any], *, config: Path | None) -> tuple[Request, Settings]:
    """Returns what to measure and how, from flags by name (None where not given) over the config file's values.

    Raises UsageError for an unknown name or value, and names those that are known."""
    options = _merge(given, config)
    return _request(options), _settings(options)


def parse_frontier(given: Mapping[str, Any], *, config: Path | None) -> tuple[Mapping[str, Any], Settings] | None:
    """Returns the options of `--experiment frontier` by name, and how it runs; None where other experiments are asked
    for. Raises UsageError for options that do not go together."""
    options = _merge(given, config)
    own = [name for name in FRONTIER if options.get(name) is not None]
    if options["experiment"] is None or "frontier" not in (names := _split(options["experiment"])):
        if own:
            raise UsageError(f"{list_flags(own)} came without --experiment frontier.", do="Add that, or leave it out.")
        return None
    known = ("experiment", *FRONTIER, *FRONTIER_AXES, *_FRONTIER_SETTINGS)
    others = [name for name, value in options.items() if value is not None and name not in known]
    if others or len(names) > 1:
        raise UsageError(
            f"--experiment frontier came with {list_flags(others) if others else 'other experiments'}.",
            expected=f"that alone, with any of {list_flags((*FRONTIER, *FRONTIER_AXES, *_FRONTIER_SETTINGS))}",
        )
    return {name: options[name] for name in (*FRONTIER, *FRONTIER_AXES)}, _settings(options)


def list_flags(names: Iterable[str]) -> str:
    """Returns names as options of the command line: `--max-steps, --db`."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _merge(given: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Returns the flags over the file's values, whose names must be flags'."""
    try:
        if config and (why := explain_place(config)):
            raise ValueError(why)
        file = tomllib.loads(config.read_text()) if config else {}
    except (OSError, ValueError) as error:  # not TOML, or not even UTF-8
        raise UsageError(
            f"{config} cannot be read: {error}.", expected='a TOML file such as `sizes = ["small"]`'
        ) from None
    named = {name.replace("-", "_"): value for name, value in file.items()}
    unknown = sorted(set(named) - set(given))
    if unknown:
        raise UsageError(f"The config names {', '.join(unknown)}.", expected=f"names among {', '.join(given)}")
    for name, value in named.items():
        types = TYPES.get(name, (str, int, list))
        if type(value) not in types or (types == (int,) and isinstance(value, int) and value < 1):
            known = " or ".join(item.__name__ for item in types)
            expected = "a whole number, at least 1" if types == (int,) else f"a value of type {known}"
            raise UsageError(f"The config says {name} = {value!r}.", expected=expected)
    return {name: named.get(name) if value is None else value for name, value in given.items()}


def _request(options: Mapping[str, Any]) -> Request:
    axes = {name: _parse_value(name, options[name]) for name in (*FLAGS, "sizes") if options[name] is not None}
    shapes, models = (
        [value] if isinstance(value := options[name] or (), str) else value for name in ("shape", "model")
    )
    if shapes:
        axes |= {"shape": _split(shapes), "sizes": axes.get("sizes", ())}
    if models:
        specs = tuple(dict.fromkeys(parse_spec(text).text for text in models))
        axes |= {"model": specs, "sizes": axes.get("sizes", ())}
    if options["preset"] is not None:
        _check_choice("preset", options["preset"], PRESETS)
    experiments = _split(options["experiment"] or QUESTIONS)
    for name in experiments:
        _check_choice("experiment", name, (*QUESTIONS, "frontier"))
    rounds = parse_rounds("auto" if options["rounds"] is None else options["rounds"])
    shard = parse_shard(options["shard"]) if options["shard"] else None
    return Request(preset=options["preset"], experiments=experiments, axes=axes, rounds=rounds, shard=shard)


def _settings(options: Mapping[str, Any]) -> Settings:
    timeout, budget = options["timeout"], options["budget"]
    return Settings(
        db=Path(options["db"] or default_path()),
        device=options["device"] or "auto",
        label=options["label"],
        timeout_s=parse_duration("timeout", "10m" if timeout is None else timeout),
        budget_s=None if budget is None else parse_duration("budget", budget),
        fresh=bool(options["fresh"]),
        any_commit=bool(options["any_commit"]),
        skip_predicted_oom=bool(options["skip_predicted_oom"]),
        ceilings=options["ceilings"] is not False,
        engine=options["engine"] or ENGINES[0],
        on=_split(options["on"] or ()),
    )


def _split(value: str | Iterable[object]) -> tuple[str, ...]:
    """Splits `a,b` from the command line, or takes a list from a file, as separate strings."""
    return tuple(str(item).strip() for item in (value.split(",") if isinstance(value, str) else value))


def _parse_value(name: str, value: Any) -> Any:
    """Returns the values of an axis or a switch, or the number of a limit."""
    column = FLAGS.get(name)
    if column and column.sets != "axis":
        return (value,) if column.sets == "switch" else column.type(value)  # a key tells 5 from 5.0
    return parse_values(name, value)


def parse_values(name: str, value: str | int | Iterable[object]) -> tuple[Any, ...]:
    """Returns the values of one axis. Raises UsageError for one that the axis does not have."""
    texts = _split(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    flag = name.replace("_", "-")
    if name == "sizes":
        return tuple(size_named(text).name for text in texts)
    if name in CHOICES:
        is_bool, of = FLAGS[name].type is bool, FLAGS[name].flag
        texts = tuple(text.lower() for text in texts) if is_bool else texts
        for text in texts:
            if not (of and of.open and is_own_part(text)):
                _check_choice(flag, text, CHOICES[name])
        return tuple(text == "true" if is_bool else find_part(text) if is_own_part(text) else text for text in texts)
    wrong = next((text for text in texts if not text.isdecimal()), None)
    if wrong is not None:
        expected = "whole numbers from 0, such as 0,5" if name in _FROM_0 else "whole numbers from 1, such as 128,256"
        raise UsageError(f"--{flag} got {wrong!r}.", expected=expected)
    for one, end in pairwise(texts):
        if len(end) == 3 and end.startswith("0"):
            do = f"For one number write {one}{end}; for two, {one},{int(end)}."
            raise UsageError(f"--{flag} got '{one},{end}'.", expected="numbers without a comma in them", do=do)
    return tuple(int(text) for text in texts)


def parse_rounds(value: str | int) -> Rounds:
    """Returns `auto` or the number of rounds. Raises UsageError for anything else, and for more than MAX_ROUNDS."""
    if value == "auto":
        return "auto"
    number = int(value) if str(value).isdecimal() else 0
    if number > MAX_ROUNDS:
        raise UsageError(f"--rounds got {number:,}.", expected=f"at most {MAX_ROUNDS}", do="Sweep again with --fresh.")
    if number < 1:
        raise UsageError(f"--rounds got {value!r}.", expected="auto, or a whole number of at least 1")
    return number


def _check_choice(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise UsageError(f"--{name} got {value!r}.", expected=f"one of {', '.join(choices)}")


def parse_duration(name: str, text: str | float) -> float:
    """Returns `90`, `90s`, `15m` or `2h` in seconds. Raises UsageError for anything else, with the flag's `name`."""
    units = {"s": 1, "m": 60, "h": 3600}
    digits, unit = (str(text)[:-1], units[str(text)[-1]]) if str(text)[-1:] in units else (str(text), 1)
    try:
        length = float(digits) * unit
    except ValueError:
        raise UsageError(f"--{name} got {text!r}.", expected="a time such as 90s, 15m or 2h") from None
    if not 0 < length < float("inf"):
        raise UsageError(f"--{name} got {text!r}.", expected="a time above zero, such as 90s, 15m or 2h")
    return length
