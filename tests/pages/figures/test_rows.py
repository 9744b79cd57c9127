"""Charts are readable on a phone: folded labels, headings above rows, and room for the legend and values."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pages.compare import figures
from pages.explore import figures as explore
from pages.figures import coverage, frame, kernels, phases, scaling
from pages.figures import parts as part_figures
from pages.figures.rows import MAX_LETTERS, chart_pixels, row_pixels, under_headings, wrap_label
from pages.kernels import part_figures as kernel_parts
from pages.roofline import figures as roofline
from pages.roofline import share_figures

#: The width that a card leaves for a chart on a page of 390 pixels.
PHONE = 330


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("small · 512 tok<br>bf16", ["small · 512 tok", "bf16"]),
        ("small · 512 tok<br>bf16 · cuda-graphs · attention sdpa",
         ["small · 512 tok · bf16", "cuda-graphs · attention sdpa"]),
        ("a-name-of-more-letters-than-a-line-has · x", ["a-name-of-more-letters-than-a-line-has", "x"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_labels_are_folded_between_their_parts(label: str, lines: list[str]) -> None:
    assert wrap_label(label).split("<br>") == lines


def test_rows_have_room_for_the_lines_of_their_labels() -> None:
    """Three lines need 15 pixels each, and rows are 8 apart."""
    assert (row_pixels(["a<br>b<br>c"] * 2, least=36), row_pixels(["a"], least=36)) == (53, 36)
    assert row_pixels(["a", "a<br>b<br>c", "a"], least=36) == 2 * 15 + 8, (
        "the neighbor of a row with one line may have three"
    )


def test_headings_are_above_the_first_row_of_their_group() -> None:
    rows = under_headings(["small<br>bf16", "small<br>bf16", "large"], ["128", "512", "128"])
    assert (rows.at, rows.headings, rows.count) == ((1, 2, 4), ((0, "small · bf16"), (3, "large")), 5)
    plain = under_headings(["", ""], ["forward", "backward"])
    assert (plain.at, plain.headings) == ((0, 1), ())


def test_a_large_legend_leaves_room_for_a_few_rows() -> None:
    """On a phone nine entries take 9 x 19 pixels and the axis 64, so two rows get 20 each. Many rows have enough
    room."""
    assert chart_pixels(2, row=27, entries=9) == 9 * 19 + 12 + 64 + 2 * 20
    assert chart_pixels(30, row=27, entries=9) == 36 + 64 + 30 * 27
    assert chart_pixels(4, row=68, entries=3, squeezed=68) == 3 * 19 + 12 + 64 + 4 * 68, (
        "labels of four lines have room"
    )


def test_peaks_of_few_cells_are_as_tall_as_their_legend_needs() -> None:
    held = {name: 2**30 for name in part_figures.CATEGORY_WORDS if name != "unknown"}
    figure = part_figures.part_bars(
        [part_figures.PeakBar(group="small", place="512", cell_id="c", parts=held, total=2**30)], state=""
    )
    entries = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert len(entries) == 10
    assert figure.layout.height == chart_pixels(2, row=27, entries=10, squeezed=24) >= 19 * 10 + 64 + 40
    assert figure.layout.legend.maxheight >= 19 * 10


def test_bars_of_single_rows_are_as_thick_as_others() -> None:
    """Rows at 1 and 3 have no neighbors, from whose distance Plotly would compute the thickness."""
    bars = [
        kernel_parts.BusyBar(group=group, place="train", cell_id=group, busy=0.5, label="+4%") for group in ("a", "b")
    ]
    figure = kernel_parts.busy_bars(bars, names=("busy", "waiting"))
    assert [(list(trace.y), trace.width) for trace in figure.data if trace.type == "bar"] == [([1, 3], 0.72)] * 2
    assert [note.text for note in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]
    assert list(figure.layout.yaxis.range) == [3.5, -0.5]


def test_values_at_the_end_of_bars_have_a_margin_of_their_own() -> None:
    """The text after the longest bar is not cut off, however narrow the chart: the margin does not depend on its
    width."""
    bar = kernels.ClassBar(place="forward", cell_id="c", parts={"matmul": 1234.5})
    figure = kernels.class_bars([bar], view="time", state="x")
    text = figure.data[-1].text[0]
    assert text.strip() == "1,230 ms"
    assert figure.layout.margin.r >= 7 * len(text.strip())
    assert figure.layout.xaxis.range[1] == pytest.approx(1234.5 * 1.02)
    used = share_figures.UsedShare(place="small", entity="bf16", cell_id="c", measured=0.5, promised=0.4)
    assert share_figures.utilization_dots([used]).layout.xaxis.range[1] == pytest.approx(0.52)


def test_names_of_kernels_are_above_their_bars() -> None:
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_execute_kernel__5x_cublas"
    rows = [kernels.NamedKernel(name=name, kernel_class="matmul", device_ms=1.0, calls=2, share=0.5)] * 2
    figure = kernels.kernel_bars(rows)
    (bars,) = figure.data
    notes = figure.layout.annotations
    assert [note.y < at - bars.width / 2 for note, at in zip(notes, bars.y, strict=True)] == [True, True]
    assert figure.layout.yaxis.showticklabels is False
    assert notes[0].text.startswith("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x1…")
    assert max(len(note.text) for note in notes) * 5.8 < PHONE + 20


def test_a_library_kernel_is_named_by_its_purpose() -> None:
    made = "cutlass_80_simt_sgemm_128x128_8x4_nt_align1"
    assert kernels.short_name(f"void cutlass::Kernel2<{made}>({made}::Params)") == made
    assert kernels.short_name("Kernel2") == "Kernel2"


def test_a_single_column_does_not_fill_the_page() -> None:
    def columns(count: int) -> float:
        tiles = [coverage.CoverageTile(size="s", context=64 * n, variant="v", ok=1, failures={}) for n in range(count)]
        return float(coverage.coverage_grid(tiles).layout.xaxis.domain[1])

    assert [columns(count) for count in (1, 2, 3, 9)] == pytest.approx([1 / 3, 2 / 3, 1, 1])


def test_a_log_axis_has_as_many_round_ticks_as_fit() -> None:
    assert frame.log_ticks(14, 800, most=5) == pytest.approx([20, 50, 100, 200, 500])
    assert frame.log_ticks(0.8, 150_000, most=4) == pytest.approx([1, 100, 10_000])
    assert frame.log_ticks(2.1, 3.4, most=6) == pytest.approx([2.5, 3])
    assert frame.log_ticks(260, 370, most=6) == pytest.approx([260, 280, 300, 320, 340, 360])
    assert frame.log_ticks(2.9, 3.1, most=6) == pytest.approx([2.9, 3, 3.1])


def test_movers_between_two_powers_of_ten_have_several_ticks() -> None:
    rows = [figures.Mover(place="large", cell_id="1", outcome="better", a=355.0, b=101.0, words="3.51× faster"),
            figures.Mover(place="small", cell_id="2", outcome="better", a=49.6, b=15.1, words="3× faster")]  # fmt: skip
    figure = figures.movers(rows, names=("fp32", "bf16"), unit="ms")
    assert list(figure.layout.xaxis.ticktext) == ["20", "50", "100", "200", "500"]


def test_names_of_roofs_say_a_unit_once() -> None:
    roofs = [
        roofline.RoofLine(entity="bf16", source="measured", flops_per_s=769e12, bytes_per_s=4e12),
        roofline.RoofLine(entity="bf16", source="datasheet", flops_per_s=990e12, bytes_per_s=4.8e12),
    ]
    figure = roofline.roofline(roofs, [], state="x")
    assert "bf16 769 of 990 TFLOP/s" in [note.text for note in figure.layout.annotations]
    roofs += [replace(roof, entity="fp32", flops_per_s=roof.flops_per_s / 15) for roof in roofs]
    notes = roofline.roofline(roofs, [], state="x").layout.annotations
    assert [note.text for note in notes] == ["bf16 769 of 990 TFLOP/s", "fp32 51.3 of 66.0"]
    assert {(note.x, note.xref, note.y, note.yref) for note in notes} == {(0, "paper", 1, "paper")}, (
        "the name is above the slope"
    )


def test_names_of_lines_are_next_to_the_plot_and_do_not_overlap() -> None:
    """A guide and three lines end close together. The compiled line has the color of its way, and no name of its
    own."""
    ways = {"naive": 10.0, "flash": 10.1, "math": 10.2, "naive · compiled": 5.0}
    points = [
        scaling.ScalingPoint(line=way, entity="naive", length=length, value=ms * length / 4096, cell_id="c",
                             dash="dash" if "compiled" in way else "solid")
        for way, ms in ways.items() for length in (256, 1024, 4096, 8192, 16384, 65536)
    ]  # fmt: skip
    figure = scaling.scaling_lines(points, axis=scaling.Axis(x="x", y="y", unit="ms", state="x"))
    notes = [note for note in figure.layout.annotations if note.xref == "paper"]
    assert [(note.text, note.x, note.xanchor) for note in notes] == [
        (way, 1, "left") for way in ("∝ S", "naive", "flash", "math")
    ]
    low, high = figure.layout.yaxis.range
    assert min(above.y - below.y for below, above in pairwise(notes)) * (420 - 60) / (high - low) >= 13, (
        "names are at least 13 pixels apart"
    )
    assert list(figure.layout.xaxis.ticktext) == ["256", "1K", "4K", "16K", "64K"]


def test_no_label_is_wider_than_half_a_phone() -> None:
    """A letter of 12 pixels height is about 5.8 pixels wide."""
    assert MAX_LETTERS * 5.8 <= PHONE / 2


def test_variants_of_a_size_are_below_its_cells() -> None:
    """Cells are in the order of their contexts, and each size has one heading."""
    cells = [("small · attention sdpa", 128), ("small", 128), ("large", 128), ("small", 512)]
    bars = [phases.PhaseBar(size=size, context=context, phase="forward", cell_id=f"{at}", median_ms=at + 1.0)
            for at, (size, context) in enumerate(cells)]  # fmt: skip
    figure = phases.phase_bars(bars, view="time")
    assert [(note.y, note.text) for note in figure.layout.annotations] == [
        (0, "<b>small</b>"), (3, "<b>small · attention sdpa</b>"), (5, "<b>large</b>"),
    ]  # fmt: skip
    assert sorted(zip(figure.data[0].y, figure.data[0].x, strict=True)) == [(1, 2.0), (2, 4.0), (4, 1.0), (6, 3.0)]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_intervals_are_not_cut_off(scale: explore.Scale) -> None:
    marks = [
        explore.PlotMark(x=64, y=100.0, low=90.0, high=140.0, cell_id="1"),
        explore.PlotMark(x=128, y=110.0, cell_id="2"),
    ]
    axis = explore.explore_chart(marks, explore.Axes(x="Context", y="Median", unit="ms", scale=scale)).layout.yaxis
    top = 10 ** axis.range[1] if scale == "log" else axis.range[1]
    assert top == pytest.approx(140 * 1.05)
