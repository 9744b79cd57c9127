"""The report in the terminal or in a file.

python -m runner report --out report.md
python -m runner report --format html --out report.html
"""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from runner.cli.lists import find_run
from runner.errors import UsageError
from runner.report.html import render_html
from runner.report.latex import render_latex
from runner.report.markdown import render_markdown
from runner.report.report import make_report
from runner.report.rows import Edition, Rows, Scope

#: The formats, and the ending of each file.
FORMATS = {"markdown": "md", "html": "html", "latex": "tex"}


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the command line said."""

    out: Path | None = None
    form: str = "markdown"
    edition: str | None = None
    machine: str | None = None
    run: str | None = None


def write_report(options: ReportOptions, *, db: Path) -> str:
    """Writes the report, and returns what is to be printed: the report itself, or the file's name."""
    if options.form not in FORMATS:
        raise UsageError(f"There is no format {options.form!r}.", expected=", ".join(FORMATS))
    scope = _read_scope(options, db=db)
    rows = Rows(db, scope)
    if options.form == "html":
        if options.out is None:
            raise UsageError("An HTML report goes to a file.", do="Say which: --out report.html")
        text = render_html(rows)
    else:
        text = {"markdown": render_markdown, "latex": render_latex}[options.form](make_report(rows))
    if options.out is None:
        return text
    file = options.out / f"report.{FORMATS[options.form]}" if options.out.is_dir() else options.out
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.", do="Name another file with --out.") from None
    return f"{file}  {file.stat().st_size / 1e3:,.0f} kB\n"


def _read_scope(options: ReportOptions, *, db: Path) -> Scope:
    edition = next((name for name in get_args(Edition) if name == options.edition), None)
    if options.edition is not None and edition is None:
        raise UsageError(f"There is no edition {options.edition!r}.", expected=" or ".join(get_args(Edition)))
    run = find_run(options.run, db=db).run_id if options.run is not None else None
    return Scope(machine=options.machine, run=run, edition=edition)
