"""The noise of this machine between processes, the smallest difference that it can resolve, and where it may come from.

python -m runner doctor --noise
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.analysis.statistics import resolvable
from runner.cli.progress import PlainLines
from runner.cli.terminal import Terminal
from runner.errors import INTERRUPTED_CODE
from runner.formats import format_duration, format_ms, format_number
from runner.measure.machine.disturbances import Disturbance, find_disturbances, measure_pace, read_load
from runner.results.times import Clock
from runner.schema import Bound, Row, TimingRow
from runner.sweep.noise import KindNoise, ProcessMedians, repeat_cells, summarize_kinds
from runner.sweep.prepare import Prepared
from runner.sweep.spent import Spent

#: How long the load of others is looked at before anything is measured (s).
LOAD_SECONDS = 1.0
#: How long the pace of a core is measured before the cells and after them (s).
PACE_SECONDS = 4.0
_KINDS: Mapping[Bound | None, str] = {
    "host": "Cells that the host bounds",
    "device": "Cells that the device bounds",
    None: "Cells on this device",
}
_CLOCKS: Mapping[Clock, str] = {"step": "waited for", "loop": "in a loop", "device": "on the device alone"}


def print_noise(console: Terminal, device: str, machine: Mapping[str, Any]) -> int:
    """Measures the noise of a device on this machine and prints it. Stores nothing. Returns the exit code: 0, 1 if
    nothing could be measured, or 130 if interrupted."""
    load = read_load(LOAD_SECONDS)
    watcher = _NoiseLines(console)
    try:
        pace = measure_pace(PACE_SECONDS)
        repeat_cells(device, kind=machine["device"], watcher=watcher)
        pace += measure_pace(PACE_SECONDS)
    except KeyboardInterrupt:
        console.say("Interrupted. Nothing was stored.")
        return INTERRUPTED_CODE
    kinds = summarize_kinds(watcher.repetitions)
    for kind in kinds:
        console.say("")
        for line in describe_kind(kind):
            console.say(line)
    console.say("")
    if not kinds:
        console.say("No cell was measured in two processes, so that the noise is unknown.")
        return 1
    console.say("Where noise may come from:")
    for found in find_disturbances(load, pace):
        console.say(f"  {_format_disturbance(found)}")
    return 0


class _NoiseLines(PlainLines):
    """The lines of a sweep without a file that anyone could look at, and every repetition."""

    def __init__(self, console: Terminal) -> None:
        super().__init__(console, db=Path())
        self.repetitions: list[ProcessMedians] = []

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self.total = total
        where = f"{prepared.machine['device_name']} · torch {prepared.machine['torch']}"
        cells = len({key for key, _ in (item.id for item in prepared.cells)})
        many = f"{cells} cells in {total // cells} processes each"
        self.console.say(f"{where} · {many} · about {format_duration(left_s)} · nothing is stored")

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        super().finished(row, timings, left_s=left_s)
        self.repetitions.append(ProcessMedians.of(row, timings))

    def ended(self, *, statuses: Mapping[str, int], out_of_budget: int, spent: Spent) -> None:
        """Prints nothing, because the noise follows."""


def describe_kind(kind: KindNoise) -> list[str]:
    """Says how far the medians of equal cells lie apart, and which differences that leaves to be seen."""
    cells = [
        f"  {name}: {len(medians)} processes, {format_number(min(medians))}–{format_ms(max(medians))}"
        for name, medians in kind.medians_ms.items()
    ]
    one, five = (_format_share(resolvable(kind.noise, rounds=rounds)) for rounds in (1, 5))
    return [
        f"{_KINDS[kind.bound]}, {_CLOCKS[kind.clock]}:",
        *cells,
        f"  Medians of equal cells differ by a standard deviation of {_format_share(kind.noise.std)} "
        f"(degrees of freedom: {kind.noise.dof:g}).",
        f"  One pair of cells, one process each, resolves {one}; five rounds each resolve {five}.",
    ]


def _format_share(share: float) -> str:
    """Returns a share in percent with two digits: `0.37%`, `4.1%`, `12%`."""
    digits = 2 if share < 0.01 else 1 if share < 0.1 else 0
    return f"{share:.{digits}%}"


def _format_disturbance(found: Disturbance) -> str:
    return f"{found.seen} {found.advice}".strip()
