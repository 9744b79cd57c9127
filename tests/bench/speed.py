"""How fast is our model beside others of the same shape, each in a fresh process, measured by the runner itself?

    python -m tests.bench.speed --sizes small,large --db speed.duckdb
    python -m tests.bench.speed --sizes toy-64 --contexts 64 --seconds 120     # on a CPU
    python -m tests.bench.speed --seconds 0 --db speed.duckdb                  # measures nothing, shows existing rows

One real sweep measures training steps in one round: our Transformer as one would first write it (fp32, naive attention,
eager), and with every setting on (bf16, fused attention, fused AdamW, compiled); with the same settings, own models
from `tests/own/same_shape.py`: nanoGPT's style, transformers' Llama as it is and without the mask that it makes under
the compiler, and torchtune's layers. A model that cannot be built here is left out with the reason. A ratio is to ours
with the same backend, of the baseline to ours with the last one; above 1 ours is faster. Run it in the repository's
root. torchtune is none of our dependencies; its release 0.6.1 needs torchao 0.13.
Limits: one process a cell, so that ratios have no interval; on a CPU, which has no loop of steps that nobody waits for,
the step waited for takes its place. Of a cell that a file has several times, the latest counts.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

from runner.cli.progress import PlainLines
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.errors import StepscopeError
from runner.formats import format_number
from runner.job import OwnModelJob
from runner.plan.planning import Request
from runner.schema import Backend, StepCell
from runner.schema.axes import SHAPE
from runner.schema.own import parse_spec
from runner.schema.sizes import SIZES, shape_name, size_named
from runner.store.database import open_reader
from runner.sweep.prepare import Settings
from runner.sweep.start import sweep
from tests.bench.models import GOAL
from tests.bench.own import own_cell
from tests.bench.result import Result

SOURCE = "tests/own/same_shape.py"
OTHERS = "nano,llama,llama_causal,torchtune"
#: The options of the source's functions, in the order of a shape's numbers.
OPTIONS = ("width", "inner", "layers", "heads", "vocabulary")
SIZES_MEASURED, CONTEXTS, SECONDS, LABEL = "small,large,xl@2026", "512", 420.0, "speed"
#: By device, the compiled backends; the baseline is compared with the last.
BACKENDS: Mapping[str, tuple[Backend, ...]] = {
    "cuda": ("compiled", "compiled-reduce-overhead"),
    "cpu": ("compiled-block", "compiled"),
}
#: The settings with which one would train.
FAST = {"precision": "bf16", "attention": "sdpa", "optimizer": "fused"}
OURS, BASELINE = "ours", "ours, naive fp32"
#: The most that another model's FLOPs may differ from ours.
SAME_FLOPS = 0.02
#: How long a cell may measure, and how long it may take (s).
CELL_SECONDS, TIMEOUT = 1.0, 300.0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One measured cell. `ceiling` is the matrix rate of its run in its precision; what is unknown is None."""

    size: str
    context: int
    model: str
    backend: str
    status: str
    message: str | None
    flops: int | None
    flops_per_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    step_ms: float | None
    loop_ms: float | None
    device_ms: float | None
    ceiling: float | None

    @property
    def where(self) -> tuple[str, int]:
        """The size and the context, which models that are compared share."""
        return self.size, self.context

    @property
    def pace_ms(self) -> float | None:
        """The time of a step in a loop; on a CPU that of one that is waited for."""
        return self.loop_ms or self.step_ms

    @property
    def matmul_share(self) -> float | None:
        """The rate of a step's FLOPs as a share of the measured rate of matrix products."""
        return self.flops_per_s / self.ceiling if self.flops_per_s and self.ceiling else None


def spec_of(model: str, size: str) -> str:
    """Returns what `--model` takes for another model of a size."""
    numbers = size_named(size).numbers
    pairs = [f"{option}={numbers[name]}" for option, name in zip(OPTIONS, SHAPE, strict=True)]
    return ",".join([f"{SOURCE}:{model}", *pairs])


def make_cells(size: str, context: int, *, device: str, others: Sequence[str]) -> list[StepCell]:
    """Returns the baseline, and ours and the others with every setting on."""
    shape: dict[str, Any] = {**size_named(size).numbers, "context": context, "mode": "train"}
    cells = [StepCell(**shape, precision="fp32", max_seconds=CELL_SECONDS)]
    for backend in BACKENDS[device]:
        asked: dict[str, Any] = {**FAST, "backend": backend, "max_seconds": CELL_SECONDS}
        cells.append(StepCell(**shape, **asked))
        cells += [own_cell(spec_of(name, size), context=context, device=device, **asked) for name in others]
    return cells


def choose_others(names: Sequence[str], size: str, context: int, *, device: str) -> list[str]:
    """Returns those of the other models that can be built here; prints why the rest cannot."""
    found, engine = [], LocalEngine()
    for name in names:
        job = OwnModelJob(spec=spec_of(name, size), device=device, points=((StepCell.batch, context),))
        try:
            engine.describe_model(job)
        except StepscopeError as error:
            print(f"left out: {name}. {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def measure(sizes: Sequence[str], contexts: Sequence[int], models: Sequence[str], *, db: Path, seconds: float) -> None:
    """Measures every cell that the file does not have; where the other models end the sweep, only ours."""
    machine = LocalEngine().describe("auto")["device"]
    device = machine if machine in BACKENDS else "cpu"
    others = choose_others(models, sizes[0], contexts[0], device=machine)
    for names in (others, []):
        cells = [
            cell
            for size in sizes
            for context in contexts
            for cell in make_cells(size, context, device=device, others=names)
        ]
        command = f"python -m tests.bench.speed --sizes {','.join(sizes)} --contexts {','.join(map(str, contexts))}"
        settings = Settings(db=db, label=LABEL, budget_s=seconds, timeout_s=TIMEOUT, command=command)
        try:
            sweep(Request(cells=tuple(cells), rounds=1), settings, watcher=PlainLines(Terminal(stderr=True), db=db))
        except StepscopeError as error:
            print(f"the sweep ended: {error}", file=sys.stderr)
        else:
            return


def load_speeds(db: Path) -> list[Speed]:
    """Returns the latest row of every cell of this bench on the machine of the latest, by size and context."""
    columns = (
        "cell_key", "run_id", "model", *SHAPE, "context", "precision", "backend", "status", "message", "step_flops",
        "flops_per_s", "tokens_per_s", "mfu",
    )  # fmt: skip
    with open_reader(db) as reader:
        rows = reader.execute(
            f"SELECT r.device_name, {', '.join(f's.{name}' for name in columns)}, t.median_ms, t.loop_ms, t.device_ms "
            "FROM steps s JOIN runs r USING (run_id) "
            "LEFT JOIN (SELECT * FROM timings WHERE phase = 'step') t ON t.cell_id = s.cell_id "
            "WHERE r.label = ? AND s.mode = 'train' ORDER BY s.cell_id",
            [LABEL],
        ).fetchall()
        rates = reader.execute(
            "SELECT run_id, precision, max(flops_per_s) FROM ceilings WHERE ceiling = 'matmul' GROUP BY ALL"
        ).fetchall()
    ceilings = {(run, precision): rate for run, precision, rate in rates}
    names = ("device_name", *columns, "step_ms", "loop_ms", "device_ms")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    latest = {row["cell_key"]: row for row in found if row["device_name"] == found[-1]["device_name"]}
    order = [*SIZES]
    return sorted(
        (make_speed(row, ceilings) for row in latest.values()),
        key=lambda one: (
            order.index(one.size) if one.size in order else len(order),
            one.context,
            one.backend,
            one.model not in (OURS, BASELINE),
            one.model,
        ),
    )


def make_speed(row: Mapping[str, Any], ceilings: Mapping[tuple[UUID, str], float]) -> Speed:
    """Returns a row of the file as a speed; an own model's shape is in its options."""
    numbers, model = {name: row[name] for name in SHAPE}, OURS if row["backend"] != "eager" else BASELINE
    if row["model"]:
        spec = parse_spec(row["model"])
        model = spec.function
        numbers = {name: spec.options.get(option) for name, option in zip(SHAPE, OPTIONS, strict=True)}
    same = ("context", "backend", "status", "message", "flops_per_s", "tokens_per_s", "mfu")
    return Speed(
        size=shape_name(**numbers),
        model=model,
        flops=row["step_flops"],
        step_ms=row["step_ms"],
        loop_ms=row["loop_ms"],
        device_ms=row["device_ms"],
        ceiling=ceilings.get((row["run_id"], row["precision"])),
        **{name: row[name] for name in same},
    )


def find_ours(one: Speed, speeds: Sequence[Speed]) -> Speed | None:
    """Returns ours of the same size, context and backend; for the baseline ours with the last backend."""
    ours = {other.backend: other for other in speeds if other.model == OURS and other.where == one.where}
    last = next((backend for pair in BACKENDS.values() for backend in reversed(pair) if backend in ours), None)
    return ours.get(one.backend if one.model != BASELINE else last or "")


def divide(a: float | None, b: float | None) -> float | None:
    """Returns a ratio; None where a part of it is unknown."""
    return a / b if a and b else None


def show_table(speeds: Sequence[Speed], console: Console) -> None:
    """Prints a row for each cell."""
    titles = ("size", "context", "model", "backend", "loop ms", "device ms", "waited ms", "tokens/s", "TFLOP/s")
    shares = ("of matmul", "MFU", "loop/ours", "device/ours")
    table = Table(*titles, *shares, box=None, header_style="bold", pad_edge=False)
    for one in speeds:
        ours = find_ours(one, speeds)
        ratios = (divide(one.pace_ms, ours.pace_ms), divide(one.device_ms, ours.device_ms)) if ours else (None, None)
        numbers = (one.loop_ms, one.device_ms, one.step_ms, one.tokens_per_s, divide(one.flops_per_s, 1e12))
        known = [*numbers, *(divide(share, 0.01) for share in (one.matmul_share, one.mfu))]
        texts = ["–" if number is None else format_number(number) for number in known]
        texts[5:] = [text if text == "–" else f"{text} %" for text in texts[5:]]
        texts += ["–" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        failed = [] if one.status == "ok" else [f"{one.status}: {one.message or ''}"[:60]]
        table.add_row(one.size, str(one.context), one.model, one.backend, *(failed or texts))
    console.print(table)


def judge(speeds: Sequence[Speed]) -> Iterator[Result]:
    """Yields of every other model its FLOPs and its times over ours, and of every cell that failed the reason."""
    for one in speeds:
        name = f"{one.model}, {one.size} at {one.context}, {one.backend}"
        ours = find_ours(one, speeds)
        if one.status != "ok":
            yield Result(name=name, figure=f"{one.status}: {one.message or ''}"[:120])
        elif ours is not None and ours.status == "ok" and one is not ours:
            flops, is_other = divide(one.flops, ours.flops), one.model != BASELINE
            yield Result(
                name=f"FLOPs of {name} / ours",
                figure="unknown" if flops is None else f"{flops:.4f}, ours {(ours.flops or 0) / 1e9:.1f} GFLOP",
                goal=f"1 within {SAME_FLOPS:.0%}",
                met=flops is not None and abs(flops - 1) <= SAME_FLOPS,
            )
            device, pace = divide(one.device_ms, ours.device_ms), divide(one.pace_ms, ours.pace_ms)
            ratio, clock = device or pace, "loop" if one.loop_ms else "waited for"
            words = [f"{ratio:.3f} {what}" for ratio, what in ((device, "device"), (pace, clock)) if ratio]
            yield Result(
                name=f"step of {name} / ours",
                figure=", ".join(words),
                goal=f"at least {GOAL}" if is_other else "",
                met=ratio is not None and ratio >= GOAL if is_other else None,
            )


def run(
    *,
    sizes: str = SIZES_MEASURED,
    contexts: str = CONTEXTS,
    models: str = OTHERS,
    seconds: float = SECONDS,
    db: Path | None = None,
) -> list[Result]:
    path = db or Path(tempfile.mkdtemp(prefix="stepscope-speed-"), "speed.duckdb")
    if seconds > 0:
        numbers = [int(text) for text in contexts.split(",")]
        measure(sizes.split(","), numbers, models.split(","), db=path, seconds=seconds)
    print(f"rows: {path}", file=sys.stderr)
    speeds = load_speeds(path)
    for one in speeds:
        if one.ceiling and one.model in (OURS, BASELINE) and one.where == speeds[0].where:
            print(f"matrix rate in the precision of {one.model}, {one.backend}: {one.ceiling / 1e12:.4g} TFLOP/s")
    show_table(speeds, Terminal(width=None if sys.stdout.isatty() else 180))
    return [*judge(speeds)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Our model beside others of the same shape, by the runner.")
    parser.add_argument("--sizes", default=SIZES_MEASURED, help="names of sizes, with commas")
    parser.add_argument("--contexts", default=CONTEXTS, help="tokens of a sequence, with commas")
    parser.add_argument("--models", default=OTHERS, help="functions of the source, with commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no cell starts after this time; 0: none at all")
    parser.add_argument("--db", type=Path, help="the results file, which is added to [default: a new one]")
    table = Table("bench", "figure", "goal", "met", box=None, header_style="bold", pad_edge=False)
    for result in run(**vars(parser.parse_args())):
        met = {True: "yes", False: "NO", None: ""}[result.met]
        table.add_row(result.name, result.figure, result.goal, met)
    Terminal(width=None if sys.stdout.isatty() else 180).print(table)


if __name__ == "__main__":
    main()
