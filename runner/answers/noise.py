"""How much do equal cells differ between processes, and which differences can be resolved?"""

from collections.abc import Sequence
from uuid import UUID

from runner.analysis.audit.time_rules import Canary, judge_canary
from runner.analysis.statistics import resolvable
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import cells_of
from runner.answers.words import CLOCKS, lacks
from runner.formats import format_list, format_number, join_parts
from runner.results.rows import MachineNoise, Rows
from runner.results.times import RepeatedCell
from runner.schema.sizes import title

#: How often each cell of a pair is measured where one process decides too little.
ROUNDS = 5
KIND = Field("kind", "Cells")
CLOCK = Field("clock", "Clock")
STD = Field(
    "std_percent",
    "Typical standard deviation",
    unit="percent",
    role="value",
    doc="Of ln(median) of a whole step from one process to the next: of a typical cell, the geometric mean over those "
    "that one run repeated. Some vary more, which what a pair decides allows for.",
)
ONE = Field(
    "one_percent",
    "Resolved by one pair",
    unit="percent",
    role="note",
    doc="The difference that half the pairs of processes with it resolve.",
)
FIVE = Field("five_percent", f"Resolved by {ROUNDS} pairs", unit="percent", role="note")
CELLS = Field("repeated", "Repeated cells", role="note")
PROCESS = Field("process", "Process", doc="In the order of their starts.")
MEDIAN = Field.of("timings", "median_ms", "value")
LOW, HIGH = Field.of("timings", "low_ms", "low"), Field.of("timings", "high_ms", "high")
STARTED = Field.of("steps", "started_at", "note")
CHANGE = Field("change_percent", "Against the first", unit="percent", role="note")
_BOUNDS = {"device": "GPU-bound", "host": "CPU-bound", None: "bound is not known"}


def answer(rows: Rows, asked: Asked) -> Answer:
    devices = dict.fromkeys(join_parts(one.machine, one.device) for one in rows.noise)
    of_run: dict[UUID, list[RepeatedCell]] = {}
    for one in rows.repeated:
        of_run.setdefault(one.run_id, []).append(one)
    judged = [(run, found) for run in rows.runs if (found := judge_canary(of_run.get(run.run_id, [])))]
    told = {run.device_uuid for run, found in judged if found.drifts is not None}
    # The one of which most is known, of those whose canary says whether the machine changed.
    most = max(
        rows.noise,
        key=lambda one: (one.device in told or not one.device, one.table == "steps", one.noise.cells),
        default=None,
    )
    usual = join_parts(most.machine, most.device) if most else ""
    device = choose(asked, "device", "Device", list(devices), default=usual)
    known = [one for one in rows.noise if join_parts(one.machine, one.device) == device.chosen]
    if not known:
        words = "no cell was measured in several processes by one run, so what varies between processes is not known"
        return Answer(missing=lacks(words))
    kinds = _draw_kinds(known)
    canaries = {
        run.name: found
        for run, found in judged
        if found.cell.machine == known[0].machine and known[0].device in ("", run.device_uuid)
    }
    latest = next((name for name, one in canaries.items() if one.drifts is not None), "")
    run = choose(asked, "canary", "Canary of run", list(canaries), default=latest)
    canary = canaries.get(run.chosen)
    return Answer(
        sentence=_say(kinds),
        more=_say_canary(canary) if canary else "",
        views=(kinds, *([_draw_canary(canary)] if canary else [])),
        choices=(*([device] if len(device.options) > 1 else []), *([run] if canary else [])),
        cells=cells_of([canary.cell]) if canary else {},
    )


def _draw_kinds(known: Sequence[MachineNoise]) -> View:
    clocks = {name: words for words, name in CLOCKS.items()}
    has_bounds = any(one.bound for one in known)
    lines = []
    for one in sorted(known, key=lambda one: (one.table != "steps", one.bound or "", [*clocks].index(one.clock))):
        least = [resolvable(one.noise, rounds=rounds) for rounds in (1, ROUNDS)]
        resolved = [100 * share if share < 1 else None for share in least]
        # GPU time is set by the GPU, also that of cells for which it waits.
        kind = f"{one.table}, {_BOUNDS[one.bound]}" if has_bounds and one.clock != "device" else one.table
        values = (kind, clocks[one.clock], 100 * (one.noise.typical or one.noise.std), *resolved, one.noise.cells)
        lines.append(Row(values=values))
    return View(
        name="noise",
        title="Noise between processes",
        about=f"{join_parts(known[0].machine.split(' · ')[0], known[0].device[:8])} · whole steps",
        fields=(KIND, CLOCK, STD, ONE, FIVE, CELLS),
        rows=tuple(lines),
        draw=Draw("dots", "std_percent", down=("kind", "clock"), log="x", beside=("one_percent",)),
        note="Resolved: half the pairs of cells with this difference are decided; empty where one of 2× is not.",
    )


def _draw_canary(canary: Canary) -> View:
    lines, first = [], canary.cell.rounds[0].time.median_ms
    for place, one in enumerate(canary.cell.rounds, 1):
        started = f"{one.started_at:%Y-%m-%d %H:%M:%S}" if one.started_at else ""
        times = (one.time.median_ms, one.time.low_ms, one.time.high_ms, 100 * (one.time.median_ms / first - 1))
        lines.append(Row.of(one, place, *times, started))
    return View(
        name="canary",
        title=f"One cell over a run: {title(canary.cell.cell)}",
        about=f"{canary.cell.machine.split(' · ')[0]} · latency",
        fields=(PROCESS, MEDIAN, LOW, HIGH, CHANGE, STARTED),
        rows=tuple(lines),
        draw=Draw("lines", "median_ms", across="process"),
        note="The cell that this run measured in most processes. With the 95% interval within each.",
    )


def _say(view: View) -> str:
    """Says the noise of whole steps by latency for each bound, and what one pair of processes resolves."""
    rows = [row for row in view.rows if row.values[0].startswith("steps") and row.values[1] == "latency"]
    rows = rows or list(view.rows[:1])
    parts = list[str]()
    for row in rows:
        least, bound = view.get(row, "one_percent"), row.values[0].partition(", ")[2]
        which = f" where the {bound}" if bound == _BOUNDS[None] else f" in {bound} cells" if bound else ""
        shows = "" if parts else "one pair of processes resolves "
        shows += f"{format_number(least)}% and more" if least else "nothing below 2×"
        parts.append(f"**{format_number(view.get(row, 'std_percent'))}%**{which} ({shows})")
    return f"Between processes the latency of a step typically varies by {format_list(parts)}."


def _say_canary(canary: Canary) -> str:
    if canary.drifts is None:
        return "The canary of this run has too few processes to tell a change of the machine from noise."
    if not canary.drifts:
        return "The canary of this run shows no lasting change of the machine."
    return f"The machine changed during this run: its canary went {format_list([one.change for one in canary.drifts])}."


QUESTION = Question(answer=answer, needs=("noise", "repeated", "runs"))
