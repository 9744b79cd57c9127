"""Reads the tables of a file that others published: what each column means, and each row with its figures.

    for table in read_file(Path("data/reference/004_e2e.csv")).tables:
        print(table.title, table.rows[0].mean("forward"))

A column is a figure where its heading, or a mapping, says what it measures and in which unit; every other column is
kept as it is written and tells its rows apart. Every table of the file is stored or named with the reason. The same
bytes give the same tables with the same ids. A `provenance.csv` beside the file says what is known of each report; a
report is what the file's name begins with, up to the first underscore. Standard library only, and markdown-it.
"""

import contextlib
import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast, get_args
from uuid import NAMESPACE_URL, UUID, uuid5

from runner.errors import UsageError
from runner.formats import visible
from runner.places import explain_place, explained
from runner.published.headings import (
    TIME,
    WHOLE,
    Meaning,
    Role,
    find_subject,
    parse_heading,
    parse_pass,
    parse_setting,
    read_title,
)
from runner.published.tables import FILE_BYTES, FORMATS, GROUP, TableRefused, TextRow, TextTable, parse_tables
from runner.published.values import (
    DIMENSION_OF,
    UNITS,
    Commas,
    is_decimal_comma,
    is_oom,
    normalize_unit,
    parse_cell,
    spell_unit,
)
from runner.results.published import PublishedFigure, PublishedRow, PublishedTable, Quantity, Statistic
from runner.schema import PublishedSetting, Status

#: Rises when the same file would be read differently, so that an import adds it again.
READER = 6
PROVENANCE = "provenance.csv"
OUT_OF_MEMORY = "Out of memory."
#: Begins the remark of what was wanted and is not stored.
REFUSED = "was refused"
#: What is said of a figure's column of which no cell can be read.
_NO_NUMBER = "kept as text, because no cell holds a number."
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_NAMESPACE = uuid5(NAMESPACE_URL, "stepscope:published")
_UNIT_OF_TITLE = re.compile(
    r"[(\[,]\s?(?:all )?(?:times? )?(?:in )?([^\W\d]+)\s?[)\]]|\bin ([^\W\d]+)\b", re.IGNORECASE
)
_SPELLED: Mapping[Status, str] = {
    "ok": "ok|success|passed|pass|done|completed|✓|✅", "error": "fail|failed|error|✗|❌",
    "timeout": "timeout|timed out", "crashed": "crash|crashed|killed", "skipped": "skip|skipped|not run",
}  # fmt: skip
_STATUSES = {word: status for status, words in _SPELLED.items() for word in words.split("|")}
_BYTES = re.compile(r"\d+(?:\.\d+)?\s?[KMGT]i?B", re.IGNORECASE)

SETTINGS = frozenset(item.name for item in fields(PublishedSetting))
_MAPPING_BYTES = 2**20
_ROLES: tuple[Role, ...] = ("status", "oom", "quantity", "value")
_ORIGINS = ("file", "line", "title", "machine")
_STATISTICS: Mapping[str, tuple[Statistic, ...]] = {
    **{name: (name,) for name in get_args(Statistic)},
    "mean and std": ("mean", "std"),
}
_QUANTITIES = {*(word for part in get_args(Quantity) for word in (get_args(part) or (part,))), TIME}
_KINDS = {"setting": SETTINGS, "origin": _ORIGINS, "quantity": _QUANTITIES}
_UNITS = {unit for units in UNITS.values() for unit in units}
_DO = "Write a first draft of it with `python -m runner import FILE --propose`."


@dataclass(frozen=True, kw_only=True)
class TableMapping:
    """The content of a mapping, a small TOML file that says what the columns mean where their headings do not:

        [table]                                        # of every row that does not say otherwise
        machine = "H100 80GB"
        batch = 4

        [columns]
        "F" = { quantity = "forward", statistic = "mean", unit = "ms", precision = "bf16" }
        "who" = { setting = "name" }
        "remark" = "keep"

    `[table]` takes `title`, `machine`, `decimal = ","`, and any setting. A column is "keep", "status", "oom",
    "quantity" or "value", or has a setting, a quantity or an origin. `digest` names the mapping."""

    columns: Mapping[str, Meaning] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    machine: str | None = None
    decimal: str = "."
    digest: str = ""


def load_mapping(path: Path) -> TableMapping:
    """Returns what the mapping file says. Raises UsageError for a file that is no mapping."""
    content = read_bytes(path, most=_MAPPING_BYTES, do=_DO)
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refuse_mapping(f"text that is no TOML ({error})", "TOML") from None
    for name, part in document.items():
        if name not in ("table", "columns") or not isinstance(part, dict):
            raise _refuse_mapping(f"“{name}”", "the sections [table] and [columns]")
    table = dict(document.get("table", {}))
    named: dict[str, Any] = {name: table.pop(name, None) for name in ("title", "machine")}
    decimal = table.pop("decimal", ".")
    if decimal not in (".", ",") or not all(isinstance(text, str | None) for text in named.values()):
        raise _refuse_mapping(f"decimal = {decimal!r} and {named}", 'decimal = "." or ",", texts as title and machine')
    return TableMapping(
        columns={name: _parse_column(name, given) for name, given in document.get("columns", {}).items()},
        settings={name: _parse_value(name, value) for name, value in table.items()},
        decimal=decimal,
        digest=hashlib.sha256(content).hexdigest(),
        **named,
    )


def _parse_value(name: str, value: object) -> str | int | bool:
    got = f"{name} = {value!r} in [table]"
    if name not in SETTINGS or not isinstance(value, str | int):
        raise _refuse_mapping(got, f"title, machine, decimal, {', '.join(sorted(SETTINGS))}")
    read, _ = parse_setting(name, str(value))
    if read is None:
        raise _refuse_mapping(got, "a whole number" if name in WHOLE else "a value")
    return read


def _parse_column(name: str, given: object) -> Meaning:
    if given == "keep" or given in _ROLES:
        return Meaning(role="kept" if given == "keep" else given)
    if not isinstance(given, dict) or not given or not all(isinstance(value, str | int) for value in given.values()):
        raise _refuse_mapping(f"{given!r} for the column “{name}”", '“keep” or a table such as { setting = "name" }')
    left = dict(given)
    kinds = [kind for kind in _KINDS if kind in left]
    if len(kinds) != 1:
        raise _refuse_mapping(f"{given!r} for the column “{name}”", "one of setting, quantity and origin")
    meant = _check(name, str(left.pop(kinds[0])), _KINDS[kinds[0]])
    unit = str(left.pop("unit")) if "unit" in left else None
    _check(name, normalize_unit(unit or "ms"), _UNITS)
    statistics = _STATISTICS[_check(name, str(left.pop("statistic", "value")), _STATISTICS)]
    variant = {key: left.pop(key) for key in list(left) if key in SETTINGS}
    if left:
        raise _refuse_mapping(f"“{next(iter(left))}” for the column “{name}”", "quantity, statistic, unit and settings")
    if "quantity" not in kinds:
        return Meaning(role="setting" if "setting" in kinds else "origin", setting=meant, unit=unit)
    return Meaning(role="figure", quantity=cast(Quantity, meant), statistics=statistics, unit=unit, variant=variant)


def _refuse_mapping(got: str, expected: str) -> UsageError:
    return UsageError(f"The mapping cannot be used: got {got}.", expected=expected, do=_DO)


def _check(name: str, text: str, known: Collection[str]) -> str:
    if text not in known:
        raise _refuse_mapping(f"“{text}” for the column “{name}”", f"one of {', '.join(sorted(known))}")
    return text


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """What a file holds: its tables, the tables that are none of figures, with the reason, and the rows and tables that
    were wanted and could not be read. `digest` names the reading."""

    tables: Sequence[PublishedTable]
    digest: str
    remarks: Sequence[str] = ()
    lost: Sequence[str] = ()


def read_file(path: Path, *, mapping: TableMapping | None = None) -> ReadFile:
    """Returns what the file holds. Raises UsageError for a file without any figure, one that is too large, and a
    mapping that names a column which no table has."""
    mapping = mapping or TableMapping()
    texts, digest = parse_file(path)
    known = [heading for table in texts for heading in table.headings]
    missing = [name for name in mapping.columns if name not in known]
    if missing:
        raise UsageError(
            f"The mapping names the column “{visible(missing[0])[:60]}”, which no table of {path} has.",
            expected=f"one of {', '.join(sorted({*known})[:20])}",
            do="Correct the mapping.",
        )
    provenance = _read_provenance(path)
    tables: list[PublishedTable] = []
    remarks: list[str] = []
    lost: list[str] = []
    for number, text in enumerate(texts):
        if text.refused:
            lost.append(f"{text.name} {REFUSED}: {text.refused}.")
            continue
        lost += [f"{text.name}: {said}" for said in text.lost if REFUSED in said]
        meanings = understand_columns(text, mapping)
        table = _build_table(text, meanings, mapping, path, uuid5(_NAMESPACE, f"{digest}:{mapping.digest}:{number}"))
        figures = [(row, figure) for row in table.rows for figure in row.figures]
        if any(row.status == "oom" or one.value is not None or one.quantity == "dtype" for row, one in figures):
            machine = table.machine or provenance.get("machine")
            tables.append(replace(table, report=provenance.get("report"), machine=machine, provenance=provenance))
        else:
            remarks.append(f"{text.name} is not stored: {_say_why_not(meanings, table)}.")
    if not tables:
        raise UsageError(
            f"{path} holds no table that can be imported: {' '.join([*lost, *remarks])}",
            expected="numbers below headings such as “forward (ms)” or “peak memory (MiB)”, or a mapping of headings",
            do=f"Correct the cells, or draft a mapping with `python -m runner import {path.name} --propose`.",
        )
    return ReadFile(tables=tables, digest=digest, remarks=remarks, lost=lost)


def _say_why_not(meanings: Mapping[str, Meaning], table: PublishedTable) -> str:
    """Returns why a table has no figure: no cell that can be read, or no heading that says what it measures."""
    if empty := [f"“{heading[:40]}”" for heading, meaning in meanings.items() if meaning.assumed == _NO_NUMBER]:
        return f"no cell below {', '.join(empty[:8])} holds a number"
    for figure in (figure for row in table.rows for figure in row.figures):
        why = (figure.remark or "").removesuffix(".")
        return f"no figure can be read, such as “{figure.text[:40]}” below “{figure.heading[:40]}”: {why}"
    unknown = [heading for heading, meaning in meanings.items() if meaning.role == "unknown"]
    names = ", ".join(f"“{name[:40]}”" for name in [*(unknown or meanings)][:8])
    return f"no heading says what it measures ({names})" + (": not known" if unknown else "")


def parse_file(path: Path, *, ending: str | None = None) -> tuple[list[TextTable], str]:
    """Returns the tables of a file before anything is understood of them, and the name of the reading; `ending` says of
    which format it is where its name does not. Raises UsageError."""
    content = read_bytes(path, most=FILE_BYTES, do="Name a file with tables, or import it in pieces.")
    if b"\0" in content and not content.startswith(_WIDE):
        raise UsageError(f"{path} holds bytes that are no text.", expected=FORMATS, do="Name a file with tables.")
    text = content.decode("utf-16" if content.startswith(_WIDE) else "utf-8-sig", errors="replace")
    try:
        tables = parse_tables(text.replace("\r\n", "\n").replace("\r", "\n"), ending=ending or path.suffix.lower())
    except TableRefused as error:
        do = error.do or "Export the table as CSV, or write it as a Markdown table."
        got = f"{path} holds no table that can be imported: got {error.got}."
        raise UsageError(got, expected=error.expected or FORMATS, do=do) from None
    return tables, f"{READER}:{hashlib.sha256(content).hexdigest()}"


def read_bytes(path: Path, *, most: int | None = None, first: int = -1, do: str = "Name a file to import.") -> bytes:
    """Returns the bytes of a file, or the first of them. Raises UsageError for one that cannot be read, holds more than
    `most`, or has no first bytes because it is empty."""
    with explained(f"{path} cannot be read", do=do, kind=UsageError):
        # A file of the system such as /proc/kmsg says that it is empty, and is waited for.
        if why := explain_place(path) or ("it is empty" if first > 0 and not path.stat().st_size else ""):
            raise UsageError(f"{path} cannot be read: {why}.", do=do)
        if most and path.stat().st_size > most:
            raise UsageError(f"{path} holds {path.stat().st_size:,} bytes.", expected=f"at most {most:,}", do=do)
        with path.open("rb") as file:
            return file.read(first)


def _read_provenance(path: Path) -> Mapping[str, str]:
    """Returns what `provenance.csv` says of the file's report, by its headings."""
    beside, report = path.parent / PROVENANCE, path.stem.split("_")[0]
    if path.name == PROVENANCE or not beside.is_file():
        return {}
    with contextlib.suppress(UsageError):
        for table in parse_file(beside)[0]:
            for row in table.rows:
                said = {heading: cell for heading, cell in zip(table.headings, row.cells, strict=True) if cell}
                if said.get("report") == report:
                    return said
    return {}


def understand_columns(table: TextTable, mapping: TableMapping) -> dict[str, Meaning]:
    """Returns the meaning of each column by its heading, by the mapping or else by its heading and its cells."""
    meanings = {
        heading: mapping.columns.get(heading) or _understand(heading, [cell for cell in table.column(place) if cell])
        for place, heading in enumerate(table.headings)
    }
    # The other columns or the title decide whose name a "name" is, whether a dtype is a figure, and the unit of one
    # whose heading has none.
    quantities = {meaning.quantity for meaning in meanings.values() if meaning.role == "figure"}
    has_figures = bool(quantities) or any(meaning.role == "value" for meaning in meanings.values())
    for place, heading in enumerate(table.headings):
        meaning = meanings[heading]
        if heading in mapping.columns:
            continue
        if meaning.quantity == TIME and meaning.statistics == ("std",):
            figures = (one for one in table.headings if meanings[one].role == "figure")
            times = [one for one in figures if meanings[one].dimension == "time"]
            before = times[: times.index(heading)]
            if before:
                of, said = meanings[before[-1]], f"the deviation of “{before[-1]}”."
                meaning = replace(meaning, quantity=of.quantity, variant=of.variant, assumed=said)
            elif times == [heading]:
                said = "kept as text: a standard deviation without the time that it is of."
                meaning = Meaning(role="unknown", assumed=said)
            meanings[heading] = meaning
        if meaning.role == "setting" and heading.strip().lower() == "name" and "calls" not in quantities:
            meanings[heading] = replace(meaning, setting="name")
        elif meaning.role == "setting" and meaning.setting == "precision" and not has_figures:
            meanings[heading] = Meaning(role="figure", quantity="dtype")
        elif meaning.role == "figure" and not meaning.unit and meaning.dimension in ("time", "bytes"):
            meanings[heading] = _borrow_unit(meanings, meaning, mapping.title or table.title or "")
        elif meaning.role == "figure" and not meaning.unit and meaning.dimension == "share":
            values = [value for cell in table.column(place) for value in parse_cell(cell, dimension="share").values]
            if any(abs(value) > 1 for value in values):
                said = "taken as percent, because a share is at most 1."
                meanings[heading] = replace(meaning, unit="%", assumed=said)
    return meanings


def _understand(heading: str, cells: Sequence[str]) -> Meaning:
    """Returns what a heading means above its cells, which decide only between meanings that it leaves open."""
    if heading == GROUP:
        return Meaning(role="group")
    meaning = parse_heading(heading)
    may_number = len(cells) > 1 and (meaning.role == "kept" or heading.startswith("column "))
    if may_number and [*cells] in ([*map(str, range(len(cells)))], [*map(str, range(1, len(cells) + 1))]):
        return Meaning(role="origin", setting="row")
    if meaning.role == "setting" and meaning.setting in WHOLE and cells:
        read = [parse_setting(meaning.setting, cell, unit=meaning.unit) for cell in cells]
        if all(remark and value is None for value, remark in read):
            return Meaning(role="kept", assumed="kept as text, because its cells are no whole numbers.")
    if meaning.setting == "name" and cells and all(_BYTES.fullmatch(cell) for cell in cells):
        return Meaning(role="kept", assumed="kept as text: its cells are sizes in bytes, of no model.")
    if meaning.role == "figure" and meaning.quantity != "dtype" and cells:
        if not any(re.search(r"\d", cell) or is_oom(cell) for cell in cells):
            return Meaning(role="kept", assumed=_NO_NUMBER)
        if meaning.quantity == TIME and not meaning.unit and all(cell.endswith("%") for cell in cells):
            return replace(meaning, quantity="share", unit="%")
    return meaning


def _borrow_unit(meanings: Mapping[str, Meaning], meaning: Meaning, title: str) -> Meaning:
    """Returns a figure with the unit of another statistic of it, or of the title."""
    for heading, other in meanings.items():
        is_same = (other.quantity, other.variant) == (meaning.quantity, meaning.variant)
        if other.unit and other.role == "figure" and is_same:
            return replace(meaning, unit=other.unit, assumed=f"in {other.unit}, as “{heading}” is.")
    for words in _UNIT_OF_TITLE.findall(title):
        unit = normalize_unit("".join(words))
        if DIMENSION_OF.get(unit) == meaning.dimension:
            return replace(meaning, unit=spell_unit(unit), assumed=f"in {spell_unit(unit)}, as the title says.")
    return meaning


def _build_table(
    text: TextTable, meanings: Mapping[str, Meaning], mapping: TableMapping, path: Path, table_id: UUID
) -> PublishedTable:
    def origins(name: str) -> list[str]:
        places = [place for place, heading in enumerate(text.headings) if meanings[heading].setting == name]
        return [*dict.fromkeys(cell for place in places for cell in text.column(place) if cell)]

    title = visible(mapping.title or "; ".join(origins("title")) or text.title or path.stem)
    remarks = [f"“{heading}”: {meaning.assumed}" for heading, meaning in meanings.items() if meaning.assumed]
    commas: Commas = "decimal" if mapping.decimal == "," else "thousands"
    if commas != "decimal" and any(is_decimal_comma(cell) for row in text.rows for cell in row.cells):
        commas = "doubtful"
        remarks.append("Some numbers have a comma for a decimal point; none with a comma was read.")
    # The settings that cells or headings state.
    stated = {meaning.setting for meaning in meanings.values() if meaning.role == "setting"}
    stated = stated.union(*(meaning.variant.keys() - {"part", "mode"} for meaning in meanings.values()))
    seen: Counter[int] = Counter()
    rows = []
    for row in text.rows:
        name = f"{row.line}.{seen[row.line]}" if seen[row.line] else str(row.line)
        seen[row.line] += 1
        rows.append(_build_row(row, uuid5(table_id, name), meanings, mapping.settings, title, stated, commas))
    shared = [said for said in rows[0].remarks if all(said in row.remarks for row in rows)] if rows else []
    about, quantities = f"{title} {path.stem}", {str(figure.quantity) for row in rows for figure in row.figures}
    return PublishedTable(
        table_id=table_id,
        title=title,
        file=visible(path.name),
        subject=find_subject(about, headings=text.headings, quantities=quantities, settings=stated),
        rows=tuple(rows),
        machine="; ".join(origins("machine")) or mapping.machine,
        meanings={heading: meaning.describe() for heading, meaning in meanings.items()},
        remarks=(*remarks, *text.lost, *shared),
    )


def _build_row(
    text: TextRow,
    row_id: UUID,
    meanings: Mapping[str, Meaning],
    given: Mapping[str, Any],
    title: str,
    by_column: set[str],
    commas: Commas,
) -> PublishedRow:
    """Returns a row; a title counts for settings that are not `by_column`."""
    found = zip(meanings.items(), text.cells, strict=True)
    cells = [(heading, meaning, cell) for (heading, meaning), cell in found if cell]
    origins = {meaning.setting: cell for _, meaning, cell in cells if meaning.role == "origin"}
    title = origins.get("title", title)
    settings: dict[str, Any] = {}
    remarks = []
    for heading, meaning, cell in cells:
        if meaning.role == "setting":
            read, remark = parse_setting(meaning.setting, cell, unit=meaning.unit)
            if read is not None and settings.setdefault(meaning.setting, read) != read:
                left = f"“{cell[:40]}” was left out: another column says {settings[meaning.setting]}."
                remarks.append(f"{heading}: {left}")
            remarks += [f"{heading}: {remark}"] if remark else []
        elif meaning.role == "group":
            settings = {**read_title(cell), **settings}
    settings = {**given, **settings}
    for name, value in read_title(title).items():
        if name not in by_column | settings.keys():
            settings[name] = value
            remarks.append(f"{name} {str(value).lower()} was taken from the title.")
    named_pass = next((cell for _, meaning, cell in cells if meaning.setting == "mode"), "")
    timed: Quantity = parse_pass(named_pass) or parse_pass(title) or "duration"
    named = next((parse_heading(cell) for _, meaning, cell in cells if meaning.role == "quantity"), None)
    figures: list[PublishedFigure] = []
    stated: dict[str, str] = {}
    status: Status = "ok"
    ran_out = False
    for heading, meaning, cell in cells:
        if meaning.role in ("figure", "value"):
            own = named if meaning.role == "value" and named and named.role == "figure" else meaning
            own = replace(own, quantity=timed if own.quantity == TIME else own.quantity)
            figures += _build_figures(heading, cell, own, commas)
            continue
        stated[heading] = cell
        if meaning.role == "status":
            status = _STATUSES.get(cell.lower(), status)
            if cell.lower() not in _STATUSES and not is_oom(cell):
                remarks.append(f"The status “{cell[:40]}” is not known: taken as ok.")
        ran_out |= meaning.role == "oom" and cell.lower() in ("true", "yes", "1")
        ran_out |= meaning.role != "origin" and "command" not in heading and is_oom(cell)
    # Where only one variant of several ran out, its own figure says so.
    lost = [figure for figure in figures if figure.value is None and is_oom(figure.text)]
    ran_out |= bool(lost) and (not all(one.variant for one in lost) or all(one.value is None for one in figures))
    return PublishedRow(
        row_id=row_id,
        line=text.line,
        setting=PublishedSetting(**settings),
        status="oom" if ran_out else status,
        figures=tuple(figures),
        stated=stated,
        source=":".join(origins[name] for name in ("file", "line") if name in origins) or None,
        remarks=tuple(remarks),
    )


def _build_figures(heading: str, text: str, meaning: Meaning, commas: Commas) -> list[PublishedFigure]:
    """Returns the figures of a cell: one, or a mean and its standard deviation."""
    assert meaning.quantity != TIME
    first, *others = meaning.statistics
    figure = PublishedFigure(
        heading=heading, text=text, quantity=meaning.quantity, statistic=first, variant=meaning.variant
    )
    if meaning.role == "value":
        return [replace(figure, quantity="other", remark="What the value is of is not known.")]
    if meaning.quantity == "dtype":
        return [figure]
    pair = meaning.statistics == ("mean", "std")
    read = parse_cell(text, dimension=meaning.dimension, unit=meaning.unit, pair=pair, commas=commas)
    remark = OUT_OF_MEMORY if read.is_oom else read.remark
    if len(read.values) < 2:
        value = read.values[0] if read.values else None
        alone = "The heading promises a standard deviation, the cell has none." if others and read.values else None
        return [replace(figure, value=value, remark=" ".join(filter(None, (remark, alone))) or None)]
    if first in ("std", "min", "max"):
        return [replace(figure, remark=f"Refused: “{text[:60]}” has two numbers below a {first}.")]
    of: tuple[Statistic, Statistic] = ("mean" if first == "value" else first, "std")
    return [
        replace(figure, statistic=one, value=value, remark=remark) for one, value in zip(of, read.values, strict=True)
    ]


def propose_mapping(path: Path) -> str:
    """Returns a first draft of a mapping for all tables of a file, as TOML, for a person to correct. Reading the file
    with the draft gives the same rows as reading it without. Raises UsageError for a file without tables."""
    tables, name = parse_file(path)[0], visible(path.name)
    lines = [
        f"# What the columns of {name} mean. Correct what is wrong, then:",
        f"#   python -m runner import {name} --mapping THIS_FILE",
        "",
        "[table]  # of every row that does not say otherwise: title, machine, or a setting such as batch = 4",
        '# decimal = ","  # if 12,5 is twelve and a half',
        "",
        "[columns]",
    ]
    written: set[str] = {GROUP}
    for number, table in enumerate(tables, start=1):
        title = f" “{table.title}”" if table.title else ""
        lines += ["", f"# Table {number}{title}, line {table.line}: {len(table.rows):,} rows."]
        lines += [f"# It cannot be read: {table.refused}."] if table.refused else []
        lines += [f"# {remark}" for remark in table.lost]
        for place, (heading, meaning) in enumerate(understand_columns(table, TableMapping()).items()):
            if heading not in written:
                written.add(heading)
                lines += _propose_column(heading, meaning, table.column(place))
    return "\n".join(lines) + "\n"


def _propose_column(heading: str, meaning: Meaning, column: Sequence[str]) -> list[str]:
    key = json.dumps(heading, ensure_ascii=False)
    if meaning.role == "unknown":
        cells = [*dict.fromkeys(filter(None, column))][:3]
        examples = ", ".join(f"“{cell[:40]}”" for cell in cells) or "nothing"
        form = '{ setting = "context" }' if all(map(str.isdigit, cells)) else '{ setting = "name" }'
        if any(cell[:1].isdigit() and not cell.isdigit() for cell in cells):
            form = '{ quantity = "forward", statistic = "mean", unit = "ms" }'
        said = f"# Not known, with cells such as {examples}: kept as text. If it is another thing, write"
        return [said, f"# {key} = {form}"]
    note = f"  # {meaning.assumed}" if meaning.assumed else ""
    # What only the cells of this table say must not hold for another table with this heading.
    mark = "# " if meaning.setting == "row" or (note and meaning.role == "kept") else ""
    return [f"{mark}{key} = {_write_meaning(meaning)}{note}"]


def _write_meaning(meaning: Meaning) -> str:
    if meaning.role == "kept" or meaning.role in _ROLES:
        return json.dumps("keep" if meaning.role == "kept" else meaning.role)
    if meaning.role != "figure":
        parts: dict[str, str | int | bool] = {meaning.role: meaning.setting}
    else:
        statistic = " and ".join(meaning.statistics)
        parts = {"quantity": str(meaning.quantity)}
        parts |= {} if statistic == "value" else {"statistic": statistic}
    parts |= {"unit": meaning.unit} if meaning.unit else {}
    parts |= meaning.variant
    return "{ " + ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in parts.items()) + " }"
