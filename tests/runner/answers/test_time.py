"""Warm-up, spread, noise, kernels and trust: against rows made by hand, and against SQL on the shipped rows."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from uuid import UUID

import pytest

from runner.answers import ask
from runner.answers.kernels import _cut
from runner.answers.words import plain_cells
from runner.render.grid import make_grid, scale_of
from runner.render.json import as_json, to_text
from runner.results.cells import EarlyStep
from runner.results.rows import MachineNoise, Rows
from runner.results.times import Noise
from runner.schema import StepCell
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.runner.answers.shipped import query, shipped
from tests.synthetic import rows, traces


def test_a_step_is_shown_as_time_tokens_or_mfu_of_one_clock() -> None:
    steps = {one.cell_id: one for one in shipped("steps").steps}
    values = {}
    for metric, name in (("time", "median_ms"), ("tokens/s", "tokens_per_s"), ("MFU", "mfu")):
        view = ask("step", shipped("steps"), {"metric": metric, "clock": "latency"}).views[0]
        (row,) = [row for row in view.rows if row.values[:2] == ("xl@2026", 512)]
        values[metric] = view.get(row, name), *view.interval(row)
    time = steps[row.cells[0]].times["step"].step
    assert values["time"] == (time.ms, time.low_ms, time.high_ms)
    assert values["tokens/s"][0] == pytest.approx(4 * 512 / time.ms * 1000)
    assert values["tokens/s"][2] == pytest.approx(4 * 512 / (time.low_ms or 0) * 1000), "the shortest time is the most"
    assert values["MFU"][1] < values["MFU"][0] < values["MFU"][2]
    ((mfu,),) = query(f"SELECT mfu FROM steps WHERE cell_id = '{row.cells[0]}'")
    assert values["MFU"][0] == pytest.approx(mfu, rel=0.02)
    plain, given = steps[row.cells[0]], "parts.py:own@01234567"
    cells = replace(plain.cell, optimizer=given), replace(plain.cell, loss_function=given)  # type: ignore[arg-type]
    own = [replace(plain, cell=cell, cell_id=UUID(int=number)) for number, cell in enumerate(cells)]
    assert ask("step", Rows(steps=(*own, plain))).views[0].rows[0].cells == (plain.cell_id,), "own parts are not first"


@pytest.mark.parametrize("question", ["precision", "compile", "ways"])
def test_the_headline_of_a_speedup_is_of_decided_pairs(question: str) -> None:
    answer = ask(question, shipped("every_step"))
    view = answer.views[0]
    decided = [view.get(row, "ratio") for row in view.rows if view.get(row, "outcome") in ("faster", "slower")]
    assert {float(found) for found in re.findall(r"\*\*([\d.]+)×", answer.sentence)} == {
        float(f"{end:.3g}") for end in (min(decided), max(decided))
    }
    assert len(decided) < len([*filter(None, view.column("ratio"))]), "noise does not name the ends"
    assert "precision-trend" not in [one.name for one in answer.tables], "it has no number that the first has not"


def test_phases_stand_with_their_mean_and_standard_deviation() -> None:
    view = ask("step", shipped("steps")).views[2]
    one = next(one for one in shipped("steps").steps if (one.cell_id,) == view.rows[0].cells)
    row = view.rows[0]
    forward = one.times["forward"]
    found = [view.get(row, name) for name in ("phase", "mean_ms", "std_ms", "n")]
    assert found == ["forward", forward.mean_ms, forward.std_ms, forward.n]


def early(warmup: int, *times: float, process: int = 0) -> list[EarlyStep]:
    cell, key = replace(plain_cells(StepCell)[0], warmup_steps=warmup), UUID(int=10 * process + warmup)
    one = EarlyStep(cell_id=key, machine="GPU", cell=cell, step=0, is_warmup=False, step_ms=0)
    return [replace(one, step=step, is_warmup=step < warmup, step_ms=ms) for step, ms in enumerate(times)]


def test_a_cold_first_step_moves_the_mean_and_not_the_median() -> None:
    others = *early(0, 40, 10, 10, 10, process=1), *early(0, 300, 15, 15, 15, process=2)
    answer = ask("warmup", Rows(early=(*others, *early(0, 100, 10, 10, 10), *early(1, 100, 11, 10, 10, 10))))
    view, every = answer.views
    cold, warm = view.rows
    assert view.interval(cold) == (4, 20), "of three processes the one in the middle, and how far they reach"
    assert view.interval(warm) == (None, None)
    assert every.column("duration_ms") == [100, 10, 10, 10, 100, 11, 10, 10, 10]
    assert view.get(cold, "first_ratio") == 10
    assert view.get(cold, "mean_ms") == 32.5
    assert view.get(cold, "mean_change") == pytest.approx(225)
    assert view.get(cold, "median_change") == 0
    assert view.get(warm, "first_ratio") == pytest.approx(1.1)
    assert "moves the mean by **+225%**" in answer.sentence
    assert "After 1 warm-up step it takes 1.10×." in answer.more
    # std/√n of one cold step of four is 45/2: mean − 22.5 is the time of the others
    assert "mean − std/√n is 10.0 ms, the median of the rest 10.0 ms" in answer.more


def test_warmup_on_the_shipped_rows_is_what_the_samples_say() -> None:
    view = ask("warmup", shipped("early"), {"context": "512"}).views[0]
    row = view.rows[0]
    times = [
        ms
        for (ms,) in query(f"""SELECT duration_ms FROM samples
        WHERE cell_id = '{row.cells[0]}' AND phase = 'step' AND NOT is_warmup ORDER BY step""")
    ]
    assert view.get(row, "mean_ms") == pytest.approx(fmean(times))
    assert view.get(row, "first_ratio") == pytest.approx(times[0] / median(times[1:]))
    rows = shipped("early", "audited")
    ((most, _),) = Counter(one.cell.max_seconds for one in rows.early if one.cell.context == 512).most_common(1)
    assert query(f"SELECT max_seconds FROM steps WHERE cell_id = '{row.cells[0]}'") == [(most,)], "the most steps"
    found = {one.cell_id: {finding.code for finding in one.findings} for one in rows.audited}
    doubts = ask("warmup", rows, {"context": "512"}).doubts
    assert {one.code in found[cell] for one in doubts for cell in one.cells} == {True}, "each of its own process"


def test_spread_is_the_stored_standard_deviation_over_the_mean() -> None:
    answer = ask("variability", shipped("steps", "spreads", "audited"))
    matrix, samples = answer.views
    for row in matrix.rows:
        if matrix.get(row, "std_share") is None:
            continue
        ((share, least, most),) = query(f"""
            WITH tried AS (SELECT s.*, r.started_at began, host, device_name, torch, git_commit
                FROM steps s JOIN runs r USING (run_id)),
            last AS (SELECT * FROM tried SEMI JOIN (SELECT cell_key, host, device_name FROM tried
                WHERE cell_id = '{row.cells[0]}') USING (cell_key, host, device_name) ORDER BY began DESC LIMIT 1),
            rounds AS (SELECT t.cell_id FROM tried t JOIN last USING (cell_key, host, device_name, torch, git_commit)
                WHERE t.status = 'ok' AND (t.run_id = last.run_id OR t.round < (SELECT min(round) FROM tried l
                    WHERE (l.run_id, l.cell_key) = (last.run_id, last.cell_key))))
            SELECT sqrt(avg(std_ms ** 2)) / avg(mean_ms) * 100,
                (SELECT min(duration_ms) FROM samples SEMI JOIN rounds USING (cell_id)
                    WHERE phase = 'step' AND NOT is_warmup),
                (SELECT max(duration_ms) FROM samples SEMI JOIN rounds USING (cell_id)
                    WHERE phase = 'step' AND NOT is_warmup)
            FROM timings SEMI JOIN rounds USING (cell_id) WHERE phase = 'step'""")
        assert matrix.get(row, "std_share") == pytest.approx(share)
        assert (matrix.get(row, "least_ms"), matrix.get(row, "most_ms")) == (least, most)
    worst = max(matrix.rows, key=lambda row: matrix.get(row, "std_share") or 0)
    assert {row.cells for row in samples.rows} == {worst.cells}, "the samples are those of the cell that varies most"
    assert answer.more.endswith(f" The finding of the cell that varies most: {matrix.get(worst, 'why')}.")
    most = max(between for between in matrix.column("between_share") if between is not None)
    assert answer.more.startswith(f"Between processes the standard deviation of the median is {most:.1f}% at most (")


def test_noise_says_what_one_pair_of_processes_resolves() -> None:
    noise = Noise(std=0.01, dof=1e6, cells=9)
    known = MachineNoise(table="steps", machine="GPU", bound="device", clock="step", noise=noise)
    answer = ask("noise", Rows(noise=(known,)))
    view = answer.views[0]
    # two-sided 99% of the normal distribution, and √2 for the difference of two
    expected = 100 * (2.718281828 ** (2.5758 * 0.01 * 2**0.5) - 1)
    assert view.get(view.rows[0], "one_percent") == pytest.approx(expected, rel=1e-3)
    assert "**1.00%** in GPU-bound cells (one pair of processes resolves 3.71% and more)" in answer.sentence
    unknown = replace(known, bound=None, noise=replace(noise, std=0.4, dof=1.0))
    said = ask("noise", Rows(noise=(unknown,))).sentence
    assert said.endswith("varies by **40.0%** (one pair of processes resolves nothing below 2×).")
    judged = ask("noise", shipped("noise", "repeated", "runs"))
    assert judged.more == "The canary of this run shows no lasting change of the machine.", "the latest to judge"
    (run,) = (name[-6:] for name in judged.choices[-1].options)  # of the chosen GPU
    (cell_id,) = judged.cells
    ((first, *others),) = query(f"""SELECT list(median_ms ORDER BY round)
        FROM steps JOIN (SELECT cell_key FROM steps WHERE cell_id = '{cell_id}') USING (cell_key)
        JOIN timings USING (cell_id) WHERE phase = 'step' AND timings.run_id::VARCHAR LIKE '%{run}'""")[0]
    changes = [0.0, *(100 * (one / first - 1) for one in others)]
    assert judged.views[1].column("change_percent") == pytest.approx(changes)
    change = scale_of(judged.views[1], "change_percent")
    assert [change.write(one) for one in judged.views[1].column("change_percent")] == ["0", "-0.232", "0.234"]


def test_kernels_of_the_forward_pass_add_up() -> None:
    answer = ask("kernels", shipped("traced", "steps"), {"size": "small", "context": "512", "mode": "train"})
    views = {view.name: view for view in answer.views}
    clock, leading = views["kernels-clock"], views["kernels-leading"]
    assert make_grid(views["kernels-by-phase"]).headings[-2:] == ("optimizer", "total")
    (row,) = [row for row in clock.rows if row.values[:2] == ("small", 512)]
    ((stored,),) = query(f"SELECT sum(device_ms) FROM kernels WHERE cell_id = '{row.cells[0]}' AND phase = 'forward'")
    assert clock.get(row, "kernel_ms") == pytest.approx(stored)
    (timed,) = [one for one in shipped("traced", "steps").steps if one.cell_id == row.cells[1]]
    assert clock.get(row, "clock_ms") == timed.times["forward"].step.ms, "its doubts are those of the ratio"
    assert clock.get(row, "ratio") == pytest.approx(stored / clock.get(row, "clock_ms"))
    ((name, calls, share),) = query(f"""
        SELECT kernel, sum(calls), sum(device_ms) / any_value(whole) FROM
            (SELECT *, sum(device_ms) OVER () AS whole FROM kernels
             WHERE cell_id = '{row.cells[0]}' AND phase IN ('forward', 'loss', 'backward'))
        GROUP BY kernel ORDER BY sum(device_ms) DESC LIMIT 1""")
    (both,) = [one for one in leading.rows if one.values[:2] == ("small", "with backward")]
    assert (leading.get(both, "whole_name"), leading.get(both, "calls")) == (name, calls)
    assert _cut("sm80_xmma_gemm…tn_tilesize128x128x8_warpsize2x2x1") == "sm80…tilesize128x128x8_warpsize2x2x1"
    assert leading.get(both, "share") == pytest.approx(share)
    assert "its latency" in answer.more
    wide = []
    for one in shipped("steps").steps:
        ends = {phase: replace(time.step, low_ms=time.step.ms / 2, high_ms=time.step.ms * 2)
                for phase, time in one.times.items()}  # fmt: skip
        wide.append(replace(one, times={phase: replace(one.times[phase], step=step) for phase, step in ends.items()}))
    assert "its latency" not in ask("kernels", replace(shipped("traced"), steps=tuple(wide))).more


def test_matrix_products_lose_share_from_inference_to_training() -> None:
    answer = ask("kernel_classes", shipped("traced"), {"size": "xl@2026", "context": "512", "precision": "fp32"})
    view = answer.views[1]
    shares = {row.values[2]: view.get(row, "matmul_share") for row in view.rows if row.values[:2] == ("xl@2026", 512)}
    (row,) = [row for row in view.rows if row.values[:3] == ("xl@2026", 512, "train")]
    ((stored,),) = query(f"""SELECT sum(device_ms) FILTER (kernel_class = 'matmul') / sum(device_ms)
        FROM kernels WHERE cell_id = '{row.cells[0]}'""")
    assert shares["train"] == pytest.approx(stored)
    assert shares["train"] < shares["inference"]
    assert "matrix products fall from **92%** to **87%** of GPU time at **xl@2026**" in answer.sentence
    every = {row.values[:3]: view.get(row, "matmul_share") for row in view.rows}
    both = [(share, every[(*key, "train")]) for (*key, mode), share in every.items() if mode == "inference"
            and (*key, "train") in every]  # fmt: skip
    falls = sum(after < before for before, after in both)
    assert 0 < falls < len(both), "whether the share rises depends on the context"
    assert answer.sentence.endswith(f"as at {falls} of {len(both)} sizes and contexts.")


@pytest.mark.parametrize(("device", "words"), [("cuda", "GPU time"), ("cpu", "operator time")])
def test_a_profile_of_a_cpu_has_operator_time(device: str, words: str, tmp_path: Path) -> None:
    cells = [traces.profiled(rows.run(device=device), mode=mode) for mode in ("inference", "train")]
    stored = read(rows.store_tables(tmp_path / "results.duckdb", cells), Selection(), ("traced",))
    for name in ("kernels", "kernel_classes", "inside_attention"):
        said = to_text(as_json(ask(name, stored)))
        assert {found.lower() for found in re.findall("GPU time|operator time", said, re.I)} == {words.lower()}


def test_softmax_needs_few_flops_and_much_time() -> None:
    view = ask("inside_attention", shipped("traced"), {"size": "small", "context": "512", "mode": "train"}).views[0]
    (row,) = [row for row in view.rows if row.values[:2] == ("small", 512)]
    ((softmax, products),) = query(f"""SELECT sum(device_ms) FILTER (scope = 'attention softmax'),
            sum(device_ms) FILTER (scope IN ('attention scores', 'attention product'))
        FROM kernels WHERE cell_id = '{row.cells[0]}' AND phase = 'forward'""")
    assert view.get(row, "time_ratio") == pytest.approx(softmax / products)
    # 5 operations a weight, against 2 · 2 · d_head of the two products (d_head 64) and the scaling of the score
    assert view.get(row, "flop_ratio") == pytest.approx(5 / (4 * 64 + 1))


def test_the_share_of_the_roof_is_the_rate_over_what_peak_and_memory_allow() -> None:
    answer = ask("roofline", shipped("steps", "traced", "ceilings", "runs"), {"clock": "latency"})
    views = {view.name: view for view in answer.views}
    view, bounds = views["roofline"], views["bounds"]
    (row,) = [row for row in view.rows if row.values[:2] == ("xl@2026", 1024)]
    (step,) = [one for one in shipped("steps").steps if (one.cell_id,) == row.cells]
    # twice the parameters that multiply, three passes, and the square of attention: 12 · layers · tokens · S · d_model
    tokens, weights = 4 * 1024, 32 * (4 * 2560**2 + 3 * 2560 * 10240) + 10_000 * 2560
    flops = 6 * weights * tokens + 12 * 32 * tokens * 1024 * 2560
    rate = flops / (step.times["step"].step.ms / 1e3)
    assert view.get(row, "tflops") == pytest.approx(rate / 1e12)
    ((run,),) = query("SELECT max(run_id) FROM ceilings")
    ((peak,),) = query(f"SELECT max(flops_per_s) FROM ceilings WHERE precision = 'fp32' AND run_id = '{run}'")
    assert view.get(row, "roof_share") == pytest.approx(rate / peak), "far above the ridge the peak is the roof"
    assert view.get(row, "mfu") == pytest.approx(view.get(row, "roof_share"))
    assert bounds.field("unprofiled_step_ms").label == "Step of the traced process, latency"
    for place in {row.values[:2] for row in bounds.rows}:
        *parts, total = [bounds.get(row, "share") for row in bounds.rows if row.values[:2] == place]
        assert sum(parts) == pytest.approx(total) == 1


def test_compiling_has_paid_by_what_one_waits_for() -> None:
    for clock in ("throughput", "GPU time"):  # 57.0 s over 18.3 ms, or 19.6 and 17.1 ms at the ends of the ratio
        answer = ask("compile", shipped("every_step"), {"clock": clock})
        assert ("medium", 512, 3100, 2900, 3400) in [row.values[:5] for row in answer.views[2].rows]
        assert "**3,100** steps (2,900–3,400; medium at 512 tokens)" in answer.more


def test_grades_count_every_row_once() -> None:
    answer = ask("trust", shipped("audited"))
    grades = answer.views[0]
    assert sum(grades.column("rows")) == len(shipped("audited").audited)
    assert len({cell for row in grades.rows for cell in row.cells}) == len(shipped("audited").audited)
    code = answer.choices[0].options[-1]
    found = ask("trust", shipped("audited"), {"finding": code}).views[2]
    groups = {f"{row.values[1]} ({row.values[0]})": row.values[2] for row in answer.views[1].rows}
    assert len(found.rows) == groups[code]


def test_runs_count_their_cells() -> None:
    view = ask("runs", shipped("runs")).views[0]
    ((runs,),) = query("SELECT count(*) FROM runs")
    assert len(view.rows) == runs
    assert sum(view.column("ok")) == sum(run.ok for run in shipped("runs").runs)


def test_attention_says_its_speedup_by_latency_beside_gpu_time() -> None:
    by_gpu, by_latency = (
        ask("attention_speedups", shipped("attention"), {"against": "naive · compiled", "clock": clock})
        for clock in ("GPU time", "latency")
    )
    (counted,) = re.findall(r"faster in \d+ of \d+", by_latency.sentence)
    assert counted in by_gpu.more
    assert counted not in by_gpu.sentence
    assert "By latency" not in by_latency.more
