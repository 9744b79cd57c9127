"""Reads a small TOML file that says what the columns of a table mean where their headings do not.

    [table]                                        # of every row that does not say otherwise
    machine = "H100 80GB"
    batch = 4

    [columns]
    "F" = { quantity = "forward", statistic = "mean", unit = "ms", precision = "bf16" }
    "F sd" = { quantity = "forward", statistic = "std", unit = "ms", precision = "bf16" }
    "who" = { setting = "name" }
    "remark" = "keep"

`[table]` takes `title`, `machine`, `decimal = ","`, and any setting. A column is "keep", "status", "oom", "quantity" or
"value", or has a setting, a quantity or an origin. Standard library only.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from runner.errors import UsageError
from runner.places import explain_place
from runner.published.headings import TIME, WHOLE, Meaning, Role, parse_setting
from runner.published.values import UNITS, normalize_unit
from runner.results import Quantity, Setting, Statistic

SETTINGS = frozenset(item.name for item in fields(Setting))
_BYTES = 2**20
_ROLES: Mapping[str, Role] = {
    "keep": "kept",
    "status": "status",
    "oom": "oom",
    "quantity": "quantity",
    "value": "value",
}
_ORIGINS = ("file", "line", "title", "machine")
_STATISTICS: Mapping[str, tuple[Statistic, ...]] = {
    **{name: (name,) for name in get_args(Statistic)},
    "mean and std": ("mean", "std"),
}
_UNITS = {unit for units in UNITS.values() for unit in units}
_DO = "Write a first draft of it with `python -m runner import FILE --propose`."


@dataclass(frozen=True, kw_only=True)
class TableMapping:
    """The content of a mapping; `digest` names it."""

    columns: Mapping[str, Meaning] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    machine: str | None = None
    decimal: str = "."
    digest: str = ""


def load_mapping(path: Path) -> TableMapping:
    """Returns what the mapping file says. Raises UsageError for a file that is no mapping."""
    if why := explain_place(path):
        raise UsageError(f"{path} cannot be read: {why}.", do=_DO)
    try:
        content = path.read_bytes()[: _BYTES + 1]
        document = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do=_DO) from None
    except (ValueError, RecursionError) as error:
        raise _refuse(path, f"text that is no TOML ({error})", "TOML") from None
    if len(content) > _BYTES:
        raise _refuse(path, "a file of more than 1 MiB", "a small one")
    unknown = [
        name for name, value in document.items() if name not in ("table", "columns") or not isinstance(value, dict)
    ]
    if unknown:
        raise _refuse(path, f"“{unknown[0]}”", "the sections [table] and [columns]")
    table = dict(document.get("table", {}))
    named: dict[str, Any] = {name: table.pop(name, None) for name in ("title", "machine")}
    decimal = table.pop("decimal", ".")
    if decimal not in (".", ","):
        raise _refuse(path, f"decimal = {decimal!r}", 'decimal = "." or ","')
    if not all(isinstance(text, str | None) for text in named.values()):
        raise _refuse(path, "another type in [table]", "texts as title and machine")
    return TableMapping(
        columns={name: _parse_column(path, name, given) for name, given in document.get("columns", {}).items()},
        settings={name: _parse_setting(path, name, value) for name, value in table.items()},
        decimal=decimal,
        digest=hashlib.sha256(content).hexdigest(),
        **named,
    )


def _parse_column(path: Path, name: str, given: object) -> Meaning:
    if isinstance(given, str) and given in _ROLES:
        return Meaning(role=_ROLES[given])
    if not isinstance(given, dict) or not given or not all(isinstance(value, str | int) for value in given.values()):
        raise _refuse(path, f"{given!r} for the column “{name}”", '“keep” or a table such as { setting = "name" }')
    left = dict(given)
    kinds = [kind for kind in ("setting", "quantity", "origin") if kind in left]
    if len(kinds) != 1:
        raise _refuse(path, f"{given!r} for the column “{name}”", "one of setting, quantity and origin")
    kind = kinds[0]
    meant, unit = left.pop(kind), left.pop("unit", None)
    if kind == "setting":
        meaning = Meaning(
            role="setting",
            setting=_check(path, name, meant, SETTINGS),
            unit=None if unit is None else str(unit),
            from_command=bool(left.pop("of_command", False)),
        )
    elif kind == "origin":
        meaning = Meaning(role="origin", setting=_check(path, name, meant, _ORIGINS))
    else:
        statistic = _check(path, name, left.pop("statistic", "value"), _STATISTICS)
        variant = {key: left.pop(key) for key in list(left) if key in SETTINGS}
        meaning = Meaning(
            role="figure",
            quantity=_check_quantity(path, name, meant),
            statistics=_STATISTICS[statistic],
            unit=None if unit is None else _check(path, name, unit, _UNITS, normal=True),
            variant=variant,
        )
    if left:
        raise _refuse(path, f"“{next(iter(left))}” for the column “{name}”", "quantity, statistic, unit and settings")
    return meaning


def _check_quantity(path: Path, name: str, given: object) -> Any:
    known = [*(word for part in get_args(Quantity) for word in (get_args(part) or (part,))), TIME]
    return _check(path, name, given, known)


def _check(path: Path, name: str, given: object, known: Any, *, normal: bool = False) -> str:
    """Returns a text that is one of the known ones."""
    text = str(given)
    if (normalize_unit(text) if normal else text) not in known:
        raise _refuse(path, f"“{text}” for the column “{name}”", f"one of {', '.join(sorted(known))}")
    return text


def _parse_setting(path: Path, name: str, value: object) -> str | int | bool:
    if name not in SETTINGS or not isinstance(value, str | int):
        raise _refuse(path, f"{name} = {value!r} in [table]", f"title, machine, decimal, {', '.join(sorted(SETTINGS))}")
    read = parse_setting(name, str(value).lower() if isinstance(value, bool) else str(value))
    if read.value is None:
        raise _refuse(path, f"{name} = {value!r} in [table]", "a whole number" if name in WHOLE else "a value")
    return read.value


def _refuse(path: Path, got: str, expected: str) -> UsageError:
    return UsageError(f"{path} is no mapping that can be used: got {got}.", expected=expected, do=_DO)
