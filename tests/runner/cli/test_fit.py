"""`stepscope fit`: whether a training step fits, of Stepscope's own models by formula, of others on fake tensors."""

from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

from runner.analysis.costs.steps import predict_peak, workspace_bytes
from runner.answers import ask
from runner.answers.fit import COUNTED, WORKSPACES
from runner.job import FitJob
from runner.measure.fit import count_step
from runner.schema import StepCell
from runner.schema.own import WAYS, CountedStep
from tests.command import run, run_json
from tests.runner.answers.shipped import FOLDER, query, shipped
from tests.runner.own.build import MIXTRAL, MLP, our_model, own_file
from tests.synthetic import rows


def test_a_size_has_the_answer_of_show(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that Stepscope ships give the error bars where the file has none."""
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(FOLDER))
    asked = ("--size", "medium", "--gpu", "GeForce RTX 4090", "--precision", "fp32")
    of = rows.run()
    for file, origin in ((FOLDER, ""), (rows.store(db, of, [rows.ok(of, rows.asked())]), " that come with Stepscope")):
        said = run("fit", "--sizes", "medium", "--gpu", "rtx 4090", "--precision", "fp32", db=file).stdout
        assert said == run("show", "fit", *asked, db=file).stdout
        assert f"peaks of sdpa and fused AdamW{origin} the formula is off by" in " ".join(said.split())


def test_json_is_one_object_and_of_several_models_a_list() -> None:
    words = ("--sizes", "small", "--shape", "d_model=64,d_ff=192,layers=2,heads=2", "--weights", "bf16")
    small, own = run_json("fit", *words, db=FOLDER)
    assert list(small) == ["peak_bytes", "parts", "fits", "error", "largest"]
    assert list(small["parts"]) == ["parameters", "gradients", "optimizer", "activations", "temporaries"]
    assert sum(small["parts"].values()) == small["peak_bytes"] > own["peak_bytes"]
    assert small["parts"]["parameters"] == 128_625_408 * 2
    assert small["fits"] is True
    assert 0 < small["error"] < 0.03
    assert list(small["largest"]) == ["batch", "context"]
    one = small["largest"]["context"]["bf16"]["every block"]
    assert 1024 < one["low"] < one["largest"] < one["high"]
    shown = ask("fit", shipped("peaks", "steps"), {"size": "small", "weights": "bf16"}).views[0].rows
    assert [row.values[2] for row in shown] == [
        ways[kind]["largest"] for ways in small["largest"]["batch"].values() for kind in ("none", "every block")
    ]


def test_a_network_is_counted_as_by_hand() -> None:
    """Linear 64 → 256, GELU, linear 256 → 10, cross-entropy: with one sample the end of the step is the peak, with many
    the backward pass of GELU."""
    parameters = 64 * 256 + 256 + 256 * 10 + 10
    words = ("fit", MLP, "--precision", "fp32", "--batch")
    done = run_json(*words, "1", "--optimizer", "foreach", "--gpu", "H200", db=FOLDER)
    assert done["parts"]["parameters"] == done["parts"]["gradients"] == parameters * 4
    assert done["parts"]["optimizer"] == 2 * parameters * 4
    rest = done["parts"]["temporaries"] - parameters * 4 - 2 * 32 * 2**20
    assert rest == 64 * 4 + 8, "the sample and its label"
    assert list(done["largest"]) == ["batch"]
    assert list(done["largest"]["batch"]["fp32"]) == ["none"], "no block repeats"

    many = run_json(*words, "100000", db=FOLDER)["parts"]
    kept, gradient = 256 + 256 + 10, 256 * 10 + 10
    assert many["activations"] == 100_000 * kept * 4 + 8, "with the loss and its weight"
    rest = many["temporaries"] - 2 * 32 * 2**20
    assert rest == 100_000 * ((256 + 10) * 4 + 64 * 4 + 8) + gradient * 4


SHAPE = {"d_model": 256, "d_ff": 1024, "layers": 3, "heads": 4, "vocabulary": 2048}


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("naive", marks=pytest.mark.soak)])
def test_our_model_on_fake_tensors_takes_what_its_formula_says(tmp_path: Path, attention: Any) -> None:
    """At batches and contexts that it did not run with, too."""
    job = FitJob(spec=own_file(tmp_path, our_model(SHAPE)), context=128, attention=attention, optimizer="fused")
    counted = count_step(job)
    for way, (precision, weights) in WAYS.items():
        for blocks, batch, context in ((0, 4, 128), (0, 2, 1024), (1, 16, 512)):
            kind: Any = {"precision": precision, "weights_dtype": weights, "attention": attention, "mode": "train"}
            kind |= {"batch": batch, "context": context, "checkpoint_blocks": blocks, "optimizer": "fused", **SHAPE}
            formula = predict_peak(StepCell(**kind), gpu="H200").total - WORKSPACES * workspace_bytes("H200")
            found = sum(counted.parts_at(way, blocks > 0, batch=batch, context=context).values())
            assert found == pytest.approx(formula, rel=0.02 if blocks and weights == "bf16" else 1e-5), kind


@pytest.mark.soak
def test_the_counts_are_off_by_little_on_measured_peaks_of_transformers() -> None:
    """Those of the shipped rows, and what the answer says of them."""
    keys = "model, batch, context, precision, attention, optimizer, peak_allocated_bytes, peak_reserved_bytes"
    shares = []
    counted: dict[str, CountedStep] = {}
    for model, batch, context, way, attention, optimizer, peak, reserved in query(
        f"SELECT {keys} FROM steps WHERE model LIKE 'hf:%' AND peak_allocated_bytes IS NOT NULL"
    ):
        if model not in counted:
            counted[model] = count_step(FitJob(spec=model, context=1024, attention=attention, optimizer=optimizer))
        parts = counted[model].parts_at(way, False, batch=batch, context=context)
        predicted = sum(parts.values()) + WORKSPACES * workspace_bytes("H200")
        shares.append((reserved / predicted, peak / predicted - 1))
    reserved, off = ([*values] for values in zip(*shares, strict=True))
    low, *_, high = quantiles(reserved, n=20, method="inclusive")
    assert len(shares) == COUNTED.cells == COUNTED.low_cells == sum(one > 0 for one in off)
    assert (median(reserved), low, high) == pytest.approx((COUNTED.reserved, COUNTED.low, COUNTED.high), abs=0.005)
    assert median(off) == pytest.approx(COUNTED.peak, rel=0.1)
    assert quantiles(off, n=20, method="inclusive")[-1] == pytest.approx(COUNTED.most, rel=0.1)


def test_what_cannot_be_counted_is_one_sentence(tmp_path: Path) -> None:
    body = """
        class Reading(nn.Linear):
            def forward(self, x):
                return super().forward(x).sum() * x.sum().item()

        def build(want):
            return Reading(8, 8), torch.randn(want.batch, 8)
        """
    for words, told in (
        (("--gpu", "RTX 4091"), "GeForce RTX 4090"),
        (("--sizes", "smol"), "no size called 'smol'"),
        (("--precision", "fp32", "--weights", "bf16"), "Weights held in bf16 with precision fp32. Expected prec"),
        (("--precision", "fp8"), "--precision got 'fp8'. Expected bf16, fp32."),
        ((MLP, "--attention", "mine"), "--attention got 'mine'. Expected sdpa, naive."),
        (("--shape", "d_model=512,d_ff=2048,layers=8,heads=7"), "does not divide into 7 heads. Expected d_model to be"),
        (("--checkpoint", "13"), "--checkpoint got 13, but small has 12 blocks. Expected 0 to 12. Recompute fewer"),
        ((MLP, "--checkpoint", "2"), "--checkpoint got '2'. Expected 0 or 1."),
        (("--checkpoint", "-1"), "--checkpoint got '-1'. Expected a whole number from 0 to 12."),
        (("--batch", "0"), "--batch got '0'. Expected a whole number from 1 to 1,048,576."),
        (("--batch", "lots"), "--batch got 'lots'. Expected a whole number from 1 to 1,048,576."),
        (("--context", "99999999999"), "--context got '99999999999'. Expected a whole number from 16 to 1,048,576."),
        (("--gpu", "RTX"), "--gpu got 'RTX', which 6 GPUs have in their name. Expected one of GeForce RTX 3080, Ge"),
        ((MLP, "--sizes", "small"), "came with --sizes"),
        (("hf:nowhere/config.json",), "cannot be read"),
        (("nowhere.py:build",), "no file nowhere.py"),
        ((MIXTRAL, "--context", "5000"), "at most 4,096 tokens"),
        ((own_file(tmp_path, body),), "cannot be counted on fake tensors"),
    ):
        done = run("fit", *words, db=FOLDER, code=2)
        assert told in done.stdout
        assert done.stdout.startswith("error: ")
