"""The parameters of a request for rows, parsed into a table, a selection and numbers.

    asked = parse_parameters(request.query_params.multi_items())
    parse_table(asked), parse_selection(asked, load_contents(path)), parse_count(asked, "limit", usual=100, most=1000)

Names and values are those of a page's address. Anything else raises a UsageError that lists what is allowed.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pages.frame import ALL_RUNS
from runner.errors import UsageError
from runner.schema import TABLES, Model, Table
from runner.schema.own import is_unread
from runner.schema.sizes import name_models
from runner.store.read import selection as queries
from runner.store.read.runs import Contents
from runner.store.read.selection import Selection

#: The filters of rows, by the names of their parameters.
FILTERS = ("machine", "run", *queries.FILTERS)
#: The context of models whose samples have no length.
NO_CONTEXT = "no length"
#: `data` is the edition of the file in a copied link; the header X-Stepscope-Data holds the present edition.
PARAMETERS = ("table", *FILTERS, "status", "limit", "offset", "data")
_SINGLE = tuple(name for name in PARAMETERS if name not in (*queries.REPEATABLE, "status"))


def parse_parameters(given: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns the values of each parameter. Raises UsageError for an unknown one, and for a single one twice."""
    asked: dict[str, list[str]] = {}
    for name, value in given:
        asked.setdefault(name, []).append(value)
    if unknown := [name for name in asked if name not in PARAMETERS]:
        raise UsageError(f"The parameter “{unknown[0]}”.", expected=list_names(PARAMETERS), do="See /api/v1.")
    for name in _SINGLE:
        if len(asked.get(name, ())) > 1:
            raise UsageError(f"{name} {len(asked[name])} times.", expected="it once", do="Ask once for each.")
    return asked


def parse_table(asked: Mapping[str, list[str]]) -> Table:
    """Returns the table that the request names. Raises UsageError without one."""
    if "table" not in asked:
        raise UsageError("No table.", expected=f"table={list_names(TABLES)}", do="See /api/v1 for what they hold.")
    (name,) = check_choices("table", asked["table"], TABLES)
    return TABLES[name]


def parse_selection(asked: Mapping[str, list[str]], held: Contents) -> Selection:
    """Returns the selection of a page's filters, without their defaults. Raises UsageError for an unknown value."""
    runs = {run.name: run.run_id for run in held.runs}
    runs |= {str(run.run_id): run.run_id for run in held.runs}
    check_choices("machine", machines := asked.get("machine", ()), held.machines)
    check_choices("run", named := asked.get("run", ()), (*runs, ALL_RUNS))
    chosen = {name: _parse_filter(name, asked.get(name, ()), held) for name in queries.FILTERS}
    return Selection(
        machine=next(iter(machines), None),
        run=next((runs[run] for run in named if run in runs), None),
        **chosen | {"mode": next(iter(chosen["mode"]), None)},
    )


def _parse_filter(name: str, texts: Iterable[str], held: Contents) -> Any:
    """Returns the values of a filter: whole numbers, choices of the schema, or sizes of the file."""
    named = name_values(name, held)
    if name == "size":
        return tuple(shape for text in check_choices(name, texts, named) for shape in named[text])
    column = TABLES["steps"].column(name)
    if column.type is int:
        return tuple(named[text][0] if text in named else _parse_number(name, text, most=2**62) for text in texts)
    return check_choices(name, texts, column.choices)


def name_values(name: str, contents: Contents) -> dict[str, tuple[Any, ...]]:
    """Returns the names that a filter knows, in the schema's order, and the values that each stands for."""
    if name == "size":
        shapes: dict[str, tuple[Model, ...]] = {}
        for shape, size in name_models(contents.shapes).items():
            shapes[size] = (*shapes.get(size, ()), shape)
        return shapes
    choices, values = TABLES["steps"].column(name).choices, contents.choices[name]
    known = [value for value in choices if value in values]
    ordered = (*known, *(value for value in values if value not in known))
    return {NO_CONTEXT if is_unread(name, value) else str(value): (value,) for value in ordered}


def check_choices(name: str, values: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Returns the values. Raises UsageError for one that is not known."""
    for value in values:
        if value not in known:
            do = "Names are those of the pages' filters."
            raise UsageError(f"{name}={value}.", expected=list_names(known), do=do)
    return tuple(values)


def parse_count(asked: Mapping[str, list[str]], name: str, *, usual: int, most: int) -> int:
    """Returns the number of a parameter, `usual` without one. Raises UsageError for anything but 0 to `most`."""
    (text,) = asked.get(name, [str(usual)])
    return _parse_number(name, text, most=most)


def _parse_number(name: str, text: str, *, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise UsageError(f"{name}={text}.", expected=f"a whole number from 0 to {most:,}")
    return int(text)


def list_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing: this file has none"
