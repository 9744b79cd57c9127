"""An answer as Markdown, HTML or LaTeX: one walk over its parts, three ways to write them. A whole report: the head,
every question with its answer, and what stays open, in any of these forms.

Questions of the course's handout come first, in its order, then the others. Limits: tables are cut after MAX_LINES
where there are several questions.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.answers import QUESTIONS
from runner.answers.answer import Answer, split_bold
from runner.formats import format_count, visible
from runner.plan.commands import sweep_commands
from runner.plan.handout import COURSE, OUTSIDE, CourseQuestion
from runner.render.grid import MARKS, Entry, TextGrid, list_footnotes, make_grid
from runner.schema import Cell

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#~$|!&@]")
_SIGNS = ("times", "rightarrow", "propto", "cdot", "times", "surd", "leq", "geq", "approx", "Vert")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: rf"$\{name}$" for sign, name in zip("×→∝·✕√≤≥≈‖", _SIGNS, strict=True)},
    **{mark: rf"\textsuperscript{{{digit}}}" for mark, digit in (("²", 2), ("⁹", 9))},
    **{mark: rf"\textsuperscript{{{letter}}}" for mark, letter in zip(MARKS, "abcdefghijklmnop", strict=True)},
}
#: The most commands below an answer.
_MAX_COMMANDS = 2


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


def write(
    answer: Answer,
    form: Form,
    *,
    words: str = "",
    commands: bool = True,
    max_lines: int | None = None,
    explained: set[str] | None = None,
) -> str:
    """Returns a whole answer, under `words` as its heading; without `commands` only what it says. Tables end after
    `max_lines`, and say so. `explained` are the kinds of doubt that the document has explained so far."""
    parts = [form.heading(form.escape(words), 2)] if words else []
    parts += [form.paragraph(write_sentence(said, form)) for said in (answer.sentence, answer.more) if said]
    for view in answer.tables:
        grid = make_grid(view, answer.doubts)
        if max_lines and view.draw.kind in ("lines", "strip") and len(grid.lines) > _MOST_POINTS:
            continue
        parts.append(form.paragraph(form.bold(form.escape(grid.caption))))
        parts.append(write_table(grid, form, max_lines))
        is_cut = max_lines is not None and len(grid.lines) > max_lines
        note = f"The first {max_lines} of {len(grid.lines):,} lines. {grid.note}".strip() if is_cut else grid.note
        parts += [form.paragraph(form.escape(note))] if note else []
    parts += [form.paragraph(form.escape(note)) for note in list_footnotes(answer.views, answer.doubts, explained)]
    parts += [form.paragraph(form.escape(f"Missing: {missing.words}.")) for missing in answer.missing]
    if commands and (again := sweep_commands(answer.cells.values())):
        is_cut = len(again) > _MAX_COMMANDS
        last = f" The first of {len(again)} commands; show {answer.question} prints all." if is_cut else ""
        shown = again[: 1 if is_cut else _MAX_COMMANDS]
        parts += [form.paragraph(form.escape(f"Measure these rows again:{last}")), form.code(shown)]
    return "\n\n".join(parts) + "\n"


def write_sentence(sentence: str, form: Form) -> str:
    parts = [form.escape(part) for part in split_bold(sentence)]
    return "".join(form.bold(part) if place % 2 else part for place, part in enumerate(parts))


def write_table(grid: TextGrid, form: Form, max_lines: int | None = None) -> str:
    """Returns the table of a view, without its caption."""

    def write_cell(cell: Entry) -> str:
        return form.escape(f"{cell.words}{cell.marks}{f' ({cell.interval})' if cell.interval else ''}")

    lines = [[write_cell(cell) for cell in line] for line in grid.lines[:max_lines]]
    return form.table([form.escape(one) for one in grid.headings], lines, grid.left)


def _pipe(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    rules = ["---" if place in left else "---:" for place in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rules, *lines))


def _html(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    def row(tag: str, line: Sequence[str]) -> str:
        kinds = ("" if place in left else " class=n" for place in range(len(line)))
        return f"<tr>{''.join(f'<{tag}{kind}>{one}</{tag}>' for kind, one in zip(kinds, line, strict=True))}</tr>"

    return "<table>\n" + "\n".join([row("th", headings), *(row("td", line) for line in lines)]) + "\n</table>"


def _tabular(headings: Sequence[str], lines: Sequence[Sequence[str]], left: frozenset[int]) -> str:
    first, *others = [f"{' & '.join(line)} \\\\" for line in (headings, *lines)]
    spec = "".join("l" if place in left else "r" for place in range(len(headings)))
    rows = "\n".join([r"\toprule", first, r"\midrule", *others, r"\bottomrule"])
    return f"\\begin{{tabular}}{{{spec}}}\n{rows}\n\\end{{tabular}}"


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

#: Answers that a document leaves out: its head gives the runs in short, and whether a step will fit is a prediction.
LEFT_OUT = ("runs", "fit")
#: The facts of a brief document.
BRIEF_FACTS = ("Reference", "Machine", "Trust", "Edition")
#: The points of a chart that are left out where tables are cut: the first of so many say nothing.
_MOST_POINTS = 30
#: The most lines of a table, and the most views of a question that is not the handout's.
MAX_LINES, VIEWS_BESIDE = 7, 1


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report. `facts` describe the machine and how far the rows can be trusted, under short names. `handout` are the
    questions of an edition, where the report is of one."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    handout: Mapping[str, CourseQuestion] = field(default_factory=dict)


def order_questions() -> list[str]:
    """Returns the names of all questions: those of the handout in its order, then the others."""
    ids = list(COURSE)
    places = {
        name: min((ids.index(one) for one in question.course if one in ids), default=len(ids))
        for name, question in QUESTIONS.items()
    }
    return sorted(QUESTIONS, key=lambda name: (places[name], name))


def list_unanswered(answers: Sequence[Answer]) -> list[str]:
    """Returns the ids of the handout's questions that no answer with a view covers."""
    covered = {one for answer in answers if answer.views for one in QUESTIONS[answer.question].course}
    return [one for one in COURSE if one not in covered]


def write_document(document: Document, form: Form, *, brief: bool = False) -> str:
    """Returns the document; a brief one has the first view of each answer and no commands."""
    facts = [(name, text) for name, text in document.facts if not brief or name in BRIEF_FACTS]
    if facts and not brief and not document.handout:
        unanswered = list_unanswered(document.answers)
        text = f"answered here: {len(COURSE) - len(unanswered)} of {len(COURSE)} questions about measuring"
        text += f"; not answered: {', '.join(unanswered)}" if unanswered else ""
        facts.append(("Handout", f"{text}. Outside of what Stepscope measures: {OUTSIDE['']}."))
    parts = [form.heading(form.escape(document.title), 1)]
    parts += [form.paragraph(form.bold(form.escape(f"{name}.")) + " " + form.escape(text)) for name, text in facts]
    if document.handout:
        headings = ("Question", "Problem", "What it asks", "Cells", "With a row")
        lines = [
            [form.escape(text) for text in (name, one.problem, one.words, str(len(one.cells)),
                                            str(len(one.cells) - len(one.missing)))]
            for name, one in document.handout.items()
        ]  # fmt: skip
        parts += [form.heading(form.escape("The questions of this edition"), 2)]
        parts += [form.table(headings, lines, frozenset(range(3)))]
    explained = set[str]()
    limit = MAX_LINES if len({answer.question for answer in document.answers}) > 1 else None
    for before, answer in zip((None, *document.answers), document.answers, strict=False):
        if answer.views and answer.question not in LEFT_OUT:
            question = QUESTIONS[answer.question]
            ids = f" ({', '.join(question.course)})" if question.course else ""
            most = 1 if brief else None if question.course else VIEWS_BESIDE
            views = tuple(
                replace(view, columns=tuple(name for name in view.columns if not view.field(name).is_long))
                for view in answer.views[:most]
            )
            shown = replace(answer, views=views, more="" if brief else answer.more)
            is_first = before is None or before.question != answer.question
            words = f"{question.words}{ids}" if is_first else ""
            asked = is_first and not brief
            parts.append(write(shown, form, words=words, commands=asked, max_lines=limit, explained=explained).rstrip())
    if not brief:
        parts += _write_open(document, form)
    body = "\n\n".join(parts) + "\n"
    if form is HTML:
        head = f"<meta charset=utf-8><title>{HTML.escape(document.title)}</title><style>{_STYLE}</style>"
        return f"<!doctype html><html lang=en>{head}\n{body}"
    if form is LATEX:
        packages = ("[T1]{fontenc}", "{booktabs}", "[margin=2cm]{geometry}")
        head = "\n".join([r"\documentclass{article}", *(rf"\usepackage{package}" for package in packages)])
        return f"{head}\n\\begin{{document}}\n{body}\\end{{document}}\n"
    return body


def _write_open(document: Document, form: Form) -> list[str]:
    """Returns the section on what is missing: the handout's questions first, then what answers lack."""
    lacking: dict[tuple[Cell, ...], list[str]] = {}
    for name, asked in document.handout.items():
        lacking.setdefault(asked.missing, []).append(name)
    found = [
        (f"{', '.join(ids)}: {format_count(len(cells), 'cell')} without a row.", cells)
        for cells, ids in lacking.items()
        if cells
    ]
    if not document.handout:
        words = "; ".join(f"{one}: {COURSE[one].words}" for one in list_unanswered(document.answers))
        found += [(f"Of the handout, these rows do not answer {words}.", ())] if words else []
        found += [
            (f"{QUESTIONS[answer.question].words} Missing: {one.words}.", one.cells)
            for answer in document.answers
            for one in answer.missing
        ]
    parts = [form.heading(form.escape("Open questions"), 2)] if found else []
    for said, cells in found:
        parts.append(form.paragraph(form.escape(said)))
        parts += [form.code(commands)] if (commands := sweep_commands(cells, fresh=False)) else []
    return parts


_STYLE = """:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto } th, td { padding: .2rem .6rem; text-align: left }
th { border-bottom: 1px solid } .n { text-align: right } pre { overflow-x: auto }"""
