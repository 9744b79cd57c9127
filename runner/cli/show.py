"""An answer, the rows of a run, or the names there are, in the terminal, in as many columns as it has, or as JSON.

python -m runner show precision --clock latency
python -m runner show
python -m runner show sizes
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.measure import Measurement
from rich.text import Text

from runner.analysis.costs import steps
from runner.answers import check_chosen
from runner.cli.findings import print_left_out, print_title
from runner.cli.progress import STATUS_STYLES, make_json
from runner.cli.report import answer_for
from runner.cli.terminal import Terminal, new_grid
from runner.errors import UsageError
from runner.experiments import KINDS
from runner.experiments.experiment import Kind, Shown
from runner.formats import format_count
from runner.plan.planning import PRESETS
from runner.plan.planning import QUESTIONS as EXPERIMENTS
from runner.render.json import as_json as answer_json
from runner.render.text import print_answer
from runner.schema import TABLES, CeilingRow, FrontierRow, Row, StepCell
from runner.schema.sizes import SIZES, title
from runner.store.read import load_ceilings
from runner.store.read.findings import load_findings
from runner.store.read.published import load_published
from runner.store.read.runs import find_run, load_contents
from runner.store.read.selection import Selection, load_run_rows
from runner.store.read.tables import load_settled_ids
from runner.sweep import frontier
from runner.sweep.request import FRONTIER_QUESTION

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
        machine=machine, run=find_run(db, run).run_id if run else None, hidden=tuple(sorted(contents.notes.hidden))
    )
    answer = answer_for(name, db, of, asked)
    check_chosen(answer, asked)
    if as_json:
        console.dump(answer_json(answer))
    else:
        print_left_out(console, db)
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


def print_run(console: Terminal, run: str, *, db: Path, as_json: bool) -> None:
    """Prints the rows of one run, found as `find_run` does."""
    found = find_run(db, run)
    kinds = sorted((kind for kind in KINDS if kind.listed), key=lambda kind: not kind.shown.explained)
    listed = {kind: _load_listed(db, found.run_id, kind) for kind in kinds}
    ceilings = load_ceilings(db, Selection(run=found.run_id))
    largest = [row for row, _ in load_run_rows(db, found.run_id, FrontierRow)]
    published = load_published(db, run=found.run_id) if found.source == "published" else []
    if as_json:
        rows = {kind.table.name: list(map(_make_json, shown)) for kind, shown in listed.items() if shown}
        named: dict[str, Sequence[Any]] = {"ceilings": ceilings, "frontier": largest, "published": published}
        others = {name: list(map(asdict, of)) for name, of in named.items() if of}
        console.dump({"run": asdict(found), **rows, **others})
        return
    print_title(console, found)
    print_left_out(console, db)
    for table in published:
        console.say(f"{table.title}, {table.file}")
        headings = [*dict.fromkeys(figure.heading for row in table.rows for figure in row.figures)]
        grid = new_grid("line", "cell", "status", *headings)
        for line in table.rows:
            texts = {figure.heading: figure.text for figure in line.figures}
            setting = (f"{name} {value}" for name, value in vars(line.setting).items() if value is not None)
            grid.add_row(
                str(line.line), ", ".join(setting), _status(line.status), *(texts.get(name, "") for name in headings)
            )
        console.print(grid, "")
    for kind, shown in listed.items():
        if shown:
            _print_rows(console, kind, shown)
    _print_ceilings(console, ceilings)
    for row in largest:
        console.say(f"{frontier.title(row)}: {frontier.answer(row)}")
    _explain(console, listed)


def _make_json(shown: Shown) -> dict[str, Any]:
    """Returns a row with its title, medians, grade and findings."""
    return {**make_json(shown.row, shown.medians_ms), "findings": list(map(vars, shown.findings))}


def _explain(console: Terminal, listed: dict[Kind, list[Shown]]) -> None:
    """Prints what was found against the rows, once a code, and why rows have no result."""
    every = [(kind, shown) for kind, rows in listed.items() for shown in rows]
    said = [finding for _, shown in every for finding in shown.findings]
    for code in sorted({finding.code for finding in said}):
        sentences = [finding.sentence for finding in said if finding.code == code]
        console.say(f"{code}, {format_count(len(sentences), 'cell')}. For one: {sentences[0]}", style="dim")
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
    if len({tuple(words) for words in titles}) < len(rows):
        columns = {"round": tuple(str(getattr(shown.row, "round", "")) for shown in rows), **columns}
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


def _print_ceilings(console: Terminal, rows: Sequence[CeilingRow]) -> None:
    """Prints one line a ceiling of what the machine can do at most; nothing for a run that measured none."""
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


def _status(status: str) -> Text:
    return Text(status, STATUS_STYLES.get(status, ""))


def print_names(console: Terminal, what: str, *, as_json: bool) -> None:
    """Prints the presets, experiments or sizes there are, or all of them; or every column as Markdown."""
    if what == "columns" and not as_json:
        print(columns_markdown(), end="")
        return
    experiments = {**EXPERIMENTS, "frontier": FRONTIER_QUESTION}
    tables: dict[str, list[dict[str, Any]]] = {
        "presets": [{"preset": one.name, "what it measures": one.doc} for one in PRESETS.values()],
        "experiments": [{"experiment": name, "question": words} for name, words in experiments.items()],
        "sizes": [
            {"size": one.name, **one.numbers, "parameters": _count_parameters(one.numbers)} for one in SIZES.values()
        ],
        "columns": [
            {"table": table.name, "column": one.name, "type": one.sql_type, "unit": one.unit, "meaning": one.doc}
            for table in TABLES.values()
            for one in table.columns
        ],
    }
    chosen = {name: rows for name, rows in tables.items() if name == what or (what == "all" and name != "columns")}
    if as_json:
        console.dump(chosen.get(what, chosen))
        return
    for rows in chosen.values():
        texts = [[f"{one:,}" if isinstance(one, int) else str(one) for one in row.values()] for row in rows]
        console.print(new_grid(*rows[0], rows=texts))


def _count_parameters(shape: Any) -> int:
    return steps.parameter_count(StepCell(**shape, context=1, mode="inference", precision="fp32"))


def columns_markdown() -> str:
    """Returns every table and column as Markdown: the text of `data/README.md`."""
    lines = [
        "# The results file",
        "",
        "Written by `python -m runner show columns`; a test keeps it equal to the schema. Times of day are UTC.",
        "NULL means unknown.",
        "",
        "`reference/` holds 31 tables of five published reports as they were transcribed: one CSV a table, in which",
        "`seed_file` and `source_line` say where each row stood, and `provenance.csv`, which says what is known of how",
        "each report measured. `python -m runner import data/reference` adds them as runs with the source `published`.",
        "",
        "`reference/h200/` holds rows that Stepscope measured on an NVIDIA H200: one Parquet file a table, as",
        "`python -m runner export data/reference/h200 --parquet --db FILE` writes them. The app shows them until",
        "`results.duckdb` has a row, and beside its rows afterwards; `--db` and `STEPSCOPE_DB` take the folder, too.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            choices = f" One of {', '.join(f'`{choice}`' for choice in column.choices)}." if column.choices else ""
            key = " *Key.*" if column.name in table.key else ""
            meaning = f"{column.doc}{choices}{key}"
            lines.append(f"| `{column.name}` | {column.sql_type} | {column.unit} | {meaning} |")
    return "\n".join(lines) + "\n"
