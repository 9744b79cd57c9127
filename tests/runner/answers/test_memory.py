"""Peaks, what is kept for backward, timelines and the largest sizes: against formulas and SQL on the shipped rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from runner.answers import ask
from runner.answers.answer import Row
from runner.answers.attention import fit_growth
from runner.formats import format_bytes
from runner.render.grid import make_grid
from runner.schema.axes import SHAPE
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.command import run
from tests.runner.answers.shipped import query, shipped


def test_a_residual_stream_is_batch_times_context_times_width_times_four() -> None:
    view = ask("residual", shipped("peaks")).views[0]
    sizes = {(row.values[0], row.values[1]): view.get(row, "residual_stream_bytes") for row in view.rows}
    assert sizes["small", 512] == 4 * 512 * 768 * 4
    assert sizes["xl@2026", 1024] == 4 * 1024 * 2560 * 4
    assert all(view.get(row, "agrees") for row in view.rows)


def test_a_block_keeps_what_its_tensors_keep() -> None:
    answer = ask("saved", shipped("peaks", "saved"), {"size": "large", "context": "512"})
    by_size, contributors, checkpointing, _ = answer.views
    whole = {(row.values[0], row.values[1]): by_size.get(row, "block_saved_bytes") for row in by_size.rows}
    assert sum(contributors.column("size")) == whole["large", 512]
    # 4 d² + 3 d·d_ff + 2 d parameters of a block, 4 bytes each
    gradients = {row.values[0]: by_size.get(row, "gradient_bytes") for row in by_size.rows}
    assert gradients["large"] == (4 * 1280**2 + 3 * 1280 * 5120 + 2 * 1280) * 4
    assert answer.more.startswith("The gradients of its parameters take 100 MiB. ")
    # softmax [batch, heads, context, context]
    (softmax,) = [row for row in contributors.rows if row.values[0] == "_softmax in attention"]
    assert contributors.get(softmax, "size") == 4 * 20 * 512 * 512 * 4
    peaks = {row.values[:3]: checkpointing.get(row, "peak_allocated_bytes") for row in checkpointing.rows}
    ratios = {row.values[:3]: checkpointing.get(row, "ratio") for row in checkpointing.rows}
    assert ratios["small", 512, "1"] == pytest.approx(peaks["small", 512, "1"] / peaks["small", 512, "none"])


def test_the_best_number_of_blocks_to_recompute_is_measured_and_is_the_formulas(db: Path) -> None:
    """A sweep of one toy, on the CPU, with and without the optimizer's step."""
    words = "--sizes toy-256 --contexts 64 --modes backward,train --precisions fp32 --checkpoint 0,1,2,3"
    run("sweep", "--experiment", "memory", *words.split(), db=db, code=0)
    rows = read(db, Selection(), ("peaks", "saved"))
    answer = ask("saved", rows)
    views = {view.name: view.column("peak_allocated_bytes") for view in answer.views if "checkpointing" in view.name}
    assert {*views} == {"saved-checkpointing", "saved-checkpointing-backward"}
    assert not answer.choices, "the mode is none: a block keeps the same"
    none, one, two, three = views["saved-checkpointing-backward"]
    assert one < two < three < none
    words = "Of 3 numbers of blocks recomputed together **1** needs least at toy-256, 64 tokens, backward"
    assert answer.more.startswith(f"The gradients of its parameters take 3.25 MiB. {words}")
    assert answer.more.endswith("By the formula it is 1.")
    peaks = (one if one.cell.checkpoint_blocks else replace(one, peak_allocated_bytes=None) for one in rows.peaks)
    lost = replace(rows, peaks=tuple(peaks))
    least = format_bytes(min(views["saved-checkpointing"][1:]))
    assert f"toy-256 at 64 needs **{least}**" in ask("saved", lost).sentence


def test_a_timeline_peaks_where_the_allocator_did() -> None:
    phases, largest = ask("timelines", shipped("recorded"), {"mode": "inference"}).views
    ((cell_id,),) = {row.cells for row in (*phases.rows, *largest.rows)}
    (stored,) = query(f"""SELECT (SELECT max(peak_allocated_bytes) FROM phase_peaks WHERE cell_id = '{cell_id}'),
        4 * batch * context * greatest(heads * context, vocabulary) FROM memory WHERE cell_id = '{cell_id}'""")
    sizes = largest.column("size")
    assert sizes == sorted(sizes, reverse=True)
    # the probabilities of attention or, at a short context, the logits
    assert (max(phases.column("peak_bytes")), sizes[0]) == stored
    assert all("runner/models" in line for line in largest.column("line"))


def test_a_timeline_says_where_the_same_step_ran_out_of_memory() -> None:
    rows = shipped("recorded", "peaks")
    more = {mode: ask("timelines", rows, {"size": "xl@2026", "mode": mode}).more for mode in ("train", "inference")}
    assert more == {"train": "At 2,048 tokens it ran out of memory in forward: needs 172 GiB.", "inference": ""}


def test_the_largest_size_is_the_one_that_ran() -> None:
    view = ask("frontier", shipped("frontiers")).views[0]
    stored = dict(query("SELECT d_head, largest FROM frontier WHERE status = 'ok'"))
    assert {int(row.values[0].removeprefix("head width ")): view.get(row, "largest") for row in view.rows} == stored
    assert view.about == "NVIDIA H200 · in 140 GiB, by real allocations in fresh processes"


def test_peaks_in_bf16_stand_beside_those_in_fp32() -> None:
    answer = ask("memory", shipped("peaks"), {"mode": "forward"})
    (view,) = [view for view in answer.views if view.name == "memory-by-precision"]
    ratios = {row.values[:2]: view.get(row, "ratio") for row in view.rows}
    peaks = dict(
        query("""SELECT precision, max(peak_allocated_bytes) FROM memory WHERE d_model = 2560 AND context = 128
        AND mode = 'forward' AND attention = 'naive' AND NOT timeline AND checkpoint_blocks = 0 GROUP BY ALL""")
    )
    assert ratios["xl@2026", 128] == pytest.approx(peaks["fp32"] / peaks["bf16"])
    assert ratios["xl@2026", 128] < 1  # autocast keeps copies of the weights, and short activations save less


def test_what_runs_out_is_accounted_tensor_by_tensor() -> None:
    answer = ask("attention", shipped("attention", "audited"), {"precision": "fp32", "d_head": "128"})
    grids = [make_grid(view, answer.doubts).lines for view in answer.views]
    marked = [any(one.marks for line in lines for one in line) for lines in grids]
    assert marked == [True, True, False, True, True, False, False], "a doubt about a time marks no bytes"
    assert not any(one.marks for one in grids[4][1]), "nor how they grow"
    views = {view.name: view for view in answer.views}
    cells, passes = {one.cell_id: one for one in shipped("attention", "audited").attention}, views["attention-passes"]
    assert {*passes.column("phase")} == {"forward", "backward"}
    assert all(row.values[3] == cells[row.cells[0]].times[row.values[2]].step.ms for row in passes.rows)
    account = answer.views[-1]
    sizes = {row.values[0]: account.get(row, "size_bytes") for row in account.rows}
    assert account.title.endswith("naive at 32,768 tokens is made of")
    assert sizes["probabilities"] == 8 * 32_768**2 * 4
    assert sizes["queries"] == 8 * 32_768 * 128 * 4
    predicted, holds = sizes.pop("peak, predicted"), sizes.pop("the device holds")
    assert sum(sizes.values()) == predicted
    # naive keeps one square of probabilities for backward
    before = ask("attention", shipped("attention"), {"d_head": "128", "memory": "before backward"}).views[2]
    assert views["attention-memory-before-backward"].rows == before.rows, "what is not chosen is a table beside it"
    naive = {row.values[1]: before.get(row, "before_backward_bytes") for row in before.rows if row.values[0] == "naive"}
    assert naive[16_384] > 8 * 16_384**2 * 4
    assert naive[32_768] is None
    assert holds < 144 * 2**30


@pytest.mark.soak
@pytest.mark.parametrize(("times", "exponent"), [((1.0, 4.1, 16.0), 2.0), ((1.0, 16.0, 8.0), None)])
def test_a_power_is_fitted_where_times_tell_it_from_the_next(times: tuple[float, ...], exponent: float | None) -> None:
    rows = tuple(Row(values=("naive", 1024 << place, ms)) for place, ms in enumerate(times))
    found = fit_growth(rows, "naive")
    assert (found and found.exponent) == (exponent and pytest.approx(exponent, abs=0.01))


def test_what_is_predicted_to_fit_is_what_ran() -> None:
    """Every training step of the shipped rows that asks for what the calculator offers."""
    rows = shipped("peaks", "steps")
    kinds = set()
    for one in rows.peaks:
        cell = one.cell
        if cell.mode == "train" and not cell.timeline and not cell.model_key and cell.optimizer in ("foreach", "fused"):
            shape = ",".join(f"{name}={getattr(cell.shape, name)}" for name in SHAPE)
            asked = {"gpu": "H200", "size": shape, "context": str(cell.context), "batch": str(cell.batch)}
            asked |= {"precision": cell.precision, "attention": cell.attention, "optimizer": cell.optimizer}
            answer = ask("fit", rows, asked)
            if cell.checkpoint_blocks == 0 and one.status in ("ok", "oom"):
                assert ("does not fit" in answer.sentence) == (one.status == "oom"), cell
                kinds.add(one.status)
    assert kinds == {"ok", "oom"}


def test_the_largest_that_fits_is_the_last_that_does() -> None:
    asked = {"gpu": "A100 80 GB", "size": "large", "context": "2048", "precision": "bf16"}
    view = ask("fit", shipped("peaks"), asked).views[0]
    counts = {row.values[:2]: view.get(row, "largest") for row in view.rows}
    batch = counts["bf16", "none"]
    for count, verdict in ((batch, "fits"), (batch + 1, "does not fit")):
        said = ask("fit", shipped("peaks"), asked | {"batch": str(count)}).sentence.replace("**", "")
        assert f"{verdict} on" in said.partition(f"(batch {count}, 2,048 tokens, bf16, sdpa, fused AdamW)")[2]
    assert counts["bf16", "every block"] > batch
    assert all(view.get(row, "low") <= view.get(row, "largest") <= view.get(row, "high") for row in view.rows)


def test_the_formula_is_low_by_what_the_allocator_rounds_up() -> None:
    for one in shipped("peaks").peaks:
        if (peak := one.peak_allocated_bytes) and one.predicted_peak_bytes and one.device == "cuda":
            alive, off = peak - (one.parts["rounding"] or 0), {"train": 1e-4}.get(one.cell.mode, 0.01)
            assert 0.95 * peak < alive == pytest.approx(one.predicted_peak_bytes, rel=off)
    ((cells, off),) = query("""SELECT count(*), 100 * median(off) FROM (
        SELECT max(peak_allocated_bytes) / max(predicted_peak_bytes) - 1 AS off FROM steps WHERE backend = 'eager'
        AND (attention, optimizer, mode) = ('sdpa', 'fused', 'train') AND peak_reserved_bytes > 0
        GROUP BY d_model, d_ff, batch, context, precision)""")
    told = ask("fit", shipped("peaks", "steps")).more
    assert told.startswith(f"On {cells} measured peaks of sdpa and fused AdamW the formula is off by {off:.2g}% in the")
    assert f"too low on {cells}, because" in told
    assert "of others than sdpa and fused AdamW" in ask("fit", shipped("peaks")).more
