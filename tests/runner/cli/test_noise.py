"""`python -m runner doctor --noise`: real processes, the sentences about them and Ctrl-C; verdicts computed by hand."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.cli.noise import describe_kind
from runner.measure.machine import disturbances
from runner.measure.machine.disturbances import Load, find_disturbances, measure_pace, read_load
from runner.schema import Bound
from runner.sweep.noise import ProcessMedians, noise_cells, summarize_kinds
from tests.command import PATIENCE_S, ROOT, family, gone, tiny
from tests.synthetic import rows

RUN = rows.run()


def repeated(context: int, *medians: float, bound: Bound | None = None, shares: float = 1.0) -> list[ProcessMedians]:
    """Returns a cell in one process for each median; the device alone takes these shares of the time."""
    found = []
    for number, ms in enumerate(medians):
        cell = rows.ok(RUN, tiny(context=context), round=number)
        timings = [replace(timing, median_ms=ms, device_ms=ms * shares if bound else None) for timing in cell.timings]
        found.append(ProcessMedians.of(replace(cell.step, bound=bound), timings))
    return found


@pytest.mark.soak
def test_the_noise_of_real_processes(tmp_path: Path) -> None:
    cells = (tiny(), tiny(context=32))
    with (
        patch("runner.sweep.noise.PROCESSES", 2),
        patch("runner.cli.noise.LOAD_SECONDS", 0.1),
        patch("runner.cli.noise.PACE_SECONDS", 0.1),
        patch("runner.sweep.noise.noise_cells", lambda kind: cells),
        patch("tempfile.tempdir", str(tmp_path)),
    ):
        done = CliRunner().invoke(app, ["doctor", "--noise", "--device", "cpu"], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    assert "2 cells in 2 processes each" in done.output
    assert done.output.count("  ok  ") == 4
    assert "toy-64 · 16 · train · fp32 · eager · exactly 3 steps · batch 1 · warm-up 1: 2 processes, " in done.output
    assert "(degrees of freedom: 1)" in done.output, (
        "two cells in two processes have 2 degrees of freedom, of which half count"
    )
    assert "one process each, resolves " in done.output
    assert "while nothing was measured" in done.output
    assert not list(tmp_path.glob("stepscope-noise-*")), "nothing is stored"


@pytest.mark.soak
def test_a_device_that_is_missing_is_one_clear_error() -> None:
    done = CliRunner().invoke(app, ["doctor", "--noise", "--device", "tpu"])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


@pytest.mark.soak
def test_an_interrupt_ends_the_command_and_leaves_no_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "doctor", "--noise", "--device", "cpu"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "300"},
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    while "[ 1/" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    everyone = family(process)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 130
    assert output.splitlines()[-1] == "Interrupted. Nothing was stored."
    assert "Traceback" not in output
    assert gone(everyone)
    assert not list(tmp_path.glob("stepscope-noise-*"))


def test_each_kind_has_its_own_noise_computed_by_hand() -> None:
    """Two values 0.2 apart have a variance of 0.02. Two such cells pool to the same, and their 2 degrees of freedom
    count as 1."""
    low, high = 10.0, 10.0 * math.exp(0.2)
    cells = [*repeated(16, low, high), *repeated(32, 2 * low, 2 * high), *repeated(64, 7.0)]
    (kind,) = summarize_kinds(cells)
    assert (kind.bound, kind.clock, len(kind.medians_ms)) == (None, "step", 2)
    assert kind.noise.std == pytest.approx(math.sqrt(0.02))
    assert (kind.noise.dof, kind.noise.cells) == (1.0, 2)
    cells = [*repeated(16, low, high, bound="host"), *repeated(32, low, 1.01 * low, bound="device", shares=0.95)]
    found = {(kind.bound, kind.clock): kind for kind in summarize_kinds(cells)}
    assert list(found) == [("host", "step"), ("host", "device"), ("device", "step"), ("device", "device")]
    assert found["device", "device"].noise.std == pytest.approx(math.log(1.01) / math.sqrt(2))
    assert summarize_kinds(repeated(16, 5.0)) == []


def test_the_sentences_about_a_kind() -> None:
    """Nine processes with an ln(median) of ±0.01 around the middle one have a std of 0.01 and 2 degrees of freedom, so
    t is 9.925."""
    (kind,) = summarize_kinds(repeated(16, *[10 * math.exp(0.01 * side) for side in (-1, 1) * 4], 10.0))
    first, cell, spread, power = describe_kind(kind)
    assert first == "Cells on this device, waited for:"
    assert cell.endswith("9 processes, 9.90–10.1 ms")
    assert spread.endswith("standard deviation of 1.0% (degrees of freedom: 2).")
    # e^(9.925 · 0.01 · √2) - 1 = 15.1%. With five rounds t is 3.707 for 6: e^(3.707 · 0.01 · √0.4) - 1 = 2.37%.
    assert power == "  One pair of cells, one process each, resolves 15%; five rounds each resolve 2.4%."


@pytest.mark.parametrize("kind", ["cuda", "cpu", "mps"])
def test_the_cells_of_every_device_are_valid(kind: str) -> None:
    first, second = noise_cells(kind)
    assert first.key != second.key


def advice(load: Load, pace: Sequence[float] = (10.0,) * 20) -> dict[str, str]:
    return {found.seen: found.advice for found in find_disturbances(load, pace)}


def test_a_core_that_is_sometimes_slower_is_named() -> None:
    """90 of 100 times are 10.2 ms and 10 are 17 ms, so the 95th percentile is 17 ms."""
    quiet = Load(busy=0.0, stolen=0.0)
    shared = advice(quiet, [10.2] * 90 + [17.0] * 10)
    assert (
        "use an instance with cores of its own"
        in shared["Equal work takes 10.2 ms of CPU time on one core at some moments and 17 ms at others."]
    )
    assert (
        advice(quiet, [10.2] * 50 + [11.0] * 50)["Equal work takes equal CPU time on one core: 10.2 ms to 11 ms."] == ""
    )
    assert min(measure_pace(0.1)) > 0


def test_other_load_and_time_taken_by_the_hypervisor_are_named() -> None:
    quiet, busy = advice(Load(busy=0.04, stolen=0.0)), advice(Load(busy=0.5, stolen=0.03))
    assert quiet["Others took 4% of the CPU while nothing was measured."] == ""
    assert "`top` names it" in busy["Others took 50% of the CPU while nothing was measured."]
    assert "dedicated cores" in busy["The host took 3% of the CPU from this virtual machine for others."]
    now = read_load(0.1)
    assert 0 <= now.stolen <= now.busy <= 1


def test_governor_quota_and_shared_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine as described by Linux under /sys: two CPUs on powersave, two threads a core, a quota of 1.5 CPUs."""
    for number in (0, 1):
        (tmp_path / f"cpu{number}/cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{number}/cpufreq/scaling_governor").write_text("powersave\n")
    (tmp_path / "smt").mkdir()
    (tmp_path / "smt/active").write_text("1\n")
    monkeypatch.setattr(disturbances, "_CPUS", tmp_path)
    monkeypatch.setattr(disturbances, "cpu_quota", lambda: 1.5)
    found = advice(Load(busy=0.0, stolen=0.0))
    assert "frequency-set -g performance" in found["The frequency governor of the CPU is powersave."]
    assert "OMP_NUM_THREADS" in found["Two hardware threads share each core (SMT)."]
    assert "cpuset" in found["The container may use 1.5 CPUs' time and is stopped once that is used up."]
    for number in (0, 1):
        (tmp_path / f"cpu{number}/cpufreq/scaling_governor").write_text("performance\n")
    assert advice(Load(busy=0.0, stolen=0.0))["The frequency governor of the CPU is performance."] == ""
