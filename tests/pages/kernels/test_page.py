"""Kernels as its readers see it: a real server, a real browser, rows computed by hand (`tests.synthetic.traces`).

A training step in fp32 takes 50 ms in kernels: forward 20 (13 of them matrix products), backward 24 (18 of them) and
optimizer 6. In bf16 matrix products take half as long, and 3 ms of casts are added. Every step takes 2 ms more.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.figures.colors import PALETTE, color_of
from pages.figures.kernels import short_name, short_names
from pages.kernels.part_figures import waterfall
from pages.ui.filters import run_name
from runner.analysis.compare.differences import REST, changes
from runner.analysis.costs.softmax import softmax_flops
from runner.importers.files import import_file
from runner.results.kernels import CLASS_WORDS
from runner.schema import KernelClass, ProfileCell
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from runner.store.read.kernels import load_kernels, load_parts, load_ranges, load_traces
from tests.browser import Site, fits_sideways, opened, said, unfold
from tests.browser import traces as drawn
from tests.command import asked
from tests.synthetic import rows
from tests.synthetic import traces as made
from tests.synthetic.nsys import made as report
from tests.synthetic.traces import ADAM, GEMM, GEMM_BACK, HTML, MUL, profiled

FP32, BF16 = (f"toy-64 · 128 · train · {precision} · eager" for precision in ("fp32", "bf16"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file into which the trace was imported first, so that the latest run is of the machine with measured
    cells."""
    path = tmp_path_factory.mktemp("kernels") / "results.duckdb"
    export = report(path.with_name("report.sqlite"))
    export.range(5000, 5400, HTML)
    export.kernel(5010, f"void {HTML}<int>(x)", runs=6000, takes=140)
    import_file(export.close(), db=path)
    of = rows.run(device="cuda", device_name="Example GPU")
    steps = rows.run(device="cuda", device_name="Example GPU", label="no kernels")
    rows.store(path, steps, [rows.ok(steps, rows.asked(precision=precision)) for precision in ("fp32", "bf16")])
    oom = {"status": "oom", "failed_phase": "backward", "message": "tried to allocate 2.5 GiB"}
    cells = [profiled(of, mode="inference"), profiled(of), profiled(of, precision="bf16")]
    return made.store(path, [*cells, profiled(of, context=4096, values=oom)])


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield f"{found}/kernels"


@pytest.fixture(scope="module")
def otherwise(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page with every chooser set by the link."""
    chosen = f"phases-in=share&kernel-phase=forward&difference-by=kernel&against={BF16.replace(' ', '+')}"
    with opened(browser, f"{address}?{chosen}") as visit:
        yield visit.page


@pytest.fixture(scope="module")
def at_kernels(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page as it opens; tests that only read it share it."""
    with opened(browser, f"{address}?against={BF16.replace(' ', '+')}") as visit:
        yield visit.page


def test_phases_by_class(at_kernels: Page, otherwise: Page) -> None:
    bars = drawn(at_kernels, "kernel-classes")
    assert bars["matrix products"]["x"] == pytest.approx([13, 18, 0, 31])
    assert bars["softmax"]["x"] == pytest.approx([4, 6, 0, 10])
    assert bars["elementwise"]["x"] == pytest.approx([3, 0, 0, 3])
    assert bars["optimizer"]["x"] == pytest.approx([0, 0, 6, 6])
    rows = at_kernels.locator(".st-key-card-kernel-classes .ytick").all_text_contents()
    assert rows == ["forward", "backward", "optimizer", "whole step"]
    words = said(at_kernels)
    assert f"In {FP32}, matrix products take 62% of the 50.0 ms that the kernels of a profiled step take" in words
    assert "Without the profiler the step takes 52.0 ms." in words
    assert "; then come softmax 20%, optimizer 12%, elementwise 6%." in words
    assert "By phase: forward 40%, backward 48%, optimizer 12%." in words
    assert at_kernels.get_by_test_id("stException").count() == 0
    shares = drawn(otherwise, "kernel-classes")["matrix products"]["x"]
    assert shares == pytest.approx([65, 75, 0, 62])


def test_top_kernels(at_kernels: Page, otherwise: Page) -> None:
    """Forward: 10 calls of one kernel take 13 of 20 ms. With the backward: 12 calls of another take 18 of 44."""
    words = said(at_kernels)
    assert (f"In the forward pass {GEMM} takes the most time: 65% in 10 calls. In forward and backward together it is "
            f"another, {GEMM_BACK}: 41% in 12 calls.") in words  # fmt: skip
    bars = drawn(at_kernels, "kernels")
    assert bars["matrix products"]["x"] == pytest.approx([18, 13])
    assert bars["matrix products"]["text"] == ["36% · 12×", "26% · 10×"]
    bars = drawn(otherwise, "kernels")
    assert {name: bar["x"] for name, bar in bars.items()} == {
        "matrix products": pytest.approx([13]), "softmax": pytest.approx([4]), "elementwise": pytest.approx([3])
    }  # fmt: skip
    assert bars["softmax"]["text"] == ["20% · 2×"]


def test_inside_attention(at_kernels: Page) -> None:
    """2 layers × batch 4 × 2 heads × 128² weights × 5 = 1.31 MFLOP of softmax compared with 2 MFLOP, and 4 ms with
    5."""
    bars = drawn(at_kernels, "attention-ranges")
    assert bars["share of the time"]["y"] == ["scores", "mask", "softmax", "product with values"]
    assert bars["share of the time"]["x"] == pytest.approx([20, 10, 40, 30])
    flops = 2 * 4 * 2 * 128**2 * 5
    whole = 2_000_000 + flops
    assert bars["share of the FLOPs"]["x"] == pytest.approx([1e8 / whole, 0, flops * 100 / whole, 1e8 / whole])
    assert (f"In {FP32}, softmax takes 4.00 ms and the matrix products around it 5.00 ms: 80% of their time for "
            "66% of their FLOPs (1.31 MFLOP against 2.00 MFLOP). A FLOP of softmax takes 1.22× as long as one of a "
            "matrix product.") in said(at_kernels)  # fmt: skip


def test_matmul_share_and_busy(at_kernels: Page) -> None:
    """Inference: 13 of 20 ms; training: 31 of 50; in bf16 15.5 of 37.5. Imported: 240 of 380 µs."""
    bars = drawn(at_kernels, "matmul-share")
    assert bars["matrix products"]["x"] == pytest.approx([65, 62, 100 * 15.5 / 37.5, 0, 100 * 240 / 380])
    assert bars["copies and casts"]["x"] == pytest.approx([0, 0, 8, 0, 100 * 10 / 380])
    assert " ✕ out of memory" in {text for trace in bars.values() for text in trace["text"]}
    busy = drawn(at_kernels, "busy")["device busy"]["x"]
    assert busy == pytest.approx([100 * 20 / 22, 100 * 50 / 52, 100 * 37.5 / 39.5])
    words = said(at_kernels)
    assert ("From inference to a whole training step, matrix products go from 65% to 62% of the time in "
            "toy-64 · 128 · fp32 · eager.") in words  # fmt: skip
    assert f"largest in toy-64 · 128 · inference · fp32 · eager (65%) and smallest in {BF16} (41%)" in words
    assert f"The GPU works 96% of the step of {FP32}, but only 91% of that of toy-64 · 128 · inference" in words
    assert "Profiling changed the time of these steps by +10% to +10%" in words


def test_the_waterfall_sums_to_the_difference(at_kernels: Page, otherwise: Page) -> None:
    """From 39.5 ms to 52: matrix products take 15.5 ms more, casts 3 less, and each bar starts where the last one
    ended."""
    (bars, _) = drawn(at_kernels, "difference").values()
    assert bars["base"] == pytest.approx([0, 39.5, 55, 0])
    assert bars["x"] == pytest.approx([39.5, 15.5, -3, 52])
    assert bars["base"][-2] + bars["x"][-2] == pytest.approx(bars["x"][-1])
    longer = f"A step of {FP32} takes 52.0 ms, one of {BF16} 39.5 ms: 12.5 ms longer."
    assert f"{longer} Most of it: matrix products, 15.5 ms more." in said(at_kernels)
    (bars, _) = drawn(otherwise, "difference").values()
    assert bars["x"] == pytest.approx([39.5, 9, 6.5, -3, 52])
    assert sum(bars["x"][:-1]) == pytest.approx(52)


@pytest.mark.soak
def test_choosers_and_filters_are_in_the_link(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}?precision=bf16") as visit:
        expect(visit.page.get_by_text(f"In {BF16}, matrix products take 41%")).to_be_visible()
        assert len(drawn(visit.page, "matmul-share")["matrix products"]["x"]) == 2  # two cells, one of them imported
        visit.page.get_by_role("radio", name="backward").first.click()
        visit.page.wait_for_function("location.search.includes('kernel-phase=backward')")
        expect(visit.page.get_by_role("heading", name="Top kernels: backward")).to_be_visible()
    with opened(browser, f"{address}?trace=gone&kernel-phase=never") as visit:
        expect(visit.page.get_by_text("Trace: the link asks for “gone”, which is not here.")).to_be_visible()
        expect(visit.page.get_by_text("Phase: the link asks for “never”")).to_be_visible()


@pytest.mark.soak
def test_an_imported_trace(browser: Browser, address: str) -> None:
    """It can be chosen like the others and is marked. Its names are plain text, its FLOPs are unknown, and its sum is
    that of its kernels."""
    with opened(browser, f"{address}?trace=report.sqlite+·+imported&difference-by=kernel") as visit:
        words = said(visit.page)
        assert "In report.sqlite · imported, matrix products take 63% of the 0.380 ms that the kernels of" in words
        assert "phase unknown 21%" in words
        assert "softmax takes 0.0200 ms and the matrix products around it 0.120 ms: 17% of their time." in words
        assert "FLOPs of this trace are not known." in words
        assert "The kernels of report.sqlite · imported take 0.380 ms" in words
        labels = visit.page.locator(".st-key-card-kernels .annotation-text").all_text_contents()
        assert any("<img src=x" in label for label in labels)
        assert visit.page.locator("img[src='x']").count() == 0
        assert visit.page.title() != "owned"


def test_the_command_measures_these_rows(at_kernels: Page) -> None:
    said(at_kernels)
    unfold(at_kernels, "matmul-share")
    at_kernels.locator(".st-key-card-matmul-share").get_by_role("button", name="Share").click()
    block = at_kernels.get_by_test_id("stPopoverBody").locator("code").nth(1).inner_text()
    commands = block.strip().split("\n\n")
    assert all(command.startswith("python -m runner sweep --experiment kernels --fresh ") for command in commands)
    assert asked(commands, "--contexts") == {"128", "4096"}
    assert asked(commands, "--modes") == {"inference", "train"}


def test_on_a_phone(at_kernels: Page) -> None:
    at_kernels.set_viewport_size({"width": 390, "height": 844})
    said(at_kernels)
    assert fits_sideways(at_kernels)


@pytest.mark.soak
def test_nothing_measured_yet(browser: Browser, address: str, file: Path) -> None:
    """A run without kernels is chosen in the sidebar."""
    run = next(run for run in load_contents(file).runs if run.label == "no kernels")
    with opened(browser, f"{address}?run={quote_plus(run_name(run))}") as visit:
        expect(visit.page.locator("code").filter(has_text="--experiment kernels")).to_be_visible()
        expect(visit.page.locator("code").filter(has_text="runner import report.sqlite")).to_be_visible()


# ------------------------------------------------------------------------------------------------ queries and pictures


def test_queries(file: Path, tmp_path: Path) -> None:
    """Ranges are summed by class, kernels over their ranges, and choosing a run also selects among imported traces."""
    held = load_traces(file, Selection())
    assert [trace.status for trace in held] == ["ok", "ok", "ok", "oom", "ok"]
    train, imported = held[1], held[-1]
    assert (imported.is_imported, imported.title, imported.device, imported.steps) == (True, "report.sqlite", "cuda", 2)
    classes = {
        (part.phase, part.kernel_class): (part.calls, part.device_ms) for part in load_parts(file)[train.cell_id]
    }
    assert classes["forward", "matmul"] == (10, 13)
    assert classes["optimizer", "optimizer"] == (4, 6)
    inside = [part for part in load_ranges(file, train.cell_id) if part.scope == "attention softmax"]
    assert [(part.phase, part.device_ms, part.flops) for part in inside] == [
        ("backward", 6, None),
        ("forward", 4, None),
    ]
    first, second, *_ = load_kernels(file, train.cell_id)
    assert (first.kernel, first.calls, first.flops) == (GEMM_BACK, 12, 12_000_000)
    assert (second.kernel, second.phase, second.calls, second.scope) == (GEMM, "forward", 10, "feed-forward")
    assert [trace.title for trace in load_traces(file, Selection(run=imported.run_id))] == ["report.sqlite"]
    assert len(load_traces(file, Selection(run=train.run_id))) == 4
    assert [trace.is_imported for trace in load_traces(file, Selection(machine="another"))] == [True]
    again = shutil.copy(file, tmp_path / "results.duckdb")
    later = rows.run(device="cuda", device_name="Example GPU")
    made.store(Path(again), [profiled(later, values={"round": number}) for number in (0, 1)])
    known = [trace.run_id for trace in load_traces(Path(again), Selection())]
    assert known.count(later.run_id) == 1, "one round of the latest run"


def test_every_class_has_a_description_and_a_color() -> None:
    assert list(CLASS_WORDS) == list(get_args(KernelClass))
    assert all(color_of(name) in PALETTE for name in CLASS_WORDS)


def test_flops_of_softmax() -> None:
    """3 layers × batch 5 × 2 heads × 10² weights: 5 each in forward, 4 in backward, 9 if the forward is recomputed."""
    shape: Any = {"d_model": 64, "d_ff": 192, "layers": 3, "heads": 2, "batch": 5, "context": 10}
    cell = ProfileCell(**shape, mode="train", precision="fp32")
    phases = ("forward", "loss", "backward", "optimizer")
    assert [softmax_flops(cell, phase=phase) for phase in phases] == [15_000, 0, 12_000, 0]
    assert softmax_flops(replace(cell, checkpoint_blocks=1), phase="backward") == 27_000


def test_changes_add_up() -> None:
    """Of four parts the two largest changes are shown and the others summed. 10 + 1 + 2 + 0 = 13 before, 24 after."""
    found = changes({"a": 10.0, "b": 1.0, "c": 2.0}, {"a": 20.0, "c": 1.5, "d": 2.5}, most=2)
    assert [(change.name, change.difference_ms) for change in found] == [("a", 10), ("d", 2.5), (REST, -1.5)]
    assert sum(change.before_ms for change in found) == 13
    assert sum(change.after_ms for change in found) == 24


def test_the_axis_of_a_waterfall_starts_near_small_changes() -> None:
    figure = waterfall([("more", "", 2.0), ("less", "matmul", -1.0)], ends=(("a", 100.0), ("b", 101.0)), state="")
    low, _ = figure.layout.xaxis.range
    assert 90 < low < 100
    assert "does not begin at 0" in figure.layout.xaxis.title.text
    assert list(figure.data[0].base)[1:3] == [100.0, 102.0]
    with pytest.raises(AssertionError, match="is not"):
        waterfall([("more", "", 2.0)], ends=(("a", 100.0), ("b", 101.0)), state="")


@pytest.mark.parametrize(
    ("name", "short"),
    [(GEMM, GEMM), (MUL, "vectorized_elementwise_kernel · Binary · Mul"),
     (ADAM, "multi_tensor_apply_kernel · FusedAdamMath"), ("aten::mm", "aten::mm"),
     ("[CUDA memcpy Device-to-Device]", "[CUDA memcpy Device-to-Device]"), ("", "")],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
    assert short_names([name, name])[1] == f"{short} (2)"
