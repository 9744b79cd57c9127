"""Sums, dtypes, errors and normalization: against the handout, and against SQL on the shipped rows."""

from pages.plot import figure
from runner.answers import ask
from runner.answers.answer import View
from runner.render.document import MARKDOWN, write
from runner.results.rows import Rows
from tests.runner.answers.shipped import query, shipped


def values(view: View, *names: str) -> list[tuple[object, ...]]:
    return [tuple(view.get(row, name) for name in names) for row in view.rows]


def test_the_four_sums_are_those_of_the_handout() -> None:
    answer = ask("sums", shipped("sums"))
    names = ("fp32 += fp32", "fp32 += fp16", "fp32 += fp16, upcast first", "fp16 += fp16")
    assert values(answer.views[0], "sum", "agrees") == [(name, True) for name in names]
    totals = [round(float(str(total)), 7) for (total,) in values(answer.views[0], "total")]
    assert totals == [10.0001335, 10.0021362, 10.0021362, 9.953125]
    assert "9.953125 instead of 10" in answer.sentence.replace("**", "")
    assert answer.sentence.endswith("4 of 4 sums are as CS336's assignment 2 prints.")
    assert not answer.missing
    assert [view.title in write(answer, MARKDOWN, max_lines=7) for view in answer.tables] == [True, False], "a chart"


def test_a_sum_that_was_not_measured_is_asked_for() -> None:
    rows = Rows(sums=tuple(one for one in shipped("sums").sums if one.accumulator == "fp32"))
    (missing,) = ask("sums", rows).missing
    assert missing.words == "no sum by fp16"
    assert [cell.accumulator for cell in missing.cells] == ["fp16"]  # type: ignore[attr-defined]


def test_dtypes_are_those_that_were_read() -> None:
    view = ask("dtypes", shipped("precise"), {"model": "toy: linear, ReLU, layer norm, linear"}).views[0]
    read = {(part, precision): name for part, precision, name in values(view, "part", "precision", "format")}
    assert read["parameters", "bf16"] == read["layer norm's output", "fp16"] == read["gradients", "fp16"] == "fp32"
    assert read["first linear's output", "fp16"] == read["logits", "fp16"] == "fp16"
    assert read["first linear's output", "bf16"] == "bf16"
    colors = dict(zip(values(view, "format"), figure(view)["data"][0]["marker"]["color"], strict=True))
    assert len({*colors.values()}) == 3, "a matrix in which each dtype has its color"


def test_errors_are_the_stored_ones() -> None:
    for what, column in (("gradients", "gradient_error"), ("loss", "loss_error")):
        view = ask("errors", shipped("precise"), {"error-of": what}).views[0]
        of_small = "FROM numerics WHERE layers = 12 AND context = 512"
        stored = query(f"SELECT DISTINCT precision, {column} {of_small} ORDER BY 1")
        drawn = sorted(values(view, "pass", "precision", "error"), key=lambda row: str(row[1]))
        assert [error for place, _, error in drawn if place == "small · 512 tokens"] == [error for _, error in stored]


def test_the_worst_block_counts_and_a_value_beyond_fp16_overflows() -> None:
    view = ask("normalization", shipped("precise"), {"statistic": "mean of squares"}).views[0]
    (worst,) = query("""SELECT max(error) FROM normalisation SEMI JOIN
        (SELECT cell_id FROM numerics WHERE layers = 12 AND context = 512 AND precision = 'fp32') USING (cell_id)
        WHERE statistic = 'mean of squares' AND computed_in = 'bf16' AND scale = 1""")
    drawn = {(form, scale): error for form, scale, error in values(view, "computed_in", "scale", "error")}
    assert drawn["bf16", 1.0] == worst[0]
    assert drawn["fp16", 1024.0] is None
    assert drawn["bf16", 1024.0] is not None
