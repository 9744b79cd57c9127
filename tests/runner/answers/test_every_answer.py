"""Every question, asked on the shipped rows with many combinations of its choices, in every form."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pytest

from pages.plot import figure
from runner.answers import QUESTIONS, ask
from runner.answers.answer import Answer, choose
from runner.cli.terminal import Terminal
from runner.render import document, json, text
from runner.render.grid import make_grid, scale_of, write_measured
from runner.results.rows import Rows
from tests.runner.answers.shipped import shipped


def answers(name: str) -> Iterator[Answer]:
    """Yields the answers to a question that one change of a choice after the other leads to, breadth first."""
    rows, waiting, seen = shipped(*QUESTIONS[name].needs), [dict[str, str]()], set[tuple[tuple[str, str], ...]]()
    while waiting:
        asked = waiting.pop(0)
        answer = ask(name, rows, asked)
        chosen = {one.name: one.chosen for one in answer.choices}
        if (key := tuple(sorted(chosen.items()))) in seen:
            continue
        seen.add(key)
        yield answer
        waiting += [chosen | {one.name: option} for one in answer.choices for option in one.options]


#: A number as `formats` writes it: 1,230 or 5.71e-07.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def read_numbers(text: str) -> Counter[str]:
    return Counter(_NUMBER.findall(text))


def check_numbers(answer: Answer, lines: Sequence[str]) -> None:
    """Every number of every view, rounded once, is in what a mark of its chart says; those of its tables are in the
    terminal (where none is cut), in Markdown, HTML and LaTeX, as often as rows have them."""
    forms = {
        "text": "\n".join(lines),
        "markdown": document.write(answer, document.MARKDOWN).replace("\\", ""),
        "html": re.sub(r"<[^>]*>", " ", document.write(answer, document.HTML)),
        "latex": re.sub(r"\\textsuperscript\{.\}", "", document.write(answer, document.LATEX)).replace("\\", ""),
    }
    expected = Counter[str]()
    for view in answer.views:
        scale, name = scale_of(view, view.draw.value), view.draw.value
        known = [row for row in view.rows if isinstance(view.get(row, name), int | float)]
        numbers = Counter(number for row in known for number in _NUMBER.findall(write_measured(view, row, scale)[0]))
        expected += numbers if view in answer.tables else Counter()
        if view.draw.kind != "table":
            hovers = [text for trace in figure(view)["data"] for text in trace.get("hovertext", ())]
            assert not numbers - read_numbers("\n".join(hovers)) or view.draw.total, f"chart of {view.name}"
    if re.search(rf"The\s+first\s+{text.MAX_LINES}\s+of", forms["text"]):
        del forms["text"]
    for form, written in forms.items():
        assert not expected - read_numbers(written), f"{form} of {answer.question}: {expected - read_numbers(written)}"


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("combinations", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_every_form_shows_the_answer(name: str, combinations: int) -> None:
    for answer in islice(answers(name), combinations):
        assert answer.question == name
        assert answer.sentence or answer.missing
        assert sum(any(map(str.isalnum, word)) for word in answer.sentence.split()) <= 30, answer.sentence
        out = Terminal(width=80, file=io.StringIO())
        text.print_answer(out, answer, command=False)
        lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= 80, "fits a terminal"
        assert "␊" not in "".join(lines), "no line end within a cell"
        check_numbers(answer, lines)
        dumped = json.as_json(answer)
        for view, given in zip(answer.views, dumped["views"], strict=True):
            assert [[row[name] for name in view.names] for row in given["rows"]] == [[*one.values] for one in view.rows]
            lines = make_grid(view).lines if view.columns else ()
            assert {"–"} not in [{one.words for one in column} for column in zip(*lines, strict=True)], "an empty one"
            if view.draw.kind != "table":
                drawn = figure(view)
                places = {point[0] for trace in drawn["data"] for point in trace.get("customdata", ())}
                totals = [view.draw.series and view.get(row, view.draw.series) == view.draw.total for row in view.rows]
                marks = {place for place, is_total in enumerate(totals) if not is_total}
                assert places >= marks, f"{view.name} draws every row, and each can be clicked"


#: The questions that name the cells which would answer them where there are none.
NAMES_CELLS = {"inside_attention", "kernel_classes", "kernels", "overview", "roofline", "step", "sums", "tune",
               "variability", "warmup"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(QUESTIONS.keys() - {"fit"}))
def test_without_rows_the_answer_says_what_is_missing(name: str) -> None:
    answer = ask(name, Rows())
    assert answer.missing
    assert not answer.views
    assert any(one.cells for one in answer.missing) == (name in NAMES_CELLS)


def test_no_two_rows_of_a_view_stand_in_one_place() -> None:
    """A view refuses them by itself; here the rows of one are doubled."""
    view = ask("step", shipped("steps")).views[0]
    with pytest.raises(AssertionError, match="two rows in one place"):
        replace(view, rows=view.rows * 2)


@pytest.mark.parametrize(("older", "now"), [("llama@9d56", "own/llama@9d56"), ("768×12", "768×12 (d_ff 3328)")])
def test_older_addresses_name_the_same_size(older: str, now: str) -> None:
    assert choose({"size": older}, "size", "Size", ["small", now]).chosen == now
    assert choose({"size": "large"}, "size", "Size", ["small", now]).chosen == "small"
