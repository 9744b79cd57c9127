"""Attention and Peak memory as their readers see them: a real server, a real browser, rows computed by hand.

Forward attention at 1024 tokens takes 4 ms if naive and 1 ms if fused, a quarter of that at half the length, and
backward twice as long. The peak is three naive squares of 8 S² float32 numbers. Peak memory has four cells of toy-64
with parts in MiB.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.attention.answers import answer
from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.store.queries.attention import load_attention, load_frontiers
from runner.store.queries.memory import load_peaks, load_saved_by_operation
from runner.store.queries.selection import Selection
from tests.browser import Site, fits_sideways, opened, said, traces
from tests.command import asked
from tests.e2e.test_app import TITLES
from tests.synthetic import memory_rows, rows
from tests.synthetic.memory_rows import GIB, KIB, MIB, Tables, attention, frontier, memory, saved

LENGTHS = (512, 1024, 2048)
#: MiB of the peak by context and precision.
HELD: dict[tuple[int, str], dict[str, float]] = {
    (32, "fp32"): {"parameters": 4, "optimizer_state": 8, "activations": 1},
    (32, "bf16"): {"parameters": 4, "optimizer_state": 8, "activations": 0.5, "autocast_copies": 2},
    (128, "fp32"): {"parameters": 4, "optimizer_state": 8, "activations": 12, "temporaries": 2},
    (128, "bf16"): {"parameters": 4, "optimizer_state": 8, "activations": 6, "autocast_copies": 2, "temporaries": 1},
}
CHECKPOINTED = {"parameters": 4, "optimizer_state": 8, "activations": 6, "temporaries": 2}
#: KiB that operations of the first block save; the last shares its memory with an earlier one.
KEPT = [("aten::mul", "blocks.0.feed_forward", 96), ("aten::_softmax", "blocks.0.attention", 256),
        ("aten::mul", "blocks.0.feed_forward", 96), ("aten::bmm", "blocks.0.attention", 64),
        ("aten::mm", "blocks.0.attention.query", 32), ("aten::pow", "blocks.0.attention_norm", 16),
        ("aten::rsqrt", "blocks.0.attention_norm", 8), ("aten::mm", "blocks.0.attention.key", 0)]  # fmt: skip


def in_bytes(parts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(size * MIB) for name, size in parts.items()}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    of = rows.run()
    cells: list[Tables] = [
        attention(of, seq_len=length, implementation=way) for way in ("naive", "sdpa-flash") for length in LENGTHS
    ]
    cells += [attention(of, seq_len=1024, backend="compiled"), attention(of, seq_len=1024, d_head=16)]
    ran_out = {"asked_bytes": 8 * GIB, "in_use_bytes": 12 * GIB, "device_bytes": 16 * GIB, "failed_phase": "backward"}
    cells += [attention(of, seq_len=16384, status="oom", values=ran_out)]
    cells += [attention(of, seq_len=512, implementation="sdpa-cudnn", status="skipped",
                        values={"message": "needs CUDA"})]  # fmt: skip
    cells += [frontier(of, largest=2048), frontier(of, largest=16384, implementation="sdpa-flash")]
    for (context, precision), parts in HELD.items():
        cell = memory(
            of, in_bytes(parts), context=context, precision=precision, values={"block_saved_bytes": 568 * KIB}
        )
        cells.append(saved(cell, [(operation, module, size * KIB) for operation, module, size in KEPT]))
    off = {"predicted_peak_bytes": 10 * MIB}
    cells += [memory(of, in_bytes(CHECKPOINTED), checkpoint_blocks=1, values=off)]
    return memory_rows.store(tmp_path_factory.mktemp("memory") / "results.duckdb", cells)


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


@pytest.fixture(scope="module")
def at_attention(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page as it opens; tests that only read it share it."""
    with opened(browser, f"{address}/attention") as visit:
        yield visit.page


@pytest.fixture(scope="module")
def at_peak(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, f"{address}/peak-memory") as visit:
        yield visit.page


# ------------------------------------------------------------------------------------------------------------ attention


@pytest.mark.soak
def test_time_against_length(at_attention: Page) -> None:
    drawn = traces(at_attention, "attention-time")
    assert drawn["naive"]["x"] == list(LENGTHS)
    assert drawn["naive"]["y"] == pytest.approx([3, 12, 48])
    assert drawn["sdpa-flash"]["y"] == pytest.approx([0.75, 3, 12])
    assert drawn["naive · compiled"]["y"] == pytest.approx([6])
    assert drawn["∝ S²"]["y"] == pytest.approx([3, 48])
    assert drawn["∝ S"]["y"] == pytest.approx([3, 12])
    assert drawn["out of memory"]["x"] == [16384]
    assert drawn["out of memory"]["y"][0] > 48
    assert "from 512 to 2,048 tokens naive as S²·⁰⁰, sdpa-flash as S²·⁰⁰" in said(at_attention)
    assert at_attention.get_by_test_id("stException").count() == 0


def test_fragmented_memory_is_explained(tmp_path: Path) -> None:
    """96 × 12,288² bytes are 13.5 of 16 GiB; 6 were in use, and the requested 7 were free only in pieces."""
    of, path = rows.run(), tmp_path / "results.duckdb"
    lost = {"asked_bytes": 7 * GIB, "in_use_bytes": 6 * GIB, "device_bytes": 16 * GIB, "failed_phase": "backward"}
    memory_rows.store(path, [attention(of, seq_len=512), attention(of, seq_len=12288, status="oom", values=lost)])
    assert "it would need 13.5 GiB of the 16.0 GiB there are, but 7.00 GiB of it were not free in one piece" in answer(
        load_attention(path, Selection())
    )


def test_memory_against_length(at_attention: Page) -> None:
    """Naive: 3 × 8 × S² × 4 bytes; fused: 8 × 8 × S × 64 × 4. The cross is above the line at 16 GiB."""
    drawn = traces(at_attention, "attention-memory")
    assert drawn["naive"]["y"] == [96 * length**2 for length in LENGTHS]
    assert drawn["sdpa-flash"]["y"] == [16384 * length for length in LENGTHS]
    assert drawn["out of memory"]["y"] == [24 * GIB]
    card = at_attention.locator(".st-key-card-attention-memory")
    expect(card.get_by_text("the device holds 16.0 GiB")).to_be_visible()
    words = said(at_attention)
    assert "from 512 to 2,048 tokens naive as S²·⁰⁰, sdpa-flash as S¹·⁰⁰" in words
    assert "naive takes 48.0 ms forward and backward and 384 MiB at its peak" in words
    assert "sdpa-flash, the fastest alternative, 12.0 ms forward and backward and 32.0 MiB at its peak (4.00×" in words
    assert "runs out at 16,384 tokens: it would need 24.0 GiB of the 16.0 GiB there are" in words
    assert "Outputs and gradients of 7 of 9 cells were compared with float64 results: all agree." in words
    assert "1 of 9 cells have neither a time nor a size" in words


def test_speedups(at_attention: Page) -> None:
    fused, compiled = traces(at_attention, "fused-speedup"), traces(at_attention, "compiled-speedup")
    assert all(fused[phase]["x"] == pytest.approx([4, 4, 4]) for phase in ("forward", "backward", "whole step"))
    assert compiled["whole step"]["x"] == pytest.approx([2])
    words = said(at_attention)
    assert "Whether sdpa-flash is faster than naive forward and backward is undecided: 4.00× faster" in words
    assert "geometric mean of 3 pairs, 4.00× to 4.00×); none is significantly faster or slower" in words
    assert "3 pairs have no interval: measured in too few processes" in words
    assert "Left out: 2 without a partner or a result" in words  # d 16, and the cell that ran out of memory


def test_the_frontier_and_the_worked_sum(at_attention: Page) -> None:
    """Naive at 16,384: three squares of 8 GiB, the mask of 256 MiB, six vectors of 32 MiB, the root of d."""
    drawn = traces(at_attention, "frontier")
    fits = [x for x in drawn["fits"]["x"] if x is not None]
    assert fits[1::2] == [2048, 16384]
    assert [x for x in drawn["does not fit"]["x"] if x is not None][::2] == [2112, 16448]
    assert drawn["predicted"]["x"] == [2112, 16448]
    assert drawn["out of memory"]["x"] == [16384]
    bars = traces(at_attention, "worked-sum")["tensors"]
    assert bars["x"][-1] == pytest.approx(3 * 8 + (256 + 6 * 32) / 1024)
    assert bars["base"][-2] + bars["x"][-2] == pytest.approx(bars["x"][-1])
    words = said(at_attention)
    assert "sdpa-flash fits 16,384 tokens, naive 2,048: 8.00× as long. Predictions were off by at most 3%." in words
    assert "naive over 16,384 tokens needs 24.4 GiB; 3 tensors of B × S² numbers, up to 8.00 GiB each" in words
    assert "There are 16.0 GiB: with 12.0 GiB in use, 8.00 GiB more were refused in backward." in words


@pytest.mark.soak
def test_choosers_are_in_the_link(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/attention?d-head=16") as visit:
        assert traces(visit.page, "attention-time")["naive"]["x"] == [1024]
        visit.page.get_by_role("radio", name="64").click()
        visit.page.wait_for_function("!location.search.includes('d-head=16')")
        expect(visit.page.locator(".st-key-card-attention-time .scatterlayer .trace.scatter")).not_to_have_count(1)
    with opened(browser, f"{address}/attention?phase=forward&d-head=99&dtype=fp8") as visit:
        assert traces(visit.page, "attention-time")["naive"]["y"] == pytest.approx([1, 4, 16])
        expect(visit.page.get_by_text("Head width: the link asks for “99”, which is not here.")).to_be_visible()
        expect(visit.page.get_by_text("Precision: the link asks for “fp8”, which is not here.")).to_be_visible()


def test_the_command_measures_these_rows(at_attention: Page) -> None:
    at_attention.locator(".st-key-card-attention-time").get_by_role("button", name="Share").click()
    block = at_attention.get_by_test_id("stPopoverBody").locator("code").nth(1).inner_text()
    commands = block.strip().split("\n\n")
    assert all(command.startswith("python -m runner sweep --experiment attention --fresh ") for command in commands)
    assert asked(commands, "--seq-lens") == {"512", "1024", "2048", "16384"}


# ---------------------------------------------------------------------------------------------------------- peak memory


def test_parts_of_the_peak(at_peak: Page) -> None:
    drawn = traces(at_peak, "peak-parts")
    assert drawn["parameters"]["x"] == pytest.approx([4, 4, 4, 4])
    assert drawn["activations"]["x"] == pytest.approx([1, 0.5, 12, 6])
    assert drawn["autocast copies"]["x"] == pytest.approx([2, 2])
    assert "gradients" not in drawn
    lines = traces(at_peak, "peak-context")
    assert lines["toy-64 fp32"]["y"] == [13 * MIB, 26 * MIB]
    words = said(at_peak)
    assert ("The largest peak here, toy-64 · 128 tok · fp32, is 26.0 MiB in the backward phase: activations 46%, "
            "optimizer state 31%, parameters 15%.") in words  # fmt: skip
    assert at_peak.get_by_test_id("stException").count() == 0


def test_bf16_compared_with_fp32(at_peak: Page) -> None:
    """32 tokens: 13 compared with 14.5 MiB. 128 tokens: 26 compared with 21 MiB."""
    drawn = traces(at_peak, "peak-precision")
    assert drawn["fp32"]["x"] == [13 * MIB, 26 * MIB]
    assert drawn["bf16"]["x"] == [14.5 * MIB, 21 * MIB]
    words = said(at_peak)
    assert "bf16 needs more memory than fp32 in 1 of 2 pairs." in words
    assert ("toy-64 at 32 tokens needs 1.50 MiB more (1.12×): autocast keeps a 2-byte copy of each weight matrix, "
            "2.00 MiB, and all else shrinks by 512 KiB.") in words  # fmt: skip
    assert "toy-64 at 128 tokens needs 5.00 MiB less (0.808×)" in words


def test_predictions_saved_tensors_and_checkpointing(at_peak: Page) -> None:
    """The checkpointed cell has 20 MiB where 10 were predicted. One block saves 568 KiB, 544 of them in five
    entries."""
    dots = traces(at_peak, "peak-predicted")["fp32"]
    assert sorted(zip(dots["x"], dots["y"], strict=True))[0] == (10 * MIB, 20 * MIB)
    kept = traces(at_peak, "kept").popitem()[1]
    assert kept["y"][:2] == ["softmax in attention", "mul in feed_forward"]
    assert kept["x"] == pytest.approx([256, 192, 64, 32, 16, 8])
    held = traces(at_peak, "checkpointing")["activations"]
    assert held["x"] == pytest.approx([12, 6])
    words = said(at_peak)
    assert (
        "4 of 5 are within 2%. The largest deviation is 2.00×, for toy-64 · checkpointing 1 · 128 tok · fp32." in words
    )
    assert "keeps 568 KiB for backward; its five largest contributors hold 99% of that." in words
    assert "One residual stream is 128 KiB, as B·T·d·bytes: 4 × 128 × 64 × 4 bytes = 128 KiB." in words
    assert "Recomputing every block lowers the peak of toy-64 · 128 tok · fp32 from 26.0 MiB to 20.0 MiB" in words


def test_on_a_phone(at_attention: Page, at_peak: Page) -> None:
    for page in (at_attention, at_peak):
        page.set_viewport_size({"width": 390, "height": 844})
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
        said(page)
        assert fits_sideways(page)


def test_nothing_measured_yet(tmp_path: Path) -> None:
    """For a file with only steps, each page of memory says how to measure its rows."""
    of = rows.run()
    path = rows.store(tmp_path / "results.duckdb", of, [rows.ok(of, rows.asked())])
    for address, experiment in (("attention", "attention"), ("peak-memory", "memory"), ("memory-timeline", "memory")):
        shown = [(node.type, str(getattr(node, "value", ""))) for node in nodes(Visits(path).visit(address, {}).main)]
        assert ("title", TITLES[address]) in [(kind, plain(text)) for kind, text in shown]
        assert any(kind == "code" and f"--experiment {experiment}" in text for kind, text in shown)
    assert any("No timeline is recorded in this file." in text for _, text in shown)


# -------------------------------------------------------------------------------------------------------------- queries


def test_the_latest_run_counts_and_rounds_pool(tmp_path: Path) -> None:
    """Of two runs the later counts; rounds of 12 and 48 ms have a geometric mean of 24; a cell with less effort does
    not count."""
    old, new = sorted((rows.run(), rows.run()), key=lambda run: run.run_id)
    stale, short = attention(old, seq_len=1024), attention(new, seq_len=1024, max_steps=10)
    rounds = [attention(new, seq_len=1024, values={"round": number}) for number in (0, 1)]
    for phase, timing in enumerate(rounds[1]["timings"]):
        object.__setattr__(timing, "median_ms", (12, 24, 48, 48)[phase])
    path = memory_rows.store(tmp_path / "results.duckdb", [stale, short, *rounds])
    (cell,) = load_attention(path, Selection())
    assert cell.cell.max_steps == 100
    assert cell.times["forward_backward"].median_ms == pytest.approx(24)
    assert cell.times["step"].step.rounds == 2
    assert len(load_attention(path, Selection(run=old.run_id))) == 1
    assert load_attention(path, Selection(machine="another")) == []


def test_the_frontier_with_the_smallest_step_counts(tmp_path: Path) -> None:
    """A later search in steps of 1,024 tokens is less precise than the first in steps of 64; another in steps of 64
    replaces it."""
    runs = [rows.run(run_id=UUID(int=number)) for number in (1, 2, 3)]
    looks = [frontier(of, largest=largest, step=step)
             for of, largest, step in zip(runs, (2112, 2048, 2176), (64, 1024, 64), strict=True)]  # fmt: skip
    first = memory_rows.store(tmp_path / "first.duckdb", looks[:2])
    assert [row.largest for row in load_frontiers(first, Selection())] == [2112]
    every = memory_rows.store(tmp_path / "every.duckdb", looks)
    assert [row.largest for row in load_frontiers(every, Selection())] == [2176]


def test_memory_rows(file: Path) -> None:
    """A part that was not counted is None. An operation's tensors are summed, and those of one storage count once."""
    found = load_peaks(file, Selection())
    assert [(cell.cell.context, cell.cell.precision) for cell in found][:2] == [(32, "fp32"), (32, "bf16")]
    assert found[0].parts["fragmentation"] is None
    assert (found[0].parts["activation"], found[0].phases) == (MIB, {"backward": 13 * MIB})
    kept = load_saved_by_operation(file, found[0].cell_id)
    assert [(item.operation, item.tensors, item.kept_bytes) for item in kept[:2]] == [
        ("aten::_softmax", 1, 256 * KIB),
        ("aten::mul", 2, 192 * KIB),
    ]
    assert sum(item.kept_bytes for item in kept) == 568 * KIB
    assert [row.largest for row in load_frontiers(file, Selection())] == [2048, 16384]
