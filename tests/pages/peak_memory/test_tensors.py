"""Predicted and measured bytes as a reader sees them: the parts of a peak, and the tensors of a block and of attention.

The rows are synthetic, of a card called NVIDIA H200; the predictions for CUDA are computed by hand next to them.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from runner.schema import AttentionRow, SavedTensorRow
from tests.browser import Site, opened, said, traces
from tests.synthetic import memory_rows, rows
from tests.synthetic.memory_rows import GIB, KIB, MIB, attention, memory, saved

#: KiB that the first tensors of a block save, for 4 × 128 tokens, 64 wide: N d 4 bytes, N 4 bytes, twice N d 4 bytes.
SEEN = [("aten::pow", 128), ("aten::rsqrt", 2), ("aten::mul", 256)]
#: Bytes that naive attention saves for 8 × 1024 tokens, 64 wide, in float32; 512 instead of the mask's S² bytes.
ATTENDED = [("queries", 2 * MIB), ("keys", 2 * MIB), ("values", 2 * MIB), (None, 32 * MIB), (None, 512)]


@pytest.fixture(scope="module")
def on_an_h200(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[str]:
    """Yields the address over a cell of toy-64 whose optimizer state is twice what it should be and whose parts sum to
    8 MiB more than its peak; attention that ran, and attention that did not fit."""
    of = rows.run(device="cuda", device_name="NVIDIA H200", device_memory_bytes=140 * GIB)
    parts = {"parameters": 1_475_840, "optimizer_state": 4 * 1_475_840, "workspace": 64 * MIB, "rounding": 4 * MIB}
    less = {"peak_allocated_bytes": sum(parts.values()) - 8 * MIB, "residual_bytes": -8 * MIB,
            "block_saved_bytes": 386 * KIB}  # fmt: skip
    step = saved(memory(of, parts, values=less),
                 [(operation, "blocks.0.attention_norm", size * KIB) for operation, size in SEEN])  # fmt: skip
    attended, lost = attention(of, seq_len=1024), attention(of, seq_len=65536, status="oom")
    (row,) = attended["attention"]
    assert isinstance(row, AttentionRow)
    kept = [
        SavedTensorRow(run_id=row.run_id, cell_id=row.cell_id, position=position, operation="aten::bmm", tensor=tensor,
                       shape="8×1024×64", dtype="float32", storage_bytes=size)
        for position, (tensor, size) in enumerate(ATTENDED)
    ]  # fmt: skip
    cells = [step, {**attended, "saved_tensors": kept}, lost]
    with site.showing(memory_rows.store(tmp_path_factory.mktemp("h200") / "results.duckdb", cells)) as found:
        yield found


@pytest.mark.soak
def test_parts_and_tensors_with_their_formulas(browser: Browser, on_an_h200: str) -> None:
    with opened(browser, f"{on_an_h200}/peak-memory") as visit:
        page = visit.page
        bars = traces(page, "peak-parts")
        assert (bars["unexplained"]["x"], bars["rounding"]["x"]) == ([-8], [4])
        assert "(parts are 8.00 MiB more)" in bars["trace 5"]["text"][0]
        drawn = traces(page, "part-pairs")
        assert drawn["measured"]["x"] == [1_475_840, 4 * 1_475_840, 64 * MIB, 4 * MIB]
        assert {1_475_840, 2 * 1_475_840, 64 * MIB} < set(drawn["predicted"]["x"])
        card = page.locator(".st-key-card-part-pairs")
        expect(card.get_by_text("5.63 MiB · 2.00×")).to_be_visible()
        expect(card.get_by_text("64.0 MiB", exact=True)).to_be_visible()
        expect(card.get_by_text("4.00 MiB · not predicted")).to_be_visible()
        drawn = traces(page, "block-tensors")
        assert drawn["measured"]["x"] == [size * KIB for _, size in SEEN]
        assert drawn["predicted"]["x"][:3] == [128 * KIB, 2 * KIB, 128 * KIB]
        expect(page.locator(".st-key-card-block-tensors").get_by_text("256 KiB · 2.00×")).to_be_visible()
        assert "2 of 18 tensors are as predicted to the byte; together 386 KiB" in said(page)


@pytest.mark.soak
def test_tensors_of_attention_with_their_formulas(browser: Browser, on_an_h200: str) -> None:
    """On CUDA the peak has a fourth square, 8 × 65,536² × 4 bytes each, and cuBLAS's two workspaces."""
    with opened(browser, f"{on_an_h200}/attention") as visit:
        page = visit.page
        drawn = traces(page, "attention-tensors")
        assert drawn["measured"]["x"] == [2 * MIB, 2 * MIB, 2 * MIB, 512, 32 * MIB]
        assert drawn["predicted"]["x"] == [2 * MIB, 2 * MIB, 2 * MIB, MIB, 32 * MIB]
        bars = traces(page, "worked-sum")["tensors"]
        assert bars["x"][0] == pytest.approx(64 / 1024)
        assert bars["x"][-1] == pytest.approx(4 * 128 + 4 + 6 / 8 + 64 / 1024)
        words = said(page)
        assert "4 of 5 tensors are as predicted to the byte; together 38.0 MiB, predicted 39.0 MiB." in words
        assert "4 tensors of B × S² numbers, up to 128 GiB each" in words
