"""Markdown and LaTeX: foreign text remains text, and every table has its columns."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from runner.report.document import Answer, Answered, Line, Open, Report, ReportTable
from runner.report.latex import escape_latex, render_latex
from runner.report.markdown import escape, render_markdown
from runner.report.report import load_report
from runner.report.rows import Scope
from tests.synthetic import hostile

NASTY = "a|b `c` *d* _e_ [f](http://x.example) <b>g</b> $h$ \\i 50% & #1 {j} ~k^ www.x.example a@b.example \x1b[2J\n- l"


def make_report(text: str) -> Report:
    table = ReportTable(caption=text, headings=("Size", text), lines=(Line(values=(text, "1.0 ± 0.1"), marks=(1,)),),
                        note=text)  # fmt: skip
    answer = Answer(sentence=text, tables=(table,), footnotes=(text,))
    answered = Answered(id="B1", text=text, page="training-step", answer=answer, commands=("python -m runner sweep",))
    missing = Open(id="B2", text=text, lacks=text, commands=("python -m runner sweep",))
    return Report(title=text, facts=(("Machine", text),), answered=(answered,), open=(missing,))


def parse(text: str) -> list[tuple[str, str]]:
    """Returns every token of the text as GitHub would parse it: type and content."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    return [(token.type, token.content) for block in tokens for token in (block, *(block.children or ()))]


def test_markdown_shows_foreign_text_literally() -> None:
    found = parse(render_markdown(make_report(NASTY)))
    kinds = {kind for kind, _ in found}
    assert not kinds & {"link_open", "image", "html_block", "code_inline", "s_open"}
    assert {content for kind, content in found if kind == "html_inline"} <= {"<sup>", "</sup>"}
    shown = "".join(content for kind, content in found if kind in ("text", "text_special"))
    # The text ends with the substitutes for the control character and the line break, on one line.
    assert (
        "a|b `c` *d* _e_ [f](http://x.example) <b>g</b> $h$ \\i 50% & #1 {j} ~k^ www.x.example a@b.example ␛[2J␊- l"
        in shown
    )
    assert sum(kind == "table_open" for kind, _ in found) == 1
    assert sum(kind == "td_open" for kind, _ in found) == 2


def test_a_line_that_looks_like_a_list_is_text() -> None:
    for text in ("- x", "+ x", "1. x", "# x", "> x", "= x"):
        assert all(kind not in ("bullet_list_open", "ordered_list_open", "heading_open", "blockquote_open")
                   for kind, _ in parse(escape(text))), text  # fmt: skip


def test_latex_escapes_commands() -> None:
    assert escape_latex("50% of a_b & $c$ #1 {x} ~ ^ \\") == (
        r"50\% of a\_b \& \$c\$ \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert escape_latex("1.0 ± 0.1 × 2 – S²") == r"1.0 $\pm$ 0.1 $\times$ 2 -- S$^2$"
    assert escape_latex("naïve 漢") == "naive ?"
    assert escape_latex("a-b --sizes ---") == "a-b -{}-sizes -{}-{}-"


@pytest.mark.parametrize("text", [NASTY, "plain", "100% _ & $ # \\ { }"])
def test_latex_tables_are_complete_whatever_they_contain(text: str) -> None:
    check_latex(render_latex(make_report(text)))


def check_latex(written: str) -> None:
    """Asserts that it is all ASCII, has `%` only in comments and braces in pairs, and that every line of a table has
    the declared number of columns."""
    assert written.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", written)
    columns = 0
    for line in written.splitlines():
        if line.startswith("%"):
            continue
        bare = re.sub(r"\\[%&_#${}\\]", "", line.replace(r"\\", ""))
        assert "%" not in bare, line
        assert bare.count("{") == bare.count("}") or line.startswith(
            ("{\\footnotesize", "{\\small", r"\end{longtable}}")
        ), line
        assert bare.count("$") % 2 == 0, line
        if begins := re.match(r"\\begin\{longtable\}\{([lr]+)\}", line):
            columns = len(begins[1])
        elif line.endswith(r" \\"):
            assert bare.count("&") == columns - 1, line
    assert written.count(r"\begin{longtable}") == written.count(r"\end{longtable}") > 0


@pytest.mark.soak
@pytest.mark.parametrize("phases", [False, True])
def test_a_hostile_file_stays_text(tmp_path: Path, phases: bool) -> None:
    report = load_report(hostile.store(tmp_path / "hostile.duckdb", phases=phases), Scope())
    found = parse(render_markdown(report))
    assert not {kind for kind, _ in found} & {"link_open", "image", "html_block"}
    assert {content for kind, content in found if kind == "html_inline"} <= {"<sup>", "</sup>"}
    assert "EVIL" in render_markdown(report)
    check_latex(render_latex(report))
