"""An answer as Markdown, HTML or LaTeX: one walk over its parts, three ways to write them.

print(write(answer, MARKDOWN))
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.answers.answer import Answer, View
from runner.plan.commands import sweep_commands
from runner.render.grid import Entry, make_grid

_BOLD = re.compile(r"\*\*(.+?)\*\*")
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#~$|!&@]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "∝": r"$\propto$",
    "·": r"$\cdot$",
    "✕": r"$\times$",
    "²": r"\textsuperscript{2}",
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a document is written: `escape` makes plain text safe, the others get escaped text."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    heading: Callable[[str, int], str]
    paragraph: Callable[[str], str]
    table: Callable[[Sequence[str], Sequence[Sequence[str]], int], str]
    code: Callable[[Sequence[str]], str]


def write(answer: Answer, form: Form, *, words: str = "", commands: bool = True) -> str:
    """Returns a whole answer, under `words` as its heading; without `commands` only what it says."""
    parts = [form.heading(form.escape(words), 2)] if words else []
    parts += [form.paragraph(write_sentence(said, form)) for said in (answer.sentence, answer.more) if said]
    for view in answer.views:
        grid = make_grid(view)
        parts.append(form.paragraph(form.bold(form.escape(grid.caption))))
        parts.append(write_view(view, form))
        parts += [form.paragraph(form.escape(grid.note))] if grid.note else []
    parts += [form.paragraph(form.escape(f"Missing: {missing.words}.")) for missing in answer.missing]
    if commands and (again := sweep_commands(answer.cells.values())):
        parts += [form.paragraph(form.escape("Measure these rows again:")), form.code(again)]
    return "\n\n".join(parts) + "\n"


def write_sentence(sentence: str, form: Form) -> str:
    parts = [form.escape(part) for part in _BOLD.split(sentence)]
    return "".join(form.bold(part) if place % 2 else part for place, part in enumerate(parts))


def write_view(view: View, form: Form) -> str:
    """Returns the table of a view, without its caption."""
    grid = make_grid(view)
    return form.table(
        [form.escape(one) for one in grid.headings],
        [[form.escape(_write_cell(cell)) for cell in line] for line in grid.lines],
        grid.keys,
    )


def _write_cell(cell: Entry) -> str:
    return f"{cell.words} ({cell.interval})" if cell.interval else cell.words


def _pipe(headings: Sequence[str], lines: Sequence[Sequence[str]], keys: int) -> str:
    rules = ["---" if place < keys else "---:" for place in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rules, *lines))


def _html(headings: Sequence[str], lines: Sequence[Sequence[str]], keys: int) -> str:
    def row(tag: str, line: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(f"<{tag}{'' if place < keys else ' class=n'}>{one}</{tag}>" for place, one in enumerate(line))
            + "</tr>"
        )

    return "<table>\n" + "\n".join([row("th", headings), *(row("td", line) for line in lines)]) + "\n</table>"


def _tabular(headings: Sequence[str], lines: Sequence[Sequence[str]], keys: int) -> str:
    rows = [f"{' & '.join(line)} \\\\" for line in (headings, *lines)]
    spec = "l" * keys + "r" * (len(headings) - keys)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{spec}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


MARKDOWN = Form(
    escape=lambda text: _SPECIAL.sub(lambda match: f"\\{match[0]}", text),
    bold=lambda text: f"**{text}**",
    heading=lambda text, level: f"{'#' * level} {text}",
    paragraph=lambda text: text,
    table=_pipe,
    code=lambda lines: "\n".join(["```sh", *lines, "```"]),
)
HTML = Form(
    escape=lambda text: html.escape(text, quote=False),
    bold=lambda text: f"<b>{text}</b>",
    heading=lambda text, level: f"<h{level}>{text}</h{level}>",
    paragraph=lambda text: f"<p>{text}</p>",
    table=_html,
    code=lambda lines: f"<pre>{html.escape(chr(10).join(lines))}</pre>",
)
LATEX = Form(
    escape=lambda text: "".join(_LATEX.get(letter, letter) for letter in text),
    bold=lambda text: rf"\textbf{{{text}}}",
    heading=lambda text, level: rf"\{'sub' * (level - 1)}section{{{text}}}",
    paragraph=lambda text: text,
    table=_tabular,
    code=lambda lines: "\n".join([r"\begin{verbatim}", *lines, r"\end{verbatim}"]),
)
