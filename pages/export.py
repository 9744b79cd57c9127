"""Writes pages as HTML files that open offline: `python -m pages.export OUT [PAGE …] [--db FILE]`.

A file holds every answer of its page with the usual choices: the sentence, each view as an interactive chart and as a
table, and the commands. Plotly is inside; a content policy forbids requests.
"""

import argparse
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from pages.draw import describe_runs
from pages.plot import figure
from pages.plot.colors import PALETTE, ink_rules
from runner.answers import QUESTIONS, ask
from runner.answers.answer import Answer, View
from runner.errors import StepscopeError, UsageError
from runner.places import write_text
from runner.render.document import HTML, write_sentence, write_table
from runner.render.grid import make_grid
from runner.store.packing import choose_file, find_file
from runner.store.read import load_once, read
from runner.store.read.runs import Contents, load_contents
from runner.store.read.selection import Selection

_FOLDER = Path(__file__).parent


def export(out: Path, names: list[str], *, db: Path | None) -> list[Path]:
    """Writes one file a page into the folder and returns their paths. Raises UsageError, StoreError."""
    from pages.list import PAGES

    known = {page.address: page for page in PAGES}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"There is no page {unknown[0]!r}.", expected=", ".join(known))
    path = find_file(db) if db else choose_file()
    contents = load_contents(path)
    pages = {address: page for address, page in known.items() if address in names or not names}
    out.mkdir(parents=True, exist_ok=True)
    written, load = [], load_once()
    for address, page in pages.items():
        answers = {}
        for name in page.questions:
            of = replace(contents.select(), machine=None) if QUESTIONS[name].of_file else contents.select()
            answers[name] = ask(name, read(path, of, QUESTIONS[name].needs, load=load))
        links = {other: pages[other].title for other in pages}
        written.append(out / f"{address}.html")
        write_text(written[-1], _write(page.title, address, answers, contents=contents, links=links, file=path.name))
    return written


def _write(
    title: str, address: str, answers: dict[str, Answer], *, contents: Contents, links: dict[str, str], file: str
) -> str:
    """Returns the whole file as text, to be written as UTF-8."""
    written = [
        f"<b>{escape(name)}</b>" if other == address else f'<a href="{other}.html">{escape(name)}</a>'
        for other, name in links.items()
    ]
    now, machine = datetime.now(UTC), next(iter(contents.machines), "")
    return Template((_FOLDER / "export.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        navigation=f'<nav aria-label="Pages">{"".join(written)}</nav>' if len(written) > 1 else "",
        body="".join(_write_answer(name, answer) for name, answer in answers.items()),
        file=escape(file),
        machine=escape(machine),
        rows=escape(" · ".join(describe_runs(contents, Selection(machine=machine or None)))),
        written=f"{now:%Y-%m-%d %H:%M} UTC",
        palette=escape(json.dumps(PALETTE), quote=True),
        style=(_FOLDER / "export.css").read_text(encoding="utf-8") + ink_rules(),
        script=(_FOLDER / "export.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
    )


def _write_answer(name: str, answer: Answer) -> str:
    chosen = " · ".join(f"{one.label}: {one.chosen}" for one in answer.choices if len(one.options) > 1)
    return "".join(
        [
            f'<h2 id="{name}">{escape(QUESTIONS[name].words)}</h2>',
            f"<p>{write_sentence(' '.join(part for part in (answer.sentence, answer.more) if part), HTML)}</p>",
            f'<p class="choice">{escape(chosen)}</p>' if chosen else "",
            *(_write_view(view) for view in answer.views),
            *(f'<p class="alert">Missing: {escape(one.words)}.</p>' for one in answer.missing),
        ]
    )


def _write_view(view: View) -> str:
    table = write_table(make_grid(view), HTML)
    chart = ""
    if view.draw.kind != "table":
        drawn = figure(view)
        height = int(drawn["layout"].get("height", 450))
        data = {"figure": {**drawn, "layout": {**drawn["layout"], "template": None}}, "config": {"displaylogo": False}}
        alt = escape(f"{view.title}. {view.about}", quote=True)
        # No HTML parser finds a tag in it.
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str).replace("<", "\\u003c")
        script = f'<script type="application/json">{text}</script>'
        chart = f'<div class="chart" role="img" aria-label="{alt}" style="height:{height}px">{script}</div>'
        table = f"<details><summary>Table · {len(view.rows):,} rows</summary>{table}</details>"
    head = f'<h3 id="{view.name}">{escape(view.title)}</h3><p class="caption">{escape(view.about)}</p>'
    return f'<section class="card">{head}{chart}{table}<p class="caption">{escape(view.note)}</p></section>'


def main() -> int:
    """Runs the command. Returns its exit code: 0 written, 2 wrong usage or a bad file."""
    parser = argparse.ArgumentParser(prog="python -m pages.export", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write into")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="addresses of pages; all without any")
    parser.add_argument("--db", type=Path, metavar="FILE", help="the results file; otherwise as the dashboard chooses")
    given = parser.parse_args()
    try:
        for file in export(given.out, given.pages, db=given.db):
            print(file)
    except StepscopeError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{given.out} cannot be written: {error.strerror or error}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
