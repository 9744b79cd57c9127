"""Audits times: rules about samples, their summaries, the host's clock and the GPU's state, for whole steps and for
attention alike. Each rule's name is its finding's code.

Changes of the machine during a run are found from the rounds of its canary and the noise of its other cells. The canary
is the cell that the run measured in most processes; of several, the first that was measured. The noise is
that of the run's other repeated cells in the same table that are bound by the same side. Two rounds of the canary
differ where that noise, and what the samples within each process account for, explain their difference in less than 1%
of runs: the level is divided by the number of pairs of rounds (Bonferroni). Limits: with fewer than MIN_ROUNDS rounds,
or without other repeated cells, nothing can be said.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from runner.analysis.audit.findings import Drift, Found, RowContext, Rule, doubt, fault, note
from runner.analysis.noise import estimate_noise
from runner.analysis.statistics import DECIDED, MIN_DIFFERENCE, estimate, student_quantile
from runner.formats import format_ms
from runner.results.times import Estimate, RepeatedCell, find_bound, find_shift
from runner.schema import AttentionRow, Phase, StepRow

Timed = StepRow | AttentionRow

MIN_STEPS = 10
#: A first step this many times the median of the others was cold.
COLD = 1.5
#: A standard deviation this large a share of the mean, where no samples say why, is that of one cold step among others.
SPREAD = 0.3
#: Steps whose last third is this much slower or faster than the first have drifted.
DRIFT = 0.10
#: A median known no better than this (width of its interval over itself) decides little.
WIDE = 0.10
#: Backward takes about twice as long as forward; what lies outside these is no backward pass in the device's memory.
MIN_RATIO, MAX_RATIO = 0.5, 20.0
#: A backward pass shorter than this may be autograd's own work on the host, whatever forward takes (ms).
HOST_MS = 1.0
#: A peak predicted beyond this share of the device's memory may have spilled to the host's.
FULL = 0.8
#: Where the host's clock over the phases is at least this share of the device's, the device waited for the host.
HOST_BOUND = 0.99
#: Pages that are handed out in a measured step, and their share of its time, beyond which they are worth a note. The
#: fastest of 100 minor faults of 4 KiB took 0.58 µs on a desktop (https://ddumbying.vercel.app/experiments/
#: pagefault-latency), and 3 µs in a virtual machine.
MANY_FAULTS, FAULT_MS, FAULT_SHARE = 100, 0.0005, 0.05
#: Nothing is computed so early in a cell (s). On an H200 the driver named the reason that held for the cell before.
EARLY_SECONDS = 0.3
_COMPUTING: tuple[Phase, ...] = ("forward", "loss", "backward")


def too_few_samples(row: Timed, seen: RowContext) -> Found:
    if row.steps is not None and row.steps < MIN_STEPS:
        sentence = f"Only {row.steps} steps were measured; {MIN_STEPS} are the least for an interval worth having."
        yield doubt("too_few_samples", sentence, steps=row.steps)


def wide_interval(row: Timed, seen: RowContext) -> Found:
    timing = seen.timings.get("step")
    if timing is None or timing.low_ms is None or timing.high_ms is None or not timing.median_ms:
        return
    share = (timing.high_ms - timing.low_ms) / timing.median_ms
    if share > WIDE:
        sentence = f"The median step is known only to ±{share * 50:.0f}%: measure longer or on a quieter machine."
        yield doubt("wide_interval", sentence, interval_share=share)


def cold_step(row: Timed, seen: RowContext) -> Found:
    """Finds a cold first step from the samples or, where only mean and spread are known, from those."""
    if len(seen.step_ms) >= MIN_STEPS:
        first, usual = seen.step_ms[0], statistics.median(seen.step_ms[1:])
        if first > COLD * usual:
            sentence = f"The first measured step took {format_ms(first)} and the others {format_ms(usual)}: warm up "
            yield doubt("cold_step", f"{sentence}longer.", first_ms=first, median_ms=usual)
    elif not seen.step_ms:
        known = [(name, one) for name, one in seen.timings.items() if one.median_ms is None]
        means = (judge_mean(name, one.mean_ms, one.std_ms, one.n) for name, one in known)
        yield from itertools.islice(itertools.chain.from_iterable(means), 1)


def judge_mean(phase: str, mean: float | None, std: float | None, n: int | None) -> Found:
    """Finds a cold step in the mean and the sample standard deviation of `n` steps (ms): one that exceeds the n - 1
    others by e adds e / n to the mean and makes the deviation e / √n, so the others took mean − std / √n."""
    if mean is None or std is None or std <= SPREAD * abs(mean):
        return
    sentence = f"The mean of {phase} is {format_ms(mean)} with a standard deviation of {format_ms(std)}"
    if n is None or n < 2 or std / math.sqrt(n) >= mean:
        yield doubt("cold_step", f"{sentence}: its steps differ too much for a mean.", mean_ms=mean, std_ms=std)
    else:
        steady = mean - std / math.sqrt(n)
        sentence += f", as one cold step among {n} makes it: the others then took about {format_ms(steady)}."
        yield doubt("cold_step", sentence, mean_ms=mean, std_ms=std, steady_ms=steady)


def drifting(row: Timed, seen: RowContext) -> Found:
    if len(seen.step_ms) < MIN_STEPS:
        return
    rest = seen.step_ms[1:]
    third = len(rest) // 3
    early, late = statistics.median(rest[:third]), statistics.median(rest[-third:])
    if abs(late / early - 1) > DRIFT:
        went = f"The steps went from {format_ms(early)} to {format_ms(late)} while they were measured"
        yield doubt("drifting", f"{went}: clocks or neighbors changed.", early_ms=early, late_ms=late)


def machine_drift(row: Timed, seen: RowContext) -> Found:
    """Finds rows between two differing rounds of the canary, or one of those rounds, with the same bound: a slower host
    does not affect what the device bounds."""
    step = seen.timings.get("step")
    bound = find_bound(step.median_ms, step.device_ms) if step else None
    for drift in seen.drifts:
        if row.started_at and drift.started_at <= row.started_at <= drift.ended_at and bound == drift.bound:
            sentence = (
                f"The canary went {drift.change}, which is more than the run's other repeated cells differ by: the "
                "machine changed while this was measured."
            )
            yield doubt("machine_drift", sentence, before_ms=drift.before_ms, after_ms=drift.after_ms)
            return


def page_faults(row: Timed, seen: RowContext) -> Found:
    """Finds memory that is returned after each step and fetched again in the next. glibc does so or not depending on
    what the process allocated before, so that equal cells differ (https://gitlab.com/libeigen/eigen/-/issues/3201). It
    is a note, because the cost of a fault is not measured here and threads share it."""
    step_ms = seen.typical_ms("step")
    if row.page_faults is None or row.page_faults <= MANY_FAULTS or not step_ms:
        return
    share = row.page_faults * FAULT_MS / step_ms
    if share > FAULT_SHARE:
        sentence = (
            f"The system hands {row.page_faults:,.0f} fresh pages of memory to the process in each step: at half a "
            f"microsecond a page, {share:.0%} of its time. Another process may need fewer."
        )
        yield note("page_faults", sentence, page_faults=row.page_faults, share=share)


def throttled(row: Timed, seen: RowContext) -> Found:
    loaded = [item for item in seen.telemetry if item.at_seconds >= EARLY_SECONDS]
    reasons = sorted({reason for item in loaded for reason in (item.throttle_reasons or "").split(",")} - {""})
    if reasons:
        sentence = f"The driver held the clocks down while this cell was measured: {', '.join(reasons)}."
        yield doubt("throttled", sentence, reasons=", ".join(reasons))


def other_speed(row: Timed, seen: RowContext) -> Found:
    """Finds times that are shorter than the device's own work, which was traced in the same process. The driver reports
    the same clock and no reason for less: on an H200, matrix products took 5.5% less from one step to the next after
    some seconds of load, and what moves memory took as long as before."""
    step = seen.timings.get("step")
    if step is None or step.device_ms is None:
        return
    shift, ms, where = max(
        (find_shift(ms, step.device_ms), ms or 0.0, where)
        for ms, where in ((step.median_ms, "a step that is waited for"), (step.loop_ms, "a step in the loop"))
    )
    if shift:
        sentence = (
            f"The GPU worked for {format_ms(step.device_ms)} in a traced step, and {where} took {format_ms(ms)}: the "
            "GPU computed faster there, which the next process may not."
        )
        yield note("other_speed", sentence, device_ms=step.device_ms, step_ms=ms)


def shared_gpu(row: object, seen: RowContext) -> Found:
    others = max((item.foreign_processes or 0 for item in seen.telemetry), default=0)
    if others:
        many = "Another process was" if others == 1 else f"{others} other processes were"
        yield doubt("shared_gpu", f"{many} on the GPU while this cell was measured.", foreign_processes=others)


def impossible_ratio(row: Timed, seen: RowContext) -> Found:
    many = None if _may_spill(row, seen) else "it fits into memory, so that this was cold"
    yield from judge_passes(seen.typical_ms("forward"), seen.typical_ms("backward"), many=many)


def judge_passes(forward: float | None, backward: float | None, *, many: str | None) -> Found:
    """Compares backward with forward (ms), which takes twice the products and so about twice the time. Below half,
    backward was computed by subtraction, or the two were not timed in one step. Far above, `many` says why; None where
    it may be."""
    if not forward or backward is None or MIN_RATIO <= backward / forward < MAX_RATIO:
        return
    why = "the two cannot be of one warm step" if backward < MIN_RATIO * forward else many
    if why is not None and (why != many or backward >= HOST_MS):
        sentence = f"Backward takes {format_ms(backward)} and forward {format_ms(forward)}: {why}."
        yield fault("impossible_ratio", sentence, forward_ms=forward, backward_ms=backward)


def spilled(row: Timed, seen: RowContext) -> Found:
    """Finds a backward pass that is tens to hundreds of times slower, as where a driver moves memory to the host
    instead of refusing it."""
    forward, backward = seen.typical_ms("forward"), seen.typical_ms("backward")
    if forward and backward is not None and backward / forward >= MAX_RATIO and _may_spill(row, seen):
        times = f"{backward / forward:,.0f} times as long as forward"
        sentence = f"Backward takes {times}: the driver spilled to the host's memory."
        yield fault("spilled", sentence, forward_ms=forward, backward_ms=backward)


def _may_spill(row: Timed, seen: RowContext) -> bool:
    """Returns whether the cell may fill the device, as far as is known."""
    if row.predicted_peak_bytes is None or seen.device_bytes is None:
        return True
    return row.predicted_peak_bytes > FULL * seen.device_bytes


def launch_bound(row: Timed, seen: RowContext) -> Found:
    """Finds steps whose time the host sets. A row that was timed in a loop states it; otherwise the device finishes
    each phase at the moment in which the host has issued it, which means that it waited."""
    if row.bound is not None:
        step = seen.timings.get("step")
        if row.bound == "host" and step and step.loop_ms is not None and step.device_ms is not None:
            sentence = (
                f"The GPU needs {format_ms(step.device_ms)} for what takes {format_ms(step.loop_ms)} in a loop: the "
                "host sets this time; a faster GPU would not help."
            )
            if seen.run and (seen.run.places or 1) > 1:
                sentence += (
                    f" {seen.run.places} GPUs of this host were measured at once: beside another a latency that the "
                    "host sets was 1.09 (1.00 to 1.19) times as long on two H200s, GPU time as long as alone."
                )
            yield note("launch_bound", sentence, device_ms=step.device_ms, loop_ms=step.loop_ms)
        return
    times = [seen.timings[phase] for phase in _COMPUTING if phase in seen.timings]
    pairs = [(t.host_median_ms, t.median_ms) for t in times if t.clock == "cuda-event" and t.host_median_ms]
    host, device = sum(pair[0] for pair in pairs), sum(pair[1] or 0.0 for pair in pairs)
    if device and host >= HOST_BOUND * device:
        sentence = (
            f"The host needs {format_ms(host)} to issue what takes the GPU {format_ms(device)}: launch-bound, "
            "the GPU waits, and a faster one would not help."
        )
        yield note("launch_bound", sentence, host_ms=host, device_ms=device)


TIME_RULES: tuple[Rule, ...] = (
    too_few_samples, wide_interval, cold_step, drifting, machine_drift, page_faults, throttled, other_speed,
    shared_gpu, impossible_ratio, spilled, launch_bound,
)  # fmt: skip
#: The codes that say nothing of bytes.
TIME_CODES = {"busy_machine", "above_peak", *(rule.__name__ for rule in TIME_RULES if rule is not shared_gpu)}

#: The fewest rounds of a canary.
MIN_ROUNDS = 3
#: The most degrees of freedom for which the noise of the other cells counts: more than in a verdict, because a finding
#: raises a doubt and decides nothing.
MAX_DOF = 4.0


@dataclass(frozen=True, kw_only=True)
class Canary:
    """The canary of a run, and the changes of the machine that it shows, without those that contain another. `drifts`
    is None where the run cannot separate them from noise."""

    cell: RepeatedCell
    drifts: Sequence[Drift] | None


def find_drifts(cells: Sequence[RepeatedCell]) -> dict[UUID, Sequence[Drift]]:
    """Returns the changes of the machine that the canary of each run shows, by run."""
    runs: dict[UUID, list[RepeatedCell]] = {}
    for cell in cells:
        runs.setdefault(cell.run_id, []).append(cell)
    found = {run_id: judge_canary(of_run) for run_id, of_run in runs.items()}
    return {run_id: canary.drifts for run_id, canary in found.items() if canary and canary.drifts}


def judge_canary(cells: Sequence[RepeatedCell]) -> Canary | None:
    """Returns the canary among the repeated cells of one run: of those with the most rounds the first that the host
    does not set. None where there is none with known starts."""
    dated = [cell for cell in cells if len(cell.started) == len(cell.rounds) > 1]
    if not dated:
        return None
    cell = min(dated, key=lambda cell: (-len(cell.rounds), cell.bound == "host", cell.started[0]))
    others = [one for one in cells if one is not cell and (one.table, one.bound) == (cell.table, cell.bound)]
    logs = [[math.log(each.time.median_ms) for each in one.rounds] for one in others]
    noise = estimate_noise([(len(own), statistics.variance(own)) for own in logs], max_dof=MAX_DOF)
    if noise is None or len(cell.rounds) < MIN_ROUNDS:
        return Canary(cell=cell, drifts=None)
    moments = [(at, estimate([one.time], noise)) for at, one in zip(cell.started, cell.rounds, strict=True)]
    pairs = list(itertools.combinations(sorted(moments, key=lambda one: one[0]), 2))
    level = 1 - (1 - DECIDED) / len(pairs)
    changed = [(*first, *last) for first, last in pairs if _differ(first[1], last[1], level=level)]
    drifts = [
        Drift(started_at=start, ended_at=end, before_ms=before.ms, after_ms=after.ms, bound=cell.bound)
        for start, before, end, after in changed
        if not any(start <= a and b <= end for a, _, b, _ in changed if (a, b) != (start, end))
    ]
    return Canary(cell=cell, drifts=drifts)


def _differ(a: Estimate, b: Estimate, *, level: float) -> bool:
    if a.std is None or b.std is None:
        return False
    change = abs(math.log(b.ms / a.ms))
    error = math.hypot(a.std, b.std)
    return change > max(math.log1p(MIN_DIFFERENCE), student_quantile(level, min(a.dof, b.dof)) * error)
