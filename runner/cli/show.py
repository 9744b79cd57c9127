"""An answer, or the rows of a run, in the terminal, in as many columns as it has.

python -m runner show precision --clock latency
python -m runner show
"""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from runner.answers import check_chosen
from runner.cli.lists import find_run, new_grid, print_left_out, print_title
from runner.cli.progress import STATUS_STYLES
from runner.cli.report import answer_for
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.experiments import KINDS
from runner.experiments.experiment import Kind, Shown
from runner.render.json import dump
from runner.render.text import print_answer
from runner.results import PublishedTable
from runner.schema import CeilingRow, FrontierRow, Row
from runner.schema.sizes import title
from runner.store.read.fetch import load_run_rows
from runner.store.read.findings import load_findings
from runner.store.read.kernels import load_ceilings
from runner.store.read.published import load_published
from runner.store.read.runs import load_contents
from runner.store.read.selection import Selection
from runner.store.read.tables import load_settled_ids
from runner.sweep import frontier

#: The least width of the column that names a cell; a longer name is broken.
_CELL_WIDTH = 30


def print_question(console: Terminal, name: str, words: Sequence[str], *, db: Path, as_json: bool) -> None:
    """Prints the answer to a question by the choices of `words`: `--clock latency`. Raises UsageError for a choice or a
    value that the answer does not have."""
    asked = parse_choices(words)
    contents = load_contents(db)
    machine = asked.pop("machine", None) or next(iter(contents.machines), None)
    run = asked.pop("run", None)
    of = Selection(
        machine=machine,
        run=find_run(run, db=db).run_id if run else None,
        hidden=tuple(sorted(contents.notes.hidden)),
    )
    answer = answer_for(name, db, of, asked)
    check_chosen(answer, asked)
    if as_json:
        print(dump(answer, indent=1))
    else:
        print_answer(console, answer)


def parse_choices(words: Sequence[str]) -> dict[str, str]:
    """Returns the choices of `--name value` and `--name=value` by name. Raises UsageError for anything else."""
    choices: dict[str, str] = {}
    left = list(words)
    while left:
        name, _, value = left.pop(0).partition("=")
        if not name.startswith("--") or (not value and not left):
            raise UsageError(f"{name!r}.", expected="choices such as --size small --clock latency")
        choices[name.removeprefix("--")] = value or left.pop(0)
    return choices


def print_run(console: Terminal, run: str, *, db: Path) -> None:
    """Prints the rows of one run, which is named by the beginning of its id or by its label; the latest run if neither
    is given."""
    found = find_run(run, db=db)
    print_title(console, found)
    print_left_out(console, db)
    if found.source == "published":
        for table in load_published(db, run=found.run_id):
            console.say(f"{table.title}, {table.file}")
            console.print(_make_published_grid(table), "")
        return
    kinds = sorted((kind for kind in KINDS if kind.listed), key=lambda kind: not kind.shown.explained)
    listed = {kind: _load_listed(db, found.run_id, kind) for kind in kinds}
    for kind, rows in listed.items():
        if rows:
            _print_rows(console, kind, rows)
    _print_ceilings(console, db, Selection(run=found.run_id))
    for answered, _ in load_run_rows(db, found.run_id, FrontierRow):
        console.say(f"{frontier.title(answered)}: {frontier.answer(answered)}")
    every = [(kind, shown) for kind, rows in listed.items() for shown in rows]
    said = [finding for _, shown in every for finding in shown.findings]
    for code in sorted({finding.code for finding in said}):
        sentences = [finding.sentence for finding in said if finding.code == code]
        console.say(f"{code}, {len(sentences)} cells. For one: {sentences[0]}", style="dim")
    for kind, shown in every:
        row = shown.row
        if row.status != "ok" and kind.shown.explained:
            doing = f" during {row.failed_phase}" if row.failed_phase else ""
            console.say(f"{title(row)}: {row.status}{doing}. {row.message or ''}", style="dim")


def _load_listed(db: Path, run: UUID, kind: Kind) -> list[Shown]:
    """Returns the rows of one kind as they are listed; timed rows of a model with their findings."""
    lines, name = kind.shown, kind.table.name
    rows: list[tuple[Row, dict[str, float]]] = load_run_rows(db, run, kind.table.row)
    if lines.settled:
        counted = load_settled_ids(db, name, Selection(run=run))
        rows = [(row, medians) for row, medians in rows if row.cell_id in counted]
    said = load_findings(db, tuple(row.cell_id for row, _ in rows), name) if lines.audited else {}
    found = [Shown(row=row, medians_ms=medians, findings=said.get(row.cell_id, ())) for row, medians in rows]
    return sorted(found, key=lambda shown: lines.order(shown.row))


def _print_rows(console: Terminal, kind: Kind, rows: list[Shown]) -> None:
    """Prints one line a cell, below a heading that says what all of them share. Where the terminal has no room for all
    columns, the spared ones and then the last ones are left out, and a line says so."""
    lines, titles = kind.shown, [title(shown.row).split(" · ") for shown in rows]
    shared = [word for word in titles[0] if all(word in words for words in titles)] if len(rows) > 1 else []
    statuses = [shown.row.status for shown in rows]
    columns = dict(zip(lines.headings, zip(*(lines.line(shown) for shown in rows), strict=True), strict=True))
    columns = {name: texts for name, texts in columns.items() if any(texts)}
    same = {name: texts[0] for name, texts in columns.items() if len(rows) > 1 and len({*texts}) == 1}
    columns = {name: texts for name, texts in columns.items() if name not in same}
    heading = [f"{len(rows):,} {kind.table.name} rows", *shared, *(f"{name} {text}" for name, text in same.items())]
    console.print(" · ".join(heading), style="bold")
    left_out: list[str] = []
    while True:
        grid = new_grid("cell", *(["status"] if {*statuses} != {"ok"} else []), *columns)
        grid.columns[0].min_width = min(_CELL_WIDTH, max(len(" · ".join(words)) for words in titles))
        for column in grid.columns[1:]:
            column.min_width = max(map(len, (str(column.header), *columns.get(str(column.header), ()))))
        for place, (words, status) in enumerate(zip(titles, statuses, strict=True)):
            state = [_status(status)] if {*statuses} != {"ok"} else []
            cell = " · ".join(word for word in words if word not in shared) or " · ".join(words)
            grid.add_row(cell, *state, *(texts[place] for texts in columns.values()))
        if not columns or Measurement.get(console, console.options.update(width=10_000), grid).minimum <= console.width:
            break
        spare = next((name for name in lines.spared if name in columns), [*columns][-1])
        left_out.append(spare)
        del columns[spare]
    console.print(grid)
    without = f"Without {', '.join(reversed(left_out))}, for which {console.width} columns have no room."
    for line in (lines.caption, without if left_out else ""):
        if line:
            console.print(line, style="dim")
    console.print("")


def _print_ceilings(console: Terminal, db: Path, of: Selection) -> None:
    """Prints one line a ceiling of what the machine can do at most; nothing for a run that measured none."""
    rows = load_ceilings(db, of)
    if not rows:
        return
    grid = new_grid("ceiling", "at the start", "at the end", "datasheet")
    for name in dict.fromkeys(row.name for row in rows):
        at = {row.moment: row for row in rows if row.name == name}
        measured = [_format_rate(at[moment]) if moment in at else "" for moment in ("start", "end")]
        grid.add_row(name, *measured, _format_rate(next(iter(at.values())), datasheet=True))
    console.print(grid, "")


def _format_rate(row: CeilingRow, *, datasheet: bool = False) -> str:
    """Returns the measured rate or the datasheet's, in TFLOP/s or GB/s; nothing where it is unknown."""
    flops = row.datasheet_flops_per_s if datasheet else row.flops_per_s
    size = row.datasheet_bytes_per_s if datasheet else row.bytes_per_s
    if flops:
        return f"{flops / 1e12:,.3g} TFLOP/s"
    return f"{size / 1e9:,.4g} GB/s" if size else ""


def _make_published_grid(table: PublishedTable) -> Grid:
    """Returns a table with one line for each row of a published table, with every figure as it is written."""
    headings = [*dict.fromkeys(figure.heading for row in table.rows for figure in row.figures)]
    grid = new_grid("line", "cell", "status", *headings)
    for row in table.rows:
        texts = {figure.heading: figure.text for figure in row.figures}
        setting = (f"{name} {value}" for name, value in vars(row.setting).items() if value is not None)
        grid.add_row(
            str(row.line), ", ".join(setting), _status(row.status), *(texts.get(name, "") for name in headings)
        )
    return grid


def _status(status: str) -> Text:
    return Text(status, STATUS_STYLES.get(status, ""))
