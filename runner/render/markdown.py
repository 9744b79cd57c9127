"""An answer as Markdown, HTML or LaTeX: one walk over its parts, three ways to write them.

print(write(answer, MARKDOWN))
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.answers.answer import Answer, Doubt, View, split_bold
from runner.plan.commands import sweep_commands
from runner.render.grid import MARKS, Entry, TextGrid, list_footnotes, make_grid
from runner.visible import visible

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
    "−": "$-$",
    "√": r"$\surd$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "‖": r"$\Vert$",
    "²": r"\textsuperscript{2}",
    **{mark: rf"\textsuperscript{{{letter}}}" for mark, letter in zip(MARKS, "abcdefghijklmnop", strict=True)},
}
#: The most commands below an answer.
_MAX_COMMANDS = 3


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a document is written: `escape` makes plain text safe, and its control characters visible; the others get
    escaped text."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    heading: Callable[[str, int], str]
    paragraph: Callable[[str], str]
    table: Callable[[Sequence[str], Sequence[Sequence[str]], frozenset[int]], str]
    code: Callable[[Sequence[str]], str]


def write(answer: Answer, form: Form, *, words: str = "", commands: bool = True, max_lines: int | None = None) -> str:
    """Returns a whole answer, under `words` as its heading; without `commands` only what it says. Tables end after
    `max_lines`, and say so."""
    parts = [form.heading(form.escape(words), 2)] if words else []
    parts += [form.paragraph(write_sentence(said, form)) for said in (answer.sentence, answer.more) if said]
    for view in answer.tables:
        grid = make_grid(view, answer.doubts)
        parts.append(form.paragraph(form.bold(form.escape(grid.caption))))
        parts.append(_write_table(grid, form, max_lines))
        is_cut = max_lines is not None and len(grid.lines) > max_lines
        note = f"The first {max_lines} of {len(grid.lines):,} lines. {grid.note}".strip() if is_cut else grid.note
        parts += [form.paragraph(form.escape(note))] if note else []
    parts += [form.paragraph(form.escape(note)) for note in list_footnotes(answer.views, answer.doubts)]
    parts += [form.paragraph(form.escape(f"Missing: {missing.words}.")) for missing in answer.missing]
    if commands and (again := sweep_commands(answer.cells.values())):
        more = len(again) - _MAX_COMMANDS
        last = f" The last {more} of {len(again)} commands are left out; `show` prints them." if more > 0 else ""
        parts += [form.paragraph(form.escape(f"Measure these rows again:{last}")), form.code(again[:_MAX_COMMANDS])]
    return "\n\n".join(parts) + "\n"


def write_sentence(sentence: str, form: Form) -> str:
    parts = [form.escape(part) for part in split_bold(sentence)]
    return "".join(form.bold(part) if place % 2 else part for place, part in enumerate(parts))


def write_view(view: View, form: Form, doubts: Sequence[Doubt] = ()) -> str:
    """Returns the table of a view, without its caption."""
    return _write_table(make_grid(view, doubts), form, None)


def _write_table(grid: TextGrid, form: Form, max_lines: int | None) -> str:
    return form.table(
        [form.escape(one) for one in grid.headings],
        [[form.escape(_write_cell(cell)) for cell in line] for line in grid.lines[:max_lines]],
        grid.left,
    )


def _write_cell(cell: Entry) -> str:
    number = f"{cell.words}{cell.marks}"
    return f"{number} ({cell.interval})" if cell.interval else number


def _pipe(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    rules = ["---" if place in left else "---:" for place in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rules, *lines))


def _html(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    def row(tag: str, line: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(f"<{tag}{'' if place in left else ' class=n'}>{one}</{tag}>" for place, one in enumerate(line))
            + "</tr>"
        )

    return "<table>\n" + "\n".join([row("th", headings), *(row("td", line) for line in lines)]) + "\n</table>"


def _tabular(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    rows = [f"{' & '.join(line)} \\\\" for line in (headings, *lines)]
    spec = "".join("l" if place in left else "r" for place in range(len(headings)))
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
    escape=lambda text: _SPECIAL.sub(lambda match: f"\\{match[0]}", visible(text)),
    bold=lambda text: f"**{text}**",
    heading=lambda text, level: f"{'#' * level} {text}",
    paragraph=lambda text: text,
    table=_pipe,
    code=lambda lines: "\n".join(["```sh", *map(visible, lines), "```"]),
)
HTML = Form(
    escape=lambda text: html.escape(visible(text), quote=False),
    bold=lambda text: f"<b>{text}</b>",
    heading=lambda text, level: f"<h{level}>{text}</h{level}>",
    paragraph=lambda text: f"<p>{text}</p>",
    table=_html,
    code=lambda lines: f"<pre>{html.escape(chr(10).join(map(visible, lines)))}</pre>",
)
LATEX = Form(
    escape=lambda text: "".join(_LATEX.get(letter, letter) for letter in visible(text)),
    bold=lambda text: rf"\textbf{{{text}}}",
    heading=lambda text, level: rf"\{'sub' * (level - 1)}section{{{text}}}",
    paragraph=lambda text: text,
    table=_tabular,
    code=lambda lines: "\n".join(
        [r"\begin{verbatim}", *(visible(line).replace(r"\end", r"\ end") for line in lines), r"\end{verbatim}"]
    ),
)
