"""Explore: what is drawn against what, computed by hand from synthetic rows, and as a reader sees it in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import pytest
from playwright.sync_api import Browser, expect

from pages.explore.figures import Axes, PlotMark, color_for, explore_chart
from pages.explore.magnitude import SHARE, fitting_unit, format_in_unit
from runner.store.queries.explore import KINDS, WantedMeasure, load_explored, load_measures
from tests.browser import Site, opened, settled
from tests.synthetic import memory_rows, rows, traces
from tests.synthetic.rows import asked, step_ms

HERE, THERE = "Example CPU · bench1", "Example GPU · bench2"
#: Traces that are marks of cells, as [name, x, y, dash, symbol], in the order of drawing.
_TRACES = """() => document.querySelector('.st-key-card-explored .js-plotly-plot').data
    .filter(trace => trace.x.length && trace.mode !== 'lines').map(trace => [trace.name, Array.from(trace.x),
        Array.from(trace.y), trace.line?.dash ?? null, trace.marker.symbol])"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with two precisions at three contexts, one of which ran out of memory; a batch of 8 at one; and
    fp32 of another machine."""
    path, of = tmp_path_factory.mktemp("explore") / "results.duckdb", rows.run()
    cells = [asked("toy-64", context=c, precision=p) for p in ("fp32", "bf16") for c in (64, 128, 256)]
    good = [rows.ok(of, cell, round=number) for cell in cells[:-1] for number in (0, 1)]
    # the last of `cells`, and the third round of a cell that worked
    lost = [rows.failed(of, cells[-1]), rows.failed(of, cells[0], status="crashed")]
    rows.store(path, of, [*good, lost[0], rows.ok(of, asked("toy-64", context=128, batch=8))])
    other = rows.run(device="cuda", device_name="Example GPU", host="bench2", run_id=UUID(int=7))
    rows.store(path, other, [rows.ok(other, asked("toy-64", context=c)) for c in (64, 128, 512)])
    memory_rows.store(path, [memory_rows.attention(of, seq_len=length) for length in (256, 1024)])
    traces.store(path, [traces.profiled(of)])
    return path


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


def test_rounds_are_pooled_and_machines_are_not(file: Path) -> None:
    found = load_explored(file, WantedMeasure(table="steps", measure="median_ms", phase="step"))
    own = {(row.cell.precision, row.cell.context, row.cell.batch): row for row in found if row.machine == HERE}
    assert (len(found), len(own)) == (10, 7)
    for (precision, context, batch), row in own.items():
        if (precision, context) == ("bf16", 256):
            assert (row.status, row.value, row.failed_phase) == ("oom", None, "backward")
            continue
        assert row.value == pytest.approx(step_ms(row.cell), rel=1e-3)
        low, value, high = (float(number or "nan") for number in (row.low, row.value, row.high))
        assert low < value < high
        assert row.rounds == (1 if batch == 8 else 2)
    # a column of the row itself has no interval
    tokens = load_explored(file, WantedMeasure(table="steps", measure="tokens_per_s"))
    first = next(row for row in tokens if row.status == "ok")
    assert first.value == pytest.approx(first.cell.batch * first.cell.context / step_ms(first.cell) * 1e3, rel=1e-3)
    assert first.low is None


def test_choosing_a_run_keeps_the_other_machines(file: Path) -> None:
    other = UUID(int=7)
    found = load_explored(
        file, WantedMeasure(table="steps", measure="median_ms", phase="step", machine=THERE, run=other)
    )
    assert len(found) == 10
    none = load_explored(file, WantedMeasure(table="steps", measure="median_ms", phase="step", machine=HERE, run=other))
    assert {row.machine for row in none} == {THERE}


def test_only_columns_with_a_value_can_be_drawn(file: Path) -> None:
    found = load_measures(file, "steps")
    assert [item.phase for item in found[:2]] == ["step", "forward"]
    assert {"tokens_per_s", "parameters"} <= {item.name for item in found}
    assert "mfu" not in {item.name for item in found}, "none of these rows has a value"
    assert [item.name for item in load_measures(file, "profiles")][:2] == ["unprofiled_step_ms", "profiled_step_ms"]
    assert load_measures(file, "numerics") == []
    assert set(KINDS) >= {"steps", "attention", "memory", "profiles", "numerics"}


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.042, "ms", "42.0 µs"),
        (63.6, "ms", "63.6 ms"),
        (12_340, "ms", "12.3 s"),
        (3 * 2**30, "bytes", "3.00 GiB"),
        (4.2e13, "FLOP/s", "42.0 TFLOP/s"),
        (0.384, SHARE, "38.4%"),
        (1.2e-6, "", "1.20e-06"),
        (128_625_408, "", "129 M"),
    ],
)
def test_units_fit_the_magnitude(value: float, unit: str, said: str) -> None:
    assert format_in_unit(value, unit) == said


def test_known_values_keep_their_color_and_others_get_a_different_one() -> None:
    assert color_for("bf16", ("fp32", "bf16")) != color_for("fp32", ("fp32", "bf16"))
    modes = ("inference", "forward", "train")
    assert len({color_for(mode, modes) for mode in modes}) == 3, "forward is also a phase"


def test_lines_crosses_and_panels() -> None:
    """A line joins only points of one cell, crosses are above everything else, and each value has a panel."""
    marks = [
        PlotMark(x=64, y=1.0, cell_id="a", color="fp32", panel="p"),
        PlotMark(x=128, y=100.0, cell_id="b", color="fp32", panel="p"),
        PlotMark(x=64, y=2.0, cell_id="c", color="bf16", panel="q"),
        PlotMark(x=64, y=3.0, cell_id="d", color="bf16", panel="q"),
        PlotMark(x=128, y=None, cell_id="e", color="bf16", panel="q", failure="out of memory in backward"),
    ]
    axes = Axes(x="Context", y="Time", unit="ms", colors=("fp32", "bf16"), panels=("p", "q"))
    figure = explore_chart(marks, axes)
    drawn = {(trace.name, len(trace.x)): trace for trace in figure.data if trace.x}
    assert drawn["fp32", 2].mode == "lines+markers"
    assert drawn["bf16", 2].mode == "markers"
    cross = drawn["no result", 1]
    assert cross.y[0] > 100
    assert cross.text == ("  bf16 out of memory  ",)
    assert [trace.name for trace in figure.data if trace.showlegend and trace.x] == ["fp32", "bf16"]
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.range[1] > 2
    assert [note.text for note in figure.layout.annotations] == ["p", "q"]
    assert explore_chart(marks, Axes(**{**vars(axes), "scale": "linear"})).layout.yaxis.type is None
    assert fitting_unit([0.0], "ms") == (1.0, "ms")


def test_a_reader_draws_one_column_against_another(address: str, browser: Browser) -> None:
    with opened(browser, f"{address}/explore") as visit:
        page = visit.page
        page.wait_for_selector(".st-key-card-explored .js-plotly-plot .main-svg")
        expect(page.get_by_role("heading", level=1)).to_have_text("Explore: any measure against any setting")
        traces = page.evaluate(_TRACES)
        # batch has two values and is fixed to one by default; the cell that ran out of memory is a cross above the rest
        assert [(name, x) for name, x, *_ in traces] == [
            ("fp32", [64, 128, 256]), ("bf16", [64, 128]), ("no result", [256])
        ]  # fmt: skip
        fp32 = [step_ms(asked("toy-64", context=context)) for context in (64, 128, 256)]
        assert traces[0][2] == pytest.approx(fp32, rel=1e-3)
        assert traces[2][2][0] > max(fp32)
        expect(page.get_by_text("It goes as context¹·⁰⁰.")).to_be_visible()
        expect(page.get_by_text("1 of 6 cells ended without a result, drawn as crosses.")).to_be_visible()
        expect(page.get_by_text("Of batch 4.")).to_be_visible()


@pytest.mark.soak
def test_other_machines_are_marked_and_overlapping_points_are_reported(address: str, browser: Browser) -> None:
    asked_for = {"steps-color": "nothing", "machines": "all, marked", "steps-is-batch": "all of them",
                 "steps-is-precision": "fp32", "steps-x": "Context", "scale": "log"}  # fmt: skip
    link = f"{address}/explore?" + "&".join(f"{name}={quote(value)}" for name, value in asked_for.items())
    with opened(browser, link, width=390) as visit:
        page = visit.page
        page.wait_for_selector(".st-key-card-explored .js-plotly-plot .main-svg")
        own, other = page.evaluate(_TRACES)
        assert own[:2] == ["this machine", [64, 128, 128, 256]]
        assert other[:2] == [THERE, [64, 128, 512]]
        assert (own[3:], other[3:]) == (["solid", "circle"], ["dash", "diamond"])
        expect(
            page.get_by_text(
                "1 of 6 places hold several cells, which differ in batch: each is drawn, none is averaged."
            )
        ).to_be_visible()
        expect(page.get_by_text(f"Dashed, with marks of another shape: rows of {THERE}.")).to_be_visible()
        kept = parse_qs(urlsplit(page.url).query)
        assert {name: kept[name] for name in asked_for if name in kept} == {
            name: [value] for name, value in asked_for.items() if name in kept
        }
        assert {"steps-color", "machines", "steps-is-batch", "scale"} <= set(kept)


def test_a_click_pins_and_the_link_keeps_it(address: str, browser: Browser) -> None:
    with opened(browser, f"{address}/explore?of=profiled+steps&steps-x=nonsense") as visit:
        page = visit.page
        point = page.locator(".st-key-card-explored .points path.point").first
        settled(page)
        box = point.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.get_by_role("heading", name="Everything stored about the cell")).to_be_visible()
        page.wait_for_url(re.compile("cell="))
        assert UUID(parse_qs(urlsplit(page.url).query)["cell"][0])
