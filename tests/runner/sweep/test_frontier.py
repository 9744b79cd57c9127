"""The frontier: its prediction, its search, and that its result agrees with real allocations."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.measure.attention import AttentionStep
from runner.measure.device import Device
from runner.measure.memory import mask_everything
from runner.models.attention import causal_blocks
from runner.schema import AttentionCell, FrontierCell, StepCell
from runner.sweep.frontier import DeviceMemory, make_questions, parse_size, predict_largest, search, trial_cell
from tests.command import make_job, rows, run

LIMIT = 256 * 2**20
WORDS = ("--d-heads", "16", "--limit", "256MiB", "--device", "cpu")
NOTHING: dict[str, Any] = dict.fromkeys(
    ("attention", "d_heads", "precisions", "causal", "batch", "sizes", "grow", "modes", "contexts", "resolution")
)


@pytest.mark.parametrize("truth", [0, 1, 2, 17, 35, 36, 37, 500])
@pytest.mark.parametrize("first", [0, 1, 36, 200])
def test_the_search_ends_between_two_neighbors_and_tries_nothing_twice(first: int, truth: int) -> None:
    tried: list[int] = []

    def fits(count: int) -> bool:
        tried.append(count)
        return count <= truth

    assert search(first, fits) == (truth, truth + 1)
    assert len(tried) == len(set(tried))
    assert tried[0] == max(first, 1)
    assert min(tried) >= 1
    assert tried == [36, 35] or (first, truth) != (36, 35), "a good prediction costs few trials"


def test_the_prediction_by_hand() -> None:
    """Three squares, a mask, six vectors and one number of 8 bytes: 253 MB for S = 1600, 274 MB for the next."""
    asked = make_questions({**NOTHING, "d_heads": "16"}, limit_bytes=LIMIT)
    assert len(asked) == 1

    def peak(length: int) -> int:
        return 3 * 8 * length**2 * 4 + length**2 + 6 * 8 * length * 16 * 4 + 8

    assert peak(1600) <= LIMIT < peak(1664)
    assert predict_largest(asked[0], DeviceMemory(device="cpu")) == 1600
    none = make_questions({**NOTHING, "d_heads": "16"}, limit_bytes=1000)
    assert predict_largest(none[0], DeviceMemory(device="cpu")) == 0


def test_the_frontier_found_on_an_h200_is_predicted() -> None:
    """Naive attention in bf16, batch 8, 64 wide, with all memory of an NVIDIA H200 (torch 2.11): 43,136 tokens ran and
    43,200 did not, by bisection with real allocations. Five squares of B S² numbers are reserved, of which at most four
    are in use at once."""
    card = 150_109_880_320
    (asked,) = make_questions({**NOTHING, "d_heads": "64", "precisions": "bf16"}, limit_bytes=card)
    predicted = predict_largest(asked, DeviceMemory(device="cuda", gpu="NVIDIA H200", card_bytes=card))
    assert predicted == pytest.approx(43_136, rel=0.01)
    assert predict_largest(asked, DeviceMemory(device="cpu")) == 55_232


#: Fused attention in bf16, batch 8, causal, with all memory of an H200 (torch 2.11), searched in steps of 16,384
#: tokens: implementation, head width, and the longest sequence that fits.
LONGEST_ON_AN_H200 = [
    ("sdpa-flash", 16, 47_628_288), ("sdpa-flash", 128, 7_258_112),
    ("sdpa-cudnn", 16, 56_918_016), ("sdpa-cudnn", 32, 28_803_072),
    ("sdpa-efficient", 16, 35_880_960), ("sdpa-efficient", 32, 24_051_712),
    ("flex", 16, 70_746_112), ("flex", 64, 18_087_936),
]  # fmt: skip


@pytest.mark.parametrize(("implementation", "width", "longest"), LONGEST_ON_AN_H200)
def test_frontiers_of_fused_attention_on_an_h200_are_predicted(implementation: str, width: int, longest: int) -> None:
    card = 150_109_880_320
    asked = {**NOTHING, "attention": implementation, "d_heads": str(width), "precisions": "bf16", "resolution": 16_384}
    (question,) = make_questions(asked, limit_bytes=card)
    predicted = predict_largest(question, DeviceMemory(device="cuda", gpu="NVIDIA H200", card_bytes=card))
    assert predicted == pytest.approx(longest, rel=0.02)


def test_the_questions_are_the_product_of_the_given_values() -> None:
    asked = make_questions({**NOTHING, "attention": "naive,sdpa-math", "precisions": "fp32,bf16"}, limit_bytes=LIMIT)
    assert len(asked) == 2 * 2 * 4
    cell = trial_cell(asked[0], 128)
    assert isinstance(cell, AttentionCell)
    assert (cell.seq_len, cell.batch, cell.d_head, cell.causal) == (128, 8, 16, True)
    (model,) = make_questions({**NOTHING, "sizes": "small", "grow": "batch"}, limit_bytes=LIMIT)
    step = trial_cell(model, 3)
    assert isinstance(step, StepCell)
    assert (step.d_model, step.batch, step.context, step.mode, model.step) == (768, 3, 512, "train", 1)


def test_sizes_of_memory() -> None:
    sizes = {"2GiB": 2**31, "512 mib": 2**29, "1.5GiB": 3 * 2**29, "1000": 1000}
    assert {text: parse_size("limit", text) for text in sizes} == sizes
    for text in ("", "2GB", "-1GiB", "0", "GiB"):
        with pytest.raises(UsageError, match="2GiB or 512MiB"):
            parse_size("limit", text)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"sizes": "small"}, "go together"),
        ({"grow": "batch"}, "go together"),
        ({"sizes": "small", "grow": "layers"}, "context or batch"),
        ({"attention": "fast"}, "one of naive"),
    ],
)
def test_impossible_questions_are_refused(flags: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_questions({**NOTHING, **flags}, limit_bytes=LIMIT)


@pytest.fixture(scope="module")
def db(module_db: Path) -> Path:
    assert "predicted 1,600" in run("sweep", "--experiment", "frontier", *WORDS, db=module_db, code=0).stdout
    return module_db


def test_the_largest_size_fits_and_the_next_does_not(db: Path) -> None:
    (found,) = rows(db, "FROM frontier")
    asked = FrontierCell(**{name: found[name] for name in FrontierCell.names()})
    assert (found["status"], found["limit_bytes"], found["cell_key"]) == ("ok", LIMIT, asked.key)
    assert found["smallest_failing"] - found["largest"] == 64
    assert 0.7 * LIMIT < found["largest_peak_bytes"] <= LIMIT
    assert found["trials"] >= 2
    assert rows(db, "SELECT count(*) AS runs FROM runs JOIN frontier USING (run_id)") == [{"runs": 1}]
    engine = LocalEngine()
    statuses = []
    for size in (found["largest"], found["smallest_failing"] + 64):  # a few pages decide at the very limit
        job = make_job(trial_cell(asked, size), experiment="frontier", limit_bytes=LIMIT)
        statuses.append(engine.measure(job, timeout_s=200).status)
    assert statuses == ["ok", "oom"]


def test_a_known_frontier_is_not_searched_again(db: Path) -> None:
    assert "1 answered before" in run("sweep", "--experiment", "frontier", *WORDS, db=db, code=0).stdout
    assert len(rows(db, "FROM frontier")) == 1
    assert "fits," in run("show", db=db).stdout


def test_a_models_largest_batch(tmp_path: Path) -> None:
    words = "--sizes toy-64 --grow batch --contexts 64 --limit 192MiB --step 16 --device cpu"
    run("sweep", "--experiment", "frontier", *words.split(), db=tmp_path / "r.duckdb", code=0)
    (found,) = rows(tmp_path / "r.duckdb", "FROM frontier")
    assert (found["d_model"], found["batch"], found["context"], found["d_head"]) == (64, None, 64, None)
    assert found["smallest_failing"] - found["largest"] == 16
    assert found["largest_peak_bytes"] <= 192 * 2**20


@pytest.mark.soak
def test_a_kernel_that_does_not_exist_is_skipped(tmp_path: Path) -> None:
    run("sweep", "--experiment", "frontier", *WORDS, "--attention", "sdpa-cudnn", db=tmp_path / "r.duckdb", code=0)
    (found,) = rows(tmp_path / "r.duckdb", "FROM frontier")
    assert (found["status"], found["largest"]) == ("skipped", None)
    assert "no sdpa-cudnn kernel" in found["message"]


@pytest.mark.parametrize("causal", [True, False])
def test_flex_masks_are_empty_in_trials_and_unchanged_elsewhere(causal: bool) -> None:
    """1,000 tokens are eight blocks of 128. A causal mask shows some of them in each row, a trial's none."""
    cell = AttentionCell(implementation="flex", precision="fp32", seq_len=1000, d_head=16, batch=1, causal=causal)
    step = AttentionStep(cell, Device("cpu"))
    mask_everything(step, Device("cpu"))
    blocks = step.run.keywords["blocks"]
    counts = (blocks.kv_num_blocks, blocks.full_kv_num_blocks, blocks.q_num_blocks, blocks.full_q_num_blocks)
    assert [int(count.sum()) for count in counts if count is not None] == [0] * (4 if causal else 2)
    assert blocks.seq_lengths == (1000, 1000)
    assert int(causal_blocks(1000, torch.device("cpu")).kv_num_blocks.sum()) > 0


def test_a_limit_beyond_the_memory_of_the_machine_is_refused(tmp_path: Path) -> None:
    words = ("sweep", "--experiment", "frontier", *WORDS, "--limit", "100TiB")
    assert "--limit got 100TiB. Expected at most" in run(*words, db=tmp_path / "r.duckdb", code=2).stdout
