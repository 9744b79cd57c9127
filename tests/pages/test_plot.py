"""Pictures of the shipped rows without a browser: what is written in them, how large and where."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pages.draw import column_of
from pages.plot import figure
from runner.answers import QUESTIONS, ask
from runner.answers.answer import View
from runner.answers.overview import draw_sparkline
from tests.runner.answers.shipped import shipped

MIN_PX = 12


def views(name: str, **asked: str) -> Iterator[View]:
    yield from (view for view in ask(name, shipped(*QUESTIONS[name].needs), asked).views if view.draw.kind != "table")


def written(drawn: dict[str, Any]) -> dict[str, tuple[float, float, str]]:
    """Returns the texts beside the marks, each with its x, y and where it stands of them."""
    trace = drawn["data"][-1]
    return dict(zip(trace["text"], zip(trace["x"], trace["y"], trace["textposition"], strict=True), strict=True))


def sizes(part: Any) -> Iterator[float]:
    """Yields the size of every font of a figure."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if str(name).endswith("font") and "size" in value:
            yield from value["size"] if isinstance(value["size"], list) else [value["size"]]
        yield from sizes(value)


@pytest.mark.parametrize("name", ["step", "precision", "memory", "attention", "sums", "roofline", "overview"])
def test_no_text_is_small(name: str) -> None:
    for drawn in (figure(view, narrow=narrow) for view in views(name) for narrow in (False, True)):
        assert min(sizes(drawn), default=MIN_PX) >= MIN_PX
        assert not re.search("<su[bp]>", json.dumps(drawn))


def test_a_table_has_all_digits_of_a_sum() -> None:
    (view, *_) = ask("sums", shipped("sums")).views
    assert column_of(view, "total", "Sum")["type_config"]["format"] == f"%.{view.field('total').digits}g" == "%.9g"


def test_a_line_of_many_points_has_its_last_value_alone() -> None:
    drawn = figure(next(view for view in views("sums") if view.draw.kind == "lines"))
    assert all(trace["mode"] == "lines" for trace in drawn["data"][:-1])
    assert any("-0.0469" in text for text in written(drawn))


def test_ratios_that_are_nearly_equal_have_ticks_as_far_apart_as_others() -> None:
    view = next(view for view in views("compare") if view.title.startswith("Peak memory"))
    assert figure(view)["layout"]["xaxis"]["ticktext"] == ["0.98", "0.99", "1", "1.01", "1.02"]
    assert figure(view, narrow=True)["layout"]["xaxis"]["ticktext"] == ["0.98", "1", "1.02"]


def test_what_overflows_did_not_run_out_of_memory() -> None:
    layout = figure(next(views("normalization")))["layout"]
    assert sum("% overflow" in one["text"] for one in layout["annotations"]) == 3
    assert layout["xaxis"]["ticktext"][-4:] == ["1", "32", "128", "1,024"]
    assert any("260 GiB / 132" in json.dumps(figure(one)) for one in views("attention", precision="bf16", d_head="64"))


def test_rows_are_counted_in_whole_numbers() -> None:
    ends = [text for text in written(figure(next(views("trust")))) if "<b>" in text]
    assert [text for text in ends if re.search(r"\d", text)]
    assert not [text for text in ends if "." in text]


def test_percent_is_written_as_a_sign() -> None:
    assert any(re.search(r"0\.142%</b>\s+· 1\.85% resolved", text) for text in written(figure(next(views("noise")))))


def test_words_of_a_matrix_are_text() -> None:
    view = next(views("dtypes"))
    rows = tuple(replace(row, values=(*row.values[:2], "<i>x")) for row in view.rows)
    drawn = json.dumps(figure(replace(view, rows=rows)))
    assert "&lt;i>x" in drawn
    assert "<i>x" not in drawn


def test_no_interval_is_cut() -> None:
    view = next(view for view in views("precision") if view.draw.kind == "lines")
    low, high = (10**end for end in figure(view)["layout"]["yaxis"]["range"])
    assert all(low < start < end < high for start, end in map(view.interval, view.rows))


def test_a_phone_has_intervals_where_they_fit() -> None:
    """Two columns of a matrix have room for them on a phone, seven have not."""
    fit, precision = next(views("fit")), next(views("precision"))
    assert all("<br>" in text for text in written(figure(fit, narrow=True)))
    assert not any("<br>" in text for text in written(figure(precision, narrow=True)))
    alone = next(view for view in views("overview") if view.name == "alone")
    sizes = [len(re.sub("<.*?>|[.]", "", text).lstrip("0")) for text in written(figure(alone, narrow=True))]
    assert max(sizes) == 3, "digits, where a wide page has four: 0.9982"


def test_out_of_memory_stands_at_the_limit() -> None:
    drawn = figure(next(view for view in views("memory") if view.draw.kind == "bars"))
    ((text, (x, _, side)),) = ((text, at) for text, at in written(drawn).items() if "✕" in text)
    assert "needs 172 GiB" in text
    assert (x, side) == (drawn["layout"]["shapes"][0]["x0"], "middle left")


def test_a_regression_has_its_sparkline_beside_it() -> None:
    view, line = next(view for view in views("overview") if view.draw.kind == "matrix"), draw_sparkline([10, 10, 11])
    fields = tuple(replace(item, role="note") if item.name == "change" else item for item in view.fields)
    rows = tuple(replace(row, values=(line, *row.values[1:])) for row in view.rows[:1])
    drawn = replace(view, fields=fields, rows=rows, draw=replace(view.draw, kind="dots", down=("change",),
                    across="", beside=("size",)))  # fmt: skip
    assert any(line in text for text in written(figure(drawn)))
