"""What the charts show, compared with values computed by hand."""

import math
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from pages.figures import colors, coverage, frame, frontier, phases, ratios, samples, speedups, warmup
from pages.figures.phases import PhaseBar
from pages.figures.speedups import SpeedupDot
from pages.peak_memory import figures
from runner.formats import format_number
from runner.results import PhaseSample
from runner.schema import Phase


def bars() -> list[PhaseBar]:
    """Returns two cells, of 1 + 3 = 4 ms and of 10 + 30 = 40 ms, and one that ran out of memory."""
    found = [PhaseBar(size="small", context=64, phase="step", cell_id="c", failure="out of memory in backward")]
    for context, scale in ((128, 1.0), (1024, 10.0)):
        times: dict[Phase, float] = {"forward": 1.0, "backward": 3.0, "step": 4.5}
        for phase, milliseconds in times.items():
            value = milliseconds * scale
            found.append(
                PhaseBar(
                    size="small",
                    context=context,
                    phase=phase,
                    cell_id=f"{context}",
                    median_ms=value,
                    low_ms=value * 0.9,
                    high_ms=value * 1.2,
                    n=10,
                )
            )
    return found


def traces(figure: go.Figure, **wanted: Any) -> list[Any]:
    return [trace for trace in figure.data if all(trace[key] == value for key, value in wanted.items())]


def test_phase_bars_of_time() -> None:
    figure = phases.phase_bars(bars(), view="time")
    forward, backward = traces(figure, type="bar")
    assert (forward.name, list(forward.x), list(backward.x)) == ("forward", [1.0, 10.0], [3.0, 30.0])
    assert (forward.error_x.array, backward.error_x.array) == (None, None), "intervals of phases would cover each other"
    assert forward.marker.color == colors.color_of("forward")
    assert [point[0] for point in forward.customdata] == ["128", "1024"]
    whole, words = traces(figure, type="scatter")
    assert (list(whole.x), list(whole.y)) == ([4.5, 45.0], [2, 3]), "the whole step's median is at its own bar"
    assert list(whole.error_x.array) == pytest.approx([0.9, 9.0])
    assert list(whole.error_x.arrayminus) == pytest.approx([0.45, 4.5])
    assert [text.strip() for text in words.text] == ["✕ out of memory in backward", "4.50 ms", "45.0 ms"]
    assert list(words.x) == pytest.approx([0.0, 5.4, 54.0]), "labels start where the intervals end"
    assert (list(words.y), list(forward.y)) == ([1, 2, 3], [2, 3]), "labels are below the heading of their size"
    assert list(figure.layout.yaxis.ticktext) == ["64", "128", "1,024"]
    assert figure.layout.xaxis.title.text == "Median of each phase (ms)"


def test_phase_bars_of_shares() -> None:
    figure = phases.phase_bars(bars(), view="share")
    assert [list(trace.x) for trace in traces(figure, type="bar")] == [[25.0, 25.0], [75.0, 75.0]]


def test_bars_of_host_bound_cells_are_hatched() -> None:
    """Only the first cell is bound by the host. The legend shows each phase without hatching, and explains the
    hatching."""
    host = "1.50 ms of GPU work in 4.20 ms in a loop: the host sets this time"
    rows = [replace(row, host=host if row.context == 128 else "") for row in bars()]
    figure = phases.phase_bars(rows, view="time", clock="loop")
    drawn = traces(figure, type="bar", showlegend=False)
    assert [list(trace.marker.pattern.shape) for trace in drawn] == [["/", ""], ["/", ""]]
    assert [trace.name for trace in traces(figure, type="bar") if trace.showlegend is None] == [
        "forward",
        "backward",
        "the host sets this time",
    ]
    slow, fast = (point[1] for point in drawn[0].customdata)
    assert slow.endswith("n = 10<br>1.50 ms of GPU work in 4.20 ms in a loop:<br>the host sets this time<b>")
    assert fast.endswith("n = 10<b>")
    assert figure.layout.xaxis.title.text == "Median in a loop of each phase (ms)"
    line, *_ = phases.phase_bars(rows, view="scaling").data
    assert list(line.marker.symbol) == ["circle-open", "circle"]


def test_phase_scaling() -> None:
    """The guides start at the first point: over eight times the context they reach 8 times and 64 times the time."""
    line, linear, square = phases.phase_bars(bars(), view="scaling").data
    assert (list(line.x), list(line.y)) == ([128, 1024], [4.5, 45.0])
    assert (list(linear.y), list(square.y)) == ([4.5, 36.0], [4.5, 288.0])


def dots() -> list[SpeedupDot]:
    return [
        SpeedupDot(place="a", size="a", phase="step", cell_id="1", ratio=2.0, low=1.8, high=2.5, parameters=1_000),
        SpeedupDot(place="b", size="b", phase="step", cell_id="2", ratio=0.5, low=0.4, high=0.6, parameters=10_000),
        SpeedupDot(place="c", size="b", phase="step", cell_id="3", ratio=2.0, parameters=10_000),
        SpeedupDot(place="d", size="c", phase="step", cell_id="4", failure="bf16 out of memory"),
    ]


def test_speedups_and_their_intervals() -> None:
    figure = speedups.speedup_dots(dots(), variant="bf16")
    (measured,) = traces(figure, name="whole step")
    assert (list(measured.x), list(measured.y)) == ([2.0, 0.5, 2.0], [0.0, 1.0, 2.0])
    assert list(measured.error_x.array) == pytest.approx([0.5, 0.1, 0.0])
    assert list(measured.error_x.arrayminus) == pytest.approx([0.2, 0.1, 0.0])
    low, high = figure.layout.xaxis.range
    assert low == pytest.approx(math.log10(0.4) - 0.06 * math.log10(2.5 / 0.4))
    assert high == pytest.approx(math.log10(2.5) + 0.06 * math.log10(2.5 / 0.4))
    assert low < math.log10(figure.data[-1].x[0]) < low + 0.01 * (high - low)
    assert figure.layout.xaxis.type == "log"
    assert 1 in figure.layout.xaxis.tickvals
    assert [text.strip() for text in figure.data[-1].text] == ["bf16 out of memory"]
    assert list(figure.layout.yaxis.ticktext) == ["a", "b", "c", "d"]


def test_host_bound_pairs_have_rings_and_a_note_in_their_tooltips() -> None:
    words = "bound by the host on one side; by device time: 4.00×"
    rows = [replace(dot, host=words if dot.place in ("a", "c") else "") for dot in dots()]
    figure = speedups.speedup_dots(rows, variant="bf16")
    (rings,) = traces(figure, name="bound by the host on a side")
    assert (list(rings.x), list(rings.y)) == ([2.0, 2.0], [0.0, 2.0])
    (measured,) = traces(figure, name="whole step")
    assert [point[1].endswith(f"<br>{words}") for point in measured.customdata] == [True, False, True]
    assert not traces(speedups.speedup_dots(dots(), variant="bf16"), name="bound by the host on a side")


def test_names_of_models_of_nearly_one_size_do_not_overlap() -> None:
    """Ten letters are a quarter of the axis wide: names at 0.50 and 0.55 overlap, those at 0.10 and 0.50 do not."""
    labels = [f"ten-letter<br>{number}B" for number in range(5)]
    first, second, lowered, lower_still, free = speedups._stagger(labels, [0.10, 0.50, 0.55, 0.57, 0.76])
    assert (first, second, free) == (labels[0], labels[1], labels[4])
    assert (lowered, lower_still) == ("<br><br>" + labels[2], "<br><br><br><br>" + labels[3])


def test_speedup_trend_joins_geometric_means() -> None:
    """The speedups 2 and ½ cancel out."""
    figure = speedups.speedup_trend(dots(), variant="bf16")
    line = traces(figure, mode="lines")[0]
    assert list(line.x) == [1_000, 10_000]
    assert list(line.y) == pytest.approx([2.0, 1.0])


def test_warmup_means_and_medians() -> None:
    """One cold step of 100 and nine of 10 make the mean 19 and the median 10."""
    rows = [
        warmup.WarmupStep(warmup=0, step=step, is_warmup=False, step_ms=100.0 if step == 0 else 10.0)
        for step in range(10)
    ]
    rows += [
        warmup.WarmupStep(warmup=1, step=step, is_warmup=step == 0, step_ms=100.0 if step == 0 else 10.0)
        for step in range(11)
    ]
    figure = warmup.warmup_steps(rows)
    assert [trace.y[0] for trace in traces(figure, name="mean")] == [19.0, 10.0]
    assert [trace.y[0] for trace in traces(figure, name="median")] == [10.0, 10.0]
    assert [list(trace.x) for trace in traces(figure, name="warm-up step")] == [[], [0]]


def test_samples_of_rounds_follow_one_another() -> None:
    rows = [
        PhaseSample(round=r, phase="forward", step=s, is_warmup=s == 0, duration_ms=1.0 + s)
        for r in (0, 1)
        for s in range(3)
    ]
    figure = samples.sample_steps(rows, state="x")
    assert list(figure.data[0].x) == [0, 1, 2, 3, 4, 5]
    assert list(figure.data[0].marker.symbol) == ["circle-open", "circle", "circle"] * 2
    assert [note.visible for note in figure.layout.annotations] == [True, False]  # the name of the first warm-up alone


def test_coverage_tiles() -> None:
    """A failed cell shows how it ended, and a cell that was not measured is a dot; neither looks like a measured
    one."""
    tile = coverage.CoverageTile
    figure = coverage.coverage_grid(
        [
            tile(size="s", context=64, variant="v", ok=1, failures={}, median_ms=12.345),
            tile(size="s", context=128, variant="v", ok=0, failures={"oom": 1}),
            tile(size="s", context=64, variant="w", ok=1, failures={"timeout": 2}, median_ms=1.0),
        ]
    )
    heat, words = figure.data
    assert list(words.text) == ["12.3", "✕ oom", "1.00 ✕ timeout", "·"]
    assert [list(line) for line in heat.z] == [[None, None], [4, 2], [3, 0]]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([None, 0.0], ["0.95×", "1×", "1.05×", "1.1×"]),
        ([1.02, 0.97], ["0.95×", "1×", "1.05×", "1.1×"]),
        ([0.8, 1.35], ["0.8×", "1×", "1.2×"]),
        ([1.9], ["1×", "1.5×"]),
        ([0.7, 9.0], ["1×", "2×", "5×"]),
        ([14.0, 2.0], ["1×", "2×", "5×", "10×"]),
        ([0.04, 25.0], ["0.1×", "0.3×", "1×", "3×", "10×"]),
        ([250.0, 0.002], ["0.01×", "0.1×", "1×", "10×", "100×"]),
        ([1e8], ["1×", "100×", "10,000×", "1,000,000×", "100,000,000×"]),
    ],
)
def test_a_ratio_axis_is_as_wide_as_its_ratios_and_shows_1(values: list[float | None], labels: list[str]) -> None:
    axis = ratios.ratio_axis(values)
    low, high = (10**end for end in axis["range"])
    drawn = [value for value in values if value]
    assert low < min([*drawn, 1 / 1.1]) <= max([*drawn, 1.1]) < high
    assert axis["ticktext"] == labels
    assert 1 in axis["tickvals"]


def test_frontier_rows_under_their_groups() -> None:
    """Two groups, each with a line for its name, have rows at 1 and 2 and at 4. A region that does not fit starts at
    its first size."""
    span = frontier.FrontierSpan
    spans = [span(group="a", row="fp32", fits=8, fails=9, predicted=10), span(group="a", row="bf16", fits=12, fails=13),
             span(group="b", row="fp32", fits=0, fails=1)]  # fmt: skip
    grows = frontier.Grows(title="Batch (sequences)", unit="sequences", state="x")
    figure = frontier.frontier_map(spans, [frontier.Tried(group="b", row="fp32", size=2, fitted=False)], grows=grows)
    (fits,), (fails,), (lost,) = (traces(figure, name=name) for name in ("fits", "does not fit", "out of memory"))
    assert [y for y in fits.y if y is not None][::2] == [1, 2, 4]
    assert [x for x in fails.x if x is not None][::2] == [9, 13, 1]
    assert (list(lost.x), list(lost.y)) == ([2], [4])
    assert [note.text for note in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]
    assert figure.layout.xaxis.title.text == "Batch (sequences)"


def test_peaks_of_phases_in_their_colors() -> None:
    held = {"peak": 4 * 2**20, "reserved": 6 * 2**20}
    bars = [figures.PhasePeakBar(phase=phase, held=held) for phase in ("forward", "backward")]
    bar, mark = figures.phase_peak_bars(bars, state="x").data
    assert (list(bar.x), list(bar.y), list(mark.x)) == ([4, 4], ["forward", "backward"], [6, 6])
    assert list(bar.marker.color) == [colors.color_of("forward"), colors.color_of("backward")]


def test_peaks_that_are_close_together_have_ticks() -> None:
    """2.40 and 2.49 GiB are between two powers of two; 16 and 256 MiB are not."""
    for base, other, ticks in ((2.40, 2.49, ["2.4 GiB", "2.45 GiB", "2.5 GiB"]), (1 / 64, 0.25, ["16 MiB", "256 MiB"])):
        pair = figures.PeakPair(place="small", base=round(base * 2**30), other=round(other * 2**30))
        found = figures.peak_pairs([pair], names=("fp32", "bf16")).layout.xaxis.ticktext
        assert set(ticks) <= set(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01234, "0.0123"),
        (1.0, "1.00"),
        (78.94, "78.9"),
        (123.4, "123"),
        (12_345.0, "12,300"),
        (0.0, "0"),
        (99.96, "100"),
        (9.999, "10.0"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_printed_interval_contains_its_median() -> None:
    """Ends that are equal in three digits are rounded outwards: 2,101 to 2,102 ms must contain 2,100 ms as printed."""
    assert frame.format_interval(2101.2, 2102.3, unit="ms") == "2,100–2,110 ms"
    assert frame.format_interval(1.22, 1.271, unit="×") == "1.22–1.27×"
    assert frame.format_interval(5.0, 5.0) == "5.00–5.00"
