"""Overview is the front page of a study: what was measured on which machine, the fastest ways, and each page's
answer."""

import re
from typing import Any

import pytest

from pages.figures.small import SmallBar, small_bars
from pages.navigation import PAGES
from pages.offline.visit import Visit, Visits, nodes
from tests.synthetic import memory_rows, rows, traces


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """Returns a visit over one machine on which one size ran in three ways, with a profile and attention, but no memory
    cell."""
    path = tmp_path_factory.mktemp("overview") / "results.duckdb"
    run = rows.run(label="night", argv="python -m runner sweep --label night", cuda="13.0", driver="580.1")
    ways = [rows.asked(), rows.asked(precision="bf16"), rows.asked(precision="bf16", backend="compiled")]
    rows.store(path, run, [rows.ok(run, cell, round=number) for cell in ways for number in range(3)])
    memory_rows.store(path, [memory_rows.attention(run, seq_len=length) for length in (256, 1024)])
    traces.store(path, [traces.profiled(run, mode="train")])
    return Visits(path).visit("overview", {})


def words_of(visit: Visit) -> str:
    return " ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))


def test_the_study_is_described_at_the_top(visit: Visit) -> None:
    words = words_of(visit)
    top = words[: words.rindex("The fastest way to run each size")]
    for part in (
        "Example CPU · bench1",
        "torch 2.13.0",
        "CUDA 13.0",
        "commit abcdef1",
        "--label night",
        "can be trusted",
    ):
        assert part in top, part


def test_the_best_way_is_a_sentence_and_a_row_of_a_table(visit: Visit) -> None:
    """`tests.runner.analysis.test_best` computes by hand that it is 2.5 times as fast as the plain step."""
    assert "with bf16, compiled, 2.50 times as fast as the plain fp32 step" in words_of(visit)
    (table,) = [node.value for node in nodes(visit.main) if node.type == "dataframe" and "Ways measured" in node.value]
    (line,) = table.to_dict("records")
    assert (line["Size"], line["Precision"], line["Backend"], line["Ways measured"]) == (
        "toy-64",
        "bf16",
        "compiled",
        3,
    )
    assert line["Speedup over plain fp32 (×)"] == pytest.approx(2.5, rel=0.01)
    assert line["Measure it again"].startswith("python -m runner sweep --experiment")
    assert "--precisions bf16 --backends compiled" in line["Measure it again"]


#: The topics that the file of `visit` answers, in the order of Overview, and those that it does not.
ANSWERED = ("training-step", "mixed-precision", "torch-compile", "kernels", "roofline", "changes", "attention")
MISSING = ("accuracy", "frontier", "peak-memory", "model-frontier")


def cards_of(visit: Visit) -> dict[str, list[Any]]:
    """Returns the elements of each card of these topics, in their order on the page."""
    topics = {topic.title: name for page in PAGES.values() for name, topic in page.topics.items()}
    cards: dict[str, list[Any]] = {}
    name = ""
    for node in nodes(visit.main):
        if (value := str(getattr(node, "value", ""))).startswith("#### "):
            name = topics[value.removeprefix("#### ")]
        cards.setdefault(name, []).append(node)
    return {name: found for name, found in cards.items() if name in (*ANSWERED, *MISSING)}


def test_every_answer_has_a_picture_and_missing_answers_share_one_line(visit: Visit) -> None:
    cards = cards_of(visit)
    assert tuple(cards) == ANSWERED
    for name, found in cards.items():
        pictures = [node for node in found if node.type == "html" and node.proto.body.startswith('<div class="small-')]
        assert len(pictures) == 1, name
    (line,) = [node.value for node in nodes(visit.main) if "Not measured" in str(getattr(node, "value", ""))]
    words = line.split("`")[0].removeprefix("**Not measured in this file\\:** ").strip(" .").split(", ")
    listed = ["numerics", "the largest size that fits", "memory"]
    assert [one for one in words if one in listed] == listed
    assert re.search(
        "`python -m runner sweep .*--experiment numerics .*--experiment memory.* && python -m runner f", line
    )


def test_every_number_states_its_number_of_samples(visit: Visit) -> None:
    """The longest step and each side of a pair have eleven steps in each of three processes, each of two lengths of
    attention has eleven, and the profiler ran five."""
    counts = {}
    for name, found in cards_of(visit).items():
        words = [str(getattr(node, "value", "")) for node in found]
        if one := next(
            filter(None, (re.search(r"Rests on (\d+) samples in (\d+) process", text) for text in words)), None
        ):
            counts[name] = tuple(map(int, one.groups()))
    assert counts == {
        "training-step": (33, 3), "mixed-precision": (66, 6), "torch-compile": (66, 6), "roofline": (33, 3),
        "changes": (99, 9), "attention": (22, 2),
    }  # fmt: skip
    assert "Shares are of the median of 5 profiled steps." in words_of(visit)


def test_a_picture_contains_no_foreign_tags() -> None:
    bars = [
        SmallBar(name="<img src=x onerror=alert(1)>", value=2.0, words='"><script>', color="#000000", low=1.0, high=4.0)
    ]
    html = small_bars(bars, alt='" onmouseover="alert(1)', mark=1.0)
    assert "<img" not in html
    assert "<script" not in html
    assert 'onmouseover="' not in html
    assert "width:50.0%" in html, "the bar is 2 of the interval's 4"
    assert "left:25.0%;width:75.0%" in html, "the interval is from 1 to 4"


def test_without_data_there_is_no_picture() -> None:
    assert small_bars([], alt="nothing") == ""
    assert small_bars([SmallBar(name="loss", value=0.0, words="0 ms", color="#000000")], alt="nothing") == ""
