"""Work, roofs, shares and counterfactuals, computed by hand.

The smallest possible model: width 4, feed-forward 8, one layer, one head, 16 words, two tokens. It has 4·4² + 3·4·8 +
16·4 = 224 weights that multiply and 224 + 64 + 3·4 = 300 parameters. A forward pass is 256 operations of projections,
64 of attention, 384 of feed-forward and 256 of the head, 960 in total.
"""

from pathlib import Path
from typing import Any

import pytest

from runner.analysis.costs.steps import retained_bytes
from runner.analysis.roofline import (
    Roof,
    StepWork,
    changes,
    intensity,
    least_ms,
    measured_roof,
    promised_roof,
    shares,
    utilization,
    work,
)
from runner.schema import StepCell
from runner.store.read import load_ceilings
from runner.store.read.selection import Selection
from tests.synthetic.roofline_rows import KERNELS, MACHINE, ceiling, profile, store

SHAPE = {"d_model": 4, "d_ff": 8, "layers": 1, "heads": 1, "vocabulary": 16}


def cell(**values: Any) -> StepCell:
    return StepCell(**{**SHAPE, "batch": 1, "context": 2, "mode": "train", "precision": "fp32", **values})


def test_the_work_of_every_phase() -> None:
    """Logits are 2·16·4 = 128 bytes; another test compares the tensors saved for backward with autograd."""
    kept = retained_bytes(cell(), device="cpu")
    assert work(cell(), device="cpu") == {
        "forward": StepWork(flops=960, moved_bytes=224 * 4 + kept + 128),
        "loss": StepWork(flops=0, moved_bytes=2 * 128),
        "backward": StepWork(flops=1920, moved_bytes=128 + 224 * 4 + kept + 300 * 4),
        "optimizer": StepWork(flops=0, moved_bytes=7 * 300 * 4),
    }
    assert intensity(cell(), device="cpu") == pytest.approx(2880 / (1024 + 256 + 2224 + 8400 + 2 * kept))
    # Without a graph, the stream (2·4 numbers) is read and written by both halves of the block.
    alone = work(cell(mode="inference"), device="cpu")
    assert alone == {"forward": StepWork(flops=960, moved_bytes=896 + 4 * 32 + 128)}
    halved = work(cell(precision="bf16", weights_dtype="bf16"), device="cpu")
    assert halved["optimizer"].moved_bytes == 7 * 300 * 2


def test_recomputation_moves_bytes_again() -> None:
    """When recomputed, the block saves norms 2·72, attention 64 + 96 + scores 16 + mask 4, and feed-forward 288 = 612
    bytes. Its operations are done twice, except those of its last product, 2·2·4·8."""
    checkpointed = cell(checkpoint_blocks=1)
    again = work(checkpointed, device="cpu")["backward"]
    assert again.flops == 1920 + 960 - 256 - 128
    assert again.moved_bytes == 128 + 896 + retained_bytes(checkpointed, device="cpu") + 2 * 612 + 1200


def test_times_and_rates_under_a_roof() -> None:
    roof = Roof(flops_per_s=1000.0, bytes_per_s=100.0)
    assert roof.ridge == 10
    assert [roof.attainable(x) for x in (5, 10, 20)] == [500, 1000, 1000]
    assert roof.seconds(StepWork(flops=3000, moved_bytes=100)) == 3
    assert roof.seconds(StepWork(flops=3000, moved_bytes=400)) == 4
    moved = sum(part.moved_bytes for part in work(cell(), device="cpu").values())
    assert least_ms(cell(), roof, device="cpu") == pytest.approx(1e3 * moved / 100), "every phase is bound by memory"
    fast = Roof(flops_per_s=1000.0, bytes_per_s=1e9)
    assert least_ms(cell(), fast, device="cpu") == pytest.approx(1e3 * 2.88, rel=1e-3), "every phase is bound by it"


def test_shares_of_a_peak_by_convention() -> None:
    """In 1 s at a peak of 28,800: 2,880 operations are a tenth; causality takes half of 3·64; recomputing adds 576."""
    used = utilization(cell(checkpoint_blocks=1), step_ms=1000, peak_flops_per_s=28_800)
    assert used == pytest.approx((0.1, (2880 - 96) / 28_800, (2880 + 576) / 28_800))
    plain = utilization(cell(mode="inference"), step_ms=1000, peak_flops_per_s=9600)
    assert plain[::2] == pytest.approx((0.1, 0.1))


def test_roofs_are_the_higher_of_start_and_end() -> None:
    found = [ceiling("matmul bf16", 800.0), ceiling("matmul bf16", 900.0, moment="end"), ceiling("copy", 30.0)]
    assert measured_roof(found, "bf16") == Roof(flops_per_s=900, bytes_per_s=30)
    assert measured_roof(found, "fp32") is None
    assert measured_roof(found[:2], "bf16") is None
    assert promised_roof("NVIDIA H200", "bf16") == Roof(flops_per_s=989.5e12, bytes_per_s=4.8e12)
    assert promised_roof("Example CPU", "bf16") is None


def test_a_machine_that_slows_down() -> None:
    """Ten percent less is a change. Three percent are not, and neither are ten that are uncertain by twelve."""
    at_end, doubts = {"matmul fp32": 90.0, "matmul bf16": 97.0, "copy": 90.0}, {"copy": 0.12}
    starts = [ceiling(name, 100.0, doubt=doubts.get(name, 0.01)) for name in at_end]
    ends = [ceiling(name, rate, moment="end", doubt=doubts.get(name, 0.01)) for name, rate in at_end.items()]
    ((name, share),) = changes([*starts, *ends])
    assert name == "matmul fp32"
    assert share == pytest.approx(-0.1)
    assert changes(starts) == []


def test_what_binds_a_step() -> None:
    """Kernels run half of the time. Of 10 ms of kernels, 6 are bound by compute, 2 + 1 by memory and 1 is unknown."""
    gpu = shares(profile(busy_share=0.5, host_bound_share=0.5), KERNELS, ridge=10.0)
    assert gpu == pytest.approx({"compute": 0.3, "memory": 0.15, "launch": 0.5, "unknown": 0.05})
    cpu = shares(profile(busy_share=0.5), KERNELS, ridge=10.0)
    assert cpu == pytest.approx({"compute": 0.3, "memory": 0.15, "unknown": 0.55})
    no_roof = shares(profile(busy_share=0.5, host_bound_share=0.5), KERNELS, ridge=None)
    assert no_roof == pytest.approx({"memory": 0.05, "launch": 0.5, "unknown": 0.45})
    assert shares(profile(), KERNELS, ridge=10.0) == {"unknown": 1.0}


def test_what_is_loaded_from_the_file(db: Path) -> None:
    found = load_ceilings(store(db), Selection(machine=MACHINE))
    assert [(row.moment, row.name) for row in found[:5]] == [
        ("start", "matmul bf16"), ("start", "matmul fp32"), ("start", "copy"),
        ("end", "matmul bf16"), ("end", "matmul fp32"),
    ]  # fmt: skip
    assert [row.flops_per_s for row in found if row.name == "matmul fp32"] == [2e12, 2e12, 1e12, 1e12], "latest first"
    assert load_ceilings(db, Selection(machine="another")) == []
