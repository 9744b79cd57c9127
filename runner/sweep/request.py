"""From what was typed, or written in a `sweep.toml`, to a `Request` and `Settings`; every value checked on the way.

    request, settings = read({"sizes": "small,medium", "precisions": "bf16", ...}, config=None)

A config file has the flags' names: `sizes = ["small"]`, `max-seconds = 5`. What was typed wins over the file.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.plan.planning import Request
from runner.plan.presets import PRESETS, QUESTIONS
from runner.schema import flags
from runner.schema.sizes import size_named
from runner.store.database import default_path
from runner.sweep.prepare import Settings

FLAGS = {name: column for name, column in flags().items() if column.flag}
#: What may be said of an axis, where not every whole number may.
CHOICES: Mapping[str, tuple[str, ...]] = {
    name: ("true", "false") if column.type is bool else column.choices
    for name, column in FLAGS.items()
    if column.choices or column.type is bool
}
#: More rounds than these tell nothing more, and a plan of them is not read.
MAX_ROUNDS = 100
#: What a config file may give for the names that take one value; the others take one or a list.
TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("preset", "label", "device", "db"), (str,)),
    **dict.fromkeys(("timeout", "budget"), (str, int, float)),
    **dict.fromkeys(("fresh", "skip_predicted_oom", "ceilings"), (bool,)),
    "rounds": (int,),
    **{
        name: (int, float) if column.type is float else (column.type,)
        for name, column in FLAGS.items()
        if column.sets != "axis"
    },
}


def read(typed: Mapping[str, Any], *, config: Path | None) -> tuple[Request, Settings]:
    """What to measure and how, from flags by name (None or False where not given) over the config file's values.

    Raises UsageError for an unknown name or value, saying which are known."""
    asked = _merged(typed, _from_file(config))
    return _request(asked), _settings(asked)


def _from_file(config: Path | None) -> dict[str, Any]:
    """The values of a sweep.toml, by the names of the flags."""
    if config is None:
        return {}
    try:
        return tomllib.loads(config.read_text())
    except (OSError, ValueError) as error:  # not TOML, or not even UTF-8
        raise UsageError(
            f"{config} cannot be read: {error}.", expected='a TOML file such as `sizes = ["small"]`'
        ) from None


def _merged(given: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Flags over the file's values. Every name of the file must be a flag's."""
    named = {name.replace("-", "_"): value for name, value in file.items()}
    unknown = sorted(set(named) - set(given))
    if unknown:
        raise UsageError(f"The config names {', '.join(unknown)}.", expected=f"names among {', '.join(given)}")
    for name, value in named.items():
        _check_type(name, value)
    return {name: named.get(name) if value is None else value for name, value in given.items()}


def _check_type(name: str, value: object) -> None:
    """What the command line's parser checks of a flag, for a value of a config file."""
    types = TYPES.get(name, (str, int, list))
    right = type(value) in types and not (types == (int,) and isinstance(value, int) and value < 1)
    if not right:
        known = " or ".join(item.__name__ for item in types)
        expected = "a whole number, at least 1" if types == (int,) else f"a value of type {known}"
        raise UsageError(f"The config says {name} = {value!r}.", expected=expected)


def _request(asked: Mapping[str, Any]) -> Request:
    axes: dict[str, Any] = {}
    for name in (*FLAGS, "sizes"):
        if asked[name] is not None:
            axes[name] = _value(name, asked[name])
    if asked["shape"]:
        shapes = [asked["shape"]] if isinstance(asked["shape"], str) else asked["shape"]
        axes |= {"shape": _strings(shapes), "sizes": axes.get("sizes", ())}
    _check_choice("preset", asked["preset"], tuple(PRESETS))
    experiments = _strings(asked["experiment"] or QUESTIONS)
    for name in experiments:
        _check_choice("experiment", name, tuple(QUESTIONS))
    rounds = asked["rounds"] or 1
    if rounds > MAX_ROUNDS:
        raise UsageError(f"--rounds got {rounds:,}.", expected=f"at most {MAX_ROUNDS}", do="Sweep again with --fresh.")
    return Request(preset=asked["preset"], experiments=experiments, axes=axes, rounds=rounds)


def _settings(asked: Mapping[str, Any]) -> Settings:
    budget = asked["budget"]
    return Settings(
        db=Path(asked["db"] or default_path()),
        device=asked["device"] or "auto",
        label=asked["label"],
        timeout_s=seconds("timeout", "10m" if asked["timeout"] is None else asked["timeout"]),
        budget_s=None if budget is None else seconds("budget", budget),
        fresh=bool(asked["fresh"]),
        skip_predicted_oom=bool(asked["skip_predicted_oom"]),
        ceilings=asked["ceilings"] is not False,
    )


def _strings(value: Any) -> tuple[str, ...]:
    """`a,b` from the command line, or a list from a file, as separate strings."""
    return tuple(str(item).strip() for item in (value.split(",") if isinstance(value, str) else value))


def _value(name: str, value: Any) -> Any:
    """The values of an axis or a switch, the number of a limit."""
    column = FLAGS.get(name)
    if column and column.sets != "axis":
        return (value,) if column.sets == "switch" else column.type(value)  # a key tells 5 from 5.0
    return values(name, value)


def values(name: str, value: Any) -> tuple[Any, ...]:
    """The values of one axis, checked."""
    texts = _strings([value] if isinstance(value, int) else value)
    is_bool = name in FLAGS and FLAGS[name].type is bool
    if is_bool:
        texts = tuple(text.lower() for text in texts)
    if name == "sizes":
        return tuple(size_named(text).name for text in texts)
    if name in CHOICES:
        for text in texts:
            _check_choice(name.replace("_", "-"), text, CHOICES[name])
        return tuple(text == "true" for text in texts) if is_bool else texts
    wrong = next((text for text in texts if not text.isdecimal()), None)
    if wrong is not None:
        flag = name.replace("_", "-")
        raise UsageError(f"--{flag} got {wrong!r}.", expected="whole numbers, such as 128,256")
    return tuple(int(text) for text in texts)


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise UsageError(f"--{name} got {value!r}.", expected=f"one of {', '.join(choices)}")


def seconds(name: str, text: Any) -> float:
    """`90`, `90s`, `15m` or `2h` in seconds."""
    units = {"s": 1, "m": 60, "h": 3600}
    digits, unit = (str(text)[:-1], units[str(text)[-1]]) if str(text)[-1:] in units else (str(text), 1)
    try:
        length = float(digits) * unit
    except ValueError:
        raise UsageError(f"--{name} got {text!r}.", expected="a time such as 90s, 15m or 2h") from None
    if not 0 < length < float("inf"):
        raise UsageError(f"--{name} got {text!r}.", expected="a time above zero, such as 90s, 15m or 2h")
    return length
