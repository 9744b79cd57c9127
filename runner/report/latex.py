r"""The tables of a report as LaTeX: `booktabs` and `longtable`, one for each table of an answer.

    print(render_latex(report))

The preamble needs \usepackage{booktabs,longtable}. The text is ASCII and every other character a command, so that
pdfLaTeX, XeLaTeX and LuaLaTeX take it. Characters that no command stands for become a question mark.
"""

import re
import unicodedata
from collections.abc import Sequence

from runner.report.document import Answered, Open, Report, ReportTable, name_table
from runner.report.markdown import align
from runner.visible import visible

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": "'",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
}
_OTHERS = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": r"$-$",
    "µ": r"$\mu$",
    "…": r"\ldots{}",
    "‖": r"$\Vert$",
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "√": r"$\surd$",
    "²": r"$^2$",
    "⁰": r"$^0$",
    "’": "'",
    "“": "``",
    "”": "''",
    "é": r"\'e",
    "°": r"$^\circ$",
    "∝": r"$\propto$",
    "←": r"$\leftarrow$",
}
#: The same for comments.
_SPELLED = {"±": "+-", "×": "x", "·": "-", "–": "-", "−": "-", "µ": "u", "√": "sqrt ", "‖": "||", "≥": ">=", "≤": "<="}
#: The placeholder of a dash while hyphens are replaced.
_DASH = "\ue000"
#: The most columns of a table in normal size.
_WIDE = 7
_HEAD = r"""% Tables of a Stepscope report. Preamble: \usepackage{booktabs,longtable}
"""


def render_latex(report: Report) -> str:
    """Returns every table, each behind a comment that says its question."""
    parts = [_HEAD, *(f"% {_comment(name)}: {_comment(text)}" for name, text in report.facts)]
    for answered in report.answered:
        parts += ["", f"% {answered.id}. {_comment(answered.text)}", f"% {_comment(answered.answer.sentence)}"]
        parts += [_write_table(answered, number) for number in range(len(answered.answer.tables))]
    parts += ["", *_write_open(report.open)]
    return "\n".join(parts) + "\n"


def escape_latex(text: str) -> str:
    """Returns text that LaTeX sets as it is. Hyphens side by side do not become a dash."""
    escaped = "".join(map(_escape_character, visible(text).replace("–", _DASH)))
    return re.sub("-(?=-)", "-{}", escaped).replace(_DASH, "--")


def _escape_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii() or character == _DASH:
        return character
    return _OTHERS.get(character) or "".join(_ESCAPES.get(letter, letter) for letter in _spell(character)) or "?"


def _spell(character: str) -> str:
    """Returns the ASCII letters that come closest to a character; none for a letter of another script."""
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()


def _comment(text: str) -> str:
    """Returns text for a comment: one line of ASCII."""
    line = re.sub(r"\s+", " ", visible(text))
    return "".join(_SPELLED.get(letter) or (letter if letter.isascii() else _spell(letter) or "?") for letter in line)


def _write_table(answered: Answered, number: int) -> str:
    table = answered.answer.tables[number]
    columns = "".join("r" if right else "l" for right in align(table))
    head = " & ".join(rf"\textbf{{{escape_latex(text)}}}" for text in table.headings)
    label = name_table(answered, number + 1).lower().replace("table ", "tab:")
    rows = [_write_row(line.values, line.marks) for line in table.lines]
    notes = [escape_latex(table.note)] if table.note else []
    if number == len(answered.answer.tables) - 1:
        notes += [
            rf"\textsuperscript{{{at}}} {escape_latex(text)}" for at, text in enumerate(answered.answer.footnotes, 1)
        ]
    size = r"\footnotesize" if _is_wide(table) else r"\small"
    lines = [
        rf"{{{size}",
        rf"\begin{{longtable}}{{{columns}}}",
        rf"\caption{{{escape_latex(f'{answered.id}. {table.caption}')}}}\label{{{label}}}\\",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        r"\endfirsthead",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *rows,
        r"\end{longtable}}",
    ]
    lines += [rf"{{\footnotesize\noindent {note}\par}}" for note in notes]
    return "\n".join(lines)


def _is_wide(table: ReportTable) -> bool:
    return len(table.headings) > _WIDE


def _write_row(values: Sequence[str], marks: Sequence[int]) -> str:
    first, *rest = map(escape_latex, values)
    mark = rf"\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""
    return rf"{' & '.join([first + mark, *rest])} \\"


def _write_open(still_open: Sequence[Open]) -> list[str]:
    lines = ["% Not answered yet:"] if still_open else []
    for item in still_open:
        lines += [f"% {item.id}. {_comment(item.text)} {_comment(item.lacks)}"]
        lines += [f"%   {_comment(command)}" for command in item.commands]
    return lines
