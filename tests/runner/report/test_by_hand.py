"""Three tables of a report and one of attention, computed by hand from the raw samples of a real sweep."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest

from runner.report.document import Report, ReportTable
from runner.report.report import load_report
from runner.report.rows import Scope
from tests.command import TINY, run

#: Two rounds of two contexts, a warm-up ablation, and attention.
SWEEPS = (
    (*TINY, "--contexts", "16,32", "--rounds", "2", "--warmup", "2", "--steps", "7", "--max-steps", "7"),
    (*TINY, "--warmup", "0,1,5", "--steps", "8", "--max-steps", "8", "--batch", "2"),
    shlex.split(
        "--experiment attention --attention naive --seq-lens 32,64 --d-heads 8 --batch 1 --precisions fp32 "
        "--backends eager --warmup 1 --steps 9 --max-steps 9 --rounds 1 --device cpu"
    ),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("by-hand") / "results.duckdb"
    for words in SWEEPS:
        done = run("sweep", *words, db=path)
        assert done.returncode == 0, done.stdout
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> Report:
    return load_report(file, Scope())


def tables_of(report: Report, question: str) -> Sequence[ReportTable]:
    return next(one.answer.tables for one in report.answered if one.id == question)


def lines_of(table: ReportTable) -> list[dict[str, str]]:
    return [dict(zip(table.headings, line.values, strict=True)) for line in table.lines]


def read_samples(file: Path, table: str, where: str) -> dict[str, dict[int, np.ndarray]]:
    """Returns measured samples (ms) by phase and round, in the order of the steps; `step` is the sum of its phases."""
    with duckdb.connect(str(file), read_only=True) as con:
        found = con.execute(f"""
            SELECT m.phase, c.round, m.step, m.duration_ms FROM samples m JOIN {table} c USING (cell_id)
            WHERE NOT m.is_warmup AND {where} ORDER BY m.step""").fetchall()
    phases: dict[str, dict[int, list[float]]] = {}
    for phase, number, _, milliseconds in found:
        phases.setdefault(phase, {}).setdefault(number, []).append(milliseconds)
    arrays = {phase: {number: np.array(ms) for number, ms in rounds.items()} for phase, rounds in phases.items()}
    parts = [arrays[name] for name in ("forward", "loss", "backward", "optimizer") if name in arrays]
    arrays.setdefault("step", {number: sum((part[number] for part in parts), np.zeros(1)) for number in parts[0]})
    return arrays


def shows(text: str, value: float) -> bool:
    """Returns whether a printed number is this value, rounded to the printed digits."""
    digits = len(text.partition(".")[2])
    step = 10.0**-digits if digits else 10.0 ** (len(text.replace(",", "")) - min(3, len(text.replace(",", ""))))
    return abs(float(text.replace(",", "")) - value) <= step / 2 * 1.001


def mean_std(text: str) -> tuple[str, str]:
    mean, _, std = text.partition(" ± ")
    return mean, std


def test_phases_of_a_step(file: Path, report: Report) -> None:
    """B1: the mean of the rounds' means, the root of the mean of their variances, and the geometric mean of the
    medians."""
    means, medians = map(lines_of, tables_of(report, "B1"))
    headings = {"forward": "Forward (ms)", "loss": "Loss (ms)", "backward": "Backward (ms)",
                "optimizer": "Optimizer (ms)", "step": "Whole step (ms)"}  # fmt: skip
    seen = 0
    for mean_line, median_line in zip(means, medians, strict=True):
        where = f"c.context = {mean_line['Context (tokens)']} AND c.batch = {mean_line.get('Batch (sequences)', '1')}"
        if mean_line.get("Batch (sequences)", "1") != "1":
            continue
        samples = read_samples(file, "steps", f"{where} AND c.warmup_steps = 2")
        for phase, heading in headings.items():
            rounds = list(samples[phase].values())
            assert [len(each) for each in rounds] == [7, 7]
            mean, std = mean_std(mean_line[heading])
            assert shows(mean, float(np.mean([each.mean() for each in rounds]))), (phase, mean_line)
            assert shows(std, float(np.sqrt(np.mean([each.var(ddof=1) for each in rounds]))))
            middle = float(np.exp(np.mean([np.log(np.sort(each)[3]) for each in rounds])))  # the 4th of 7
            assert shows(median_line[heading].split(" ")[0], middle)
        assert (mean_line["n"], median_line["Rounds"]) == ("14", "2")
        seen += 1
    assert seen == 2


def test_the_spread_of_a_step(file: Path, report: Report) -> None:
    """B2: std over mean, the minimum and maximum of all rounds, and the raw samples."""
    spread, raw = tables_of(report, "B2")
    for line in lines_of(spread):
        if line.get("Batch (sequences)", "1") != "1":
            continue
        rounds = list(
            read_samples(file, "steps", f"c.context = {line['Context (tokens)']} AND c.batch = 1")["step"].values()
        )
        mean = np.mean([each.mean() for each in rounds])
        std = np.sqrt(np.mean([each.var(ddof=1) for each in rounds]))
        assert line["Std / mean"] == f"{std / mean:.1%}"
        assert shows(line["Least (ms)"], float(np.concatenate(rounds).min()))
        assert shows(line["Most (ms)"], float(np.concatenate(rounds).max()))
    for line in lines_of(raw):
        assert re.fullmatch(r"(\([\d.,]+\) )+[\d.,]+( [\d.,]+)*", line["Whole steps in order (ms)"])


def test_warmup_counts(file: Path, report: Report) -> None:
    """B3: each count has one process with eight measured steps."""
    summary, early = tables_of(report, "B3")
    for line in lines_of(summary):
        count = int(line["Warm-up (steps)"])
        (steps,) = read_samples(file, "steps", f"c.batch = 2 AND c.warmup_steps = {count}")["step"].values()
        assert len(steps) == int(line["n"]) == 8
        mean, std = mean_std(line["Mean ± std (ms)"])
        assert shows(mean, float(steps.mean()))
        assert shows(std, float(np.sqrt(((steps - steps.mean()) ** 2).sum() / 7)))
        ordered = np.sort(steps)
        assert shows(line["Median (ms)"], float((ordered[3] + ordered[4]) / 2))
        assert shows(line["First measured (ms)"], float(steps[0]))
        assert shows(line["Slowest (ms)"], float(ordered[-1]))
        column = [row[f"After {count} (ms)"] for row in lines_of(early)]
        assert [text.startswith("(") for text in column[: count + 1]] == [True] * count + [False]
    assert [line["Warm-up (steps)"] for line in lines_of(summary)] == ["0", "1", "5"]


def test_attention_passes(file: Path, report: Report) -> None:
    (table,) = tables_of(report, "A1")
    lines = lines_of(table)
    assert [line["Sequence length (tokens)"] for line in lines] == ["32", "64"]
    for line in lines:
        samples = read_samples(file, "attention", f"c.seq_len = {line['Sequence length (tokens)']}")
        for phase in ("forward", "backward"):
            (passes,) = samples[phase].values()
            mean, std = mean_std(line[f"{phase.capitalize()}: mean ± std (ms)"])
            assert shows(mean, float(passes.mean()))
            assert shows(std, float(passes.std(ddof=1)))
            assert shows(line[f"{phase.capitalize()}: median (ms)"].split(" ")[0], float(np.sort(passes)[4]))
        assert line["n"] == "9"
