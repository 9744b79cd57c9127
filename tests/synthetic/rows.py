"""Synthetic rows for tests of what reads them; they look like measurements.

    store(path, of := run(), [ok(of, asked("toy-64", mode="train", precision="bf16"))])

Times follow simple formulas (`step_ms`), so that a test can compute by hand what a chart must show. They are written
through the real spool and the real ingest.
"""

import random
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from runner.schema import (
    PHASES,
    Phase,
    PlanRow,
    PlanState,
    RunRow,
    SampleRow,
    StepCell,
    StepRow,
    TimingRow,
    new_id,
    utc_now,
)
from runner.store.database import open_writer
from runner.store.spool import Spool
from runner.sweep.loop import ingest_all

TOYS: dict[str, dict[str, Any]] = {
    "toy-64": {"d_model": 64, "d_ff": 192, "layers": 2, "heads": 2, "vocabulary": 2048},
    "toy-128": {"d_model": 128, "d_ff": 384, "layers": 3, "heads": 4, "vocabulary": 2048},
    "toy-256": {"d_model": 256, "d_ff": 768, "layers": 4, "heads": 8, "vocabulary": 2048},
}
#: The share of each phase in a step, and how fast each precision and backend is compared with fp32 and eager.
SHARES: dict[Phase, float] = {"forward": 0.30, "loss": 0.02, "backward": 0.56, "optimizer": 0.12}
FASTER = {"fp32": 1.0, "tf32": 1.6, "bf16": 2.0, "fp16": 1.9, "eager": 1.0, "compiled": 1.25, "compiled-block": 1.2}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of one cell."""

    step: StepRow
    timings: tuple[TimingRow, ...] = ()
    samples: tuple[SampleRow, ...] = ()


def run(**values: Any) -> RunRow:
    """Returns one sweep on a machine that does not exist."""
    rest: dict[str, Any] = {
        "sweep_key": "0" * 16, "preset": "laptop", "argv": "python -m runner sweep", "started_at": utc_now(),
        "host": "bench1", "os": "Linux 6.12", "device": "cpu", "device_name": "Example CPU", "torch": "2.13.0",
        "device_memory_bytes": 8 * 2**30, "python": "3.11.9", "git_commit": "abcdef1", "git_dirty": False, **values,
    }  # fmt: skip
    return RunRow(run_id=rest.pop("run_id", None) or new_id(), **rest)


def key_of(cell: Any) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in type(cell).names()}


def asked(size: str = "toy-64", **values: Any) -> StepCell:
    """Returns a cell of a toy size."""
    return StepCell(**{"context": 128, "mode": "train", "precision": "fp32", **TOYS[size], **values})


def step_ms(cell: StepCell) -> float:
    """Returns the median time of a synthetic cell: its work divided by the gain of its precision and backend."""
    work: float = cell.shape.layers * cell.shape.d_model**1.5 * cell.context / 20_000
    return work / FASTER[cell.precision] / FASTER.get(cell.backend, 1.1)


def ok(of: RunRow, cell: StepCell, *, round: int = 0, steps: int = 11, slower: float = 1.0) -> Rows:
    """Returns a cell that worked: `steps` measured steps, symmetric about `step_ms`, the first warm-up step 6 times as
    long; all times are longer by the factor `slower`."""
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    phases = PHASES[cell.mode]
    noise = random.Random(f"{cell.key} {round}")
    whole = sum(SHARES[phase] for phase in phases)
    samples = []
    for step in range(cell.warmup_steps + steps):
        cold = {0: 6.0, 1: 1.3}.get(step, 1.0)
        place = (step - cell.warmup_steps) - (steps - 1) / 2
        factor = cold if step < 2 else 1 + 0.004 * place + noise.uniform(-1e-4, 1e-4) * (place != 0)
        for phase in phases:
            ms, is_warmup = step_ms(cell) * SHARES[phase] / whole * factor * slower, step < cell.warmup_steps
            samples.append(SampleRow(**ids, phase=phase, step=step, duration_ms=ms, is_warmup=is_warmup))
    timings = tuple(_timings(samples, phases))
    total = next(timing for timing in timings if timing.phase == "step").median_ms or 0.0
    row = _row(
        of, cell, cell_id=ids["cell_id"], round=round, status="ok", steps=steps, phase_sum_share=0.999,
        parameters=12 * cell.shape.layers * cell.shape.d_model**2, cell_seconds=1.5,
        tokens_per_s=cell.batch * cell.context / total * 1e3,
        compile_seconds=8.5 if cell.backend != "eager" else None,
    )  # fmt: skip
    return Rows(step=row, timings=timings, samples=tuple(samples))


def failed(of: RunRow, cell: StepCell, *, status: str = "oom", phase: str = "backward", message: str = "") -> Rows:
    """Returns a cell without a result."""
    message = message or "tried to allocate 2.5 GiB; 1.1 GiB are free"
    return Rows(step=_row(of, cell, cell_id=new_id(), status=status, failed_phase=phase, message=message))


def _row(of: RunRow, cell: StepCell, **values: Any) -> StepRow:
    return StepRow(**key_of(cell), run_id=of.run_id, cell_key=cell.key, started_at=utc_now(), **values)


def _timings(samples: Sequence[SampleRow], phases: Sequence[Phase]) -> Iterable[TimingRow]:
    measured = [row for row in samples if not row.is_warmup]
    by_phase = {phase: [row.duration_ms for row in measured if row.phase == phase] for phase in phases}
    by_phase["step"] = [sum(values) for values in zip(*by_phase.values(), strict=True)]
    if "backward" in by_phase:
        by_phase["forward_backward"] = [sum(v) for v in zip(by_phase["forward"], by_phase["backward"], strict=True)]
    for phase, values in by_phase.items():
        ordered = sorted(values)
        yield TimingRow(
            run_id=samples[0].run_id, cell_id=samples[0].cell_id, phase=phase, n=len(values), clock="host",
            median_ms=median(values), mean_ms=fmean(values), std_ms=stdev(values),
            low_ms=ordered[1], high_ms=ordered[-2],
        )  # fmt: skip


def laptop(of: RunRow) -> list[Rows]:
    """Returns a whole small sweep: three sizes, three contexts, two precisions, some compiled cells, a warm-up
    ablation, and failures."""
    cells = [
        asked(size, context=context, precision=precision)
        for size in TOYS
        for context in (64, 128, 256)
        for precision in ("fp32", "bf16")
    ]
    cells += [
        asked(size, context=128, precision=precision, backend="compiled-block")
        for size in ("toy-128", "toy-256")
        for precision in ("fp32", "bf16")
    ]
    cells += [asked(size, context=128, mode="inference") for size in TOYS]
    rows = [ok(of, cell) for cell in cells if not (cell.d_model == 256 and cell.context == 256)]
    rows += [ok(of, asked("toy-256", warmup_steps=n, min_steps=10, max_steps=10), steps=10) for n in (0, 1, 2, 5)]
    late = asked("toy-256", context=256, precision="bf16")
    rows.append(failed(of, asked("toy-256", context=256)))
    rows.append(failed(of, late, status="timeout", phase="warmup", message="no result within 60 s"))
    return rows


def store(path: Path, of: RunRow, cells: Sequence[Rows]) -> Path:
    """Writes the run and its cells into the file, through the spool."""
    return store_tables(path, [_tables(of, rows) for rows in cells])


def store_tables(path: Path, cells: Iterable[Mapping[str, Sequence[object]]]) -> Path:
    """Writes the rows of cells by table into the file, and ingests its spool. One spool file holds them all: one
    transaction a cell would take most of the time of the tests' fixtures."""
    together: dict[str, list[object]] = {}
    for tables in cells:
        for name, rows in tables.items():
            together.setdefault(name, []).extend(rows)
    if together:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_make_empty_file())
        Spool(path).write(together, str(new_id()))
    ingest_all(path)
    return path


@cache
def _make_empty_file() -> bytes:
    """Returns a file with empty tables; creating them is half the time of storing a few rows."""
    with tempfile.TemporaryDirectory() as folder:
        with open_writer(path := Path(folder) / "empty.duckdb", patience_s=0.0):
            pass
        return path.read_bytes()


def spooled(path: Path, of: RunRow, rows: Rows) -> None:
    """Writes one finished cell where a running sweep would."""
    Spool(path).write(_tables(of, rows), str(rows.step.cell_id))


def _tables(of: RunRow, rows: Rows) -> dict[str, Sequence[object]]:
    return {"runs": [of], "steps": [rows.step], "timings": rows.timings, "samples": rows.samples}


def plan(of: RunRow, titles: Sequence[str], *, done: int, age_s: float = 0.0) -> list[PlanRow]:
    """Returns the plan of a running sweep: `done` cells are measured, one is being measured, the rest wait."""
    beat = utc_now() - timedelta(seconds=age_s)
    states: list[PlanState] = ["running" if place == done else "waiting" for place in range(len(titles))]
    states[:done] = ["done"] * done
    return [
        PlanRow(
            run_id=of.run_id, position=position, experiment="benchmark", cell_key=f"{position:016x}", round=0,
            title=title, state=state, status="ok" if state == "done" else None, seconds=2.0, heartbeat_at=beat,
        )
        for position, (title, state) in enumerate(zip(titles, states, strict=True))
    ]  # fmt: skip
