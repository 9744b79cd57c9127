"""The loop of `sweep --experiment frontier`: the largest size that fits, by prediction and then by trying.

    rows = explore(flags, settings, say=print)

Each trial is a step in a fresh process that may take no more than the limit (see `runner.measure.memory`). The
first size tried is the one that the closed formulas predict (an estimate on CUDA, where what the allocator reserves
decides). From there the loop steps outward until one size fits and another does not, then halves the distance down to
the resolution. A question is done when its key, device name, torch version and commit agree with a row that ended `ok`
or `skipped`.

Limits: prediction and search assume that a size fits whenever a larger one does.
"""

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner.allowance import usable_memory
from runner.analysis.costs import attention, steps
from runner.analysis.costs.steps import CONTEXT_BYTES, Device
from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.experiments import kind_of
from runner.formats import format_bytes, format_count
from runner.job import Job
from runner.schema import AttentionCell, FrontierCell, FrontierRow, RunRow, StepCell, new_id, utc_now
from runner.schema.axes import SHAPE
from runner.schema.own import is_own_part
from runner.schema.sizes import shape_name, size_named
from runner.store import history
from runner.sweep.loop import ingest_all, store, store_run
from runner.sweep.prepare import new_run, sweep_key
from runner.sweep.request import Settings, parse_values
from runner.sweep.start import lock_machine

#: The first step of the search away from the prediction, as a share of it.
FIRST_STEP = 1 / 256
#: The bytes that CUDA's allocator reserves for a model's step, over those alive at its peak: 1.03 (bf16) and 1.055
#: (fp32) for `small` at context 512 on an H200.
RESERVED_SHARE = 1.05


def trial_cell(question: FrontierCell, size: int) -> AttentionCell | StepCell:
    """Returns the cell that tries one size of a frontier cell."""
    once = {"warmup_steps": 0, "min_steps": 1, "max_steps": 1}
    asked: dict[str, Any] = {"precision": question.precision, "batch": question.batch, question.limited: size, **once}
    if question.limited == "seq_len":
        names: tuple[str, ...] = ("implementation", "d_head", "causal")
        return AttentionCell(**{name: getattr(question, name) for name in names}, **asked)
    names = (*SHAPE, "mode", *(() if question.limited == "context" else ("context",)))
    return StepCell(**{name: getattr(question, name) for name in names}, attention=question.implementation, **asked)


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """The device that a cell must fit on: its kind, its name and, where known, the whole memory of the card."""

    device: Device
    gpu: str = ""
    card_bytes: int | None = None

    def bytes_within(self, limit_bytes: int) -> int:
        """Returns the bytes of a limit that tensors may take. CUDA's context takes its part of the card first."""
        if self.device != "cuda" or self.card_bytes is None:
            return limit_bytes
        return min(limit_bytes, self.card_bytes - CONTEXT_BYTES)


def predict_largest(question: FrontierCell, memory: DeviceMemory) -> int:
    """Returns the largest multiple of the resolution predicted to fit, or 0. On CUDA it is an estimate."""
    limit, on_cuda = memory.bytes_within(question.limit_bytes), memory.device == "cuda"

    def fits(count: int) -> bool:
        cell = trial_cell(question, count * question.step)
        # The peak of live bytes or, on CUDA, the bytes that the allocator must reserve.
        if isinstance(cell, StepCell):
            peak = steps.predicted_peak_bytes(cell, device=memory.device, gpu=memory.gpu)
            return peak * (RESERVED_SHARE if on_cuda else 1) <= limit
        if on_cuda:
            return attention.predicted_reserved_bytes(cell, gpu=memory.gpu) <= limit
        return attention.predicted_peak_bytes(cell) <= limit

    largest, _ = search(1, fits)
    return largest * question.step


def search(first: int, fits: Callable[[int], bool]) -> tuple[int, int]:
    """Returns the largest whole number that fits and the smallest that does not, which is the next one. Numbers begin
    at 1; 0 fits without a trial. Tries `first`, then numbers away from it in doubling steps, then bisects."""
    low, high = 0, 0
    guess = max(first, 1)
    reach = max(round(guess * FIRST_STEP), 1)
    while not high:
        if fits(guess):
            low, guess = guess, guess + reach
        else:
            high, guess = guess, max(guess - reach, 1)
        reach *= 2
    while not low and high > 1:
        if fits(guess):
            low = guess
        else:
            high, guess = guess, max(guess - reach, 1)
        reach *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, high


_DEFAULTS = {
    "attention": "naive",
    "precisions": "fp32",
    "d_heads": "16,32,64,128",
    "causal": "true",
    "modes": "train",
    "contexts": "512",
}
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([A-Z]*)")


class _TrialFailed(Exception):
    """A trial, by its size and its outcome, that neither fitted nor ran out of memory."""


def parse_size(name: str, text: str) -> int:
    """Returns `2GiB`, `512MiB` or plain bytes as a number. Raises UsageError for anything else, naming the flag."""
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise UsageError(f"--{name} got {text!r}.", expected="a size such as 2GiB or 512MiB")
    return round(float(match[1]) * _UNITS[match[2]])


def make_questions(flags: Mapping[str, Any], *, limit_bytes: int) -> list[FrontierCell]:
    """Returns the questions of a command, from its flags by name (None where not given).

    With `sizes` they are about a model's step, else about single-head attention. Raises UsageError for values that do
    not go together or that an axis does not have."""
    grows = flags["grow"]
    if (grows is not None) != (flags["sizes"] is not None):
        raise UsageError("--sizes and --grow go together.", do="Such as: --sizes small --grow context")
    if grows not in (None, "context", "batch"):
        raise UsageError(f"--grow got {grows!r}.", expected="context or batch")
    defaults = {**_DEFAULTS, "batch": "4" if grows else "8"}
    chosen = {name: parse_values(name, flags[name] or default) for name, default in defaults.items()}
    if own_parts := [name for name in chosen["attention"] if is_own_part(name)]:
        raise UsageError(
            f"--experiment frontier got {own_parts[0]}.",
            expected="an attention of Stepscope's",
            do="--experiment attention --preset flash tries your own at each length.",
        )
    limited = grows or "seq_len"
    step = flags["resolution"] or (1 if limited == "batch" else 64)
    shared: dict[str, Any] = {"limited": limited, "limit_bytes": limit_bytes, "step": step}
    axes: dict[str, Sequence[Any]] = {"implementation": chosen["attention"], "precision": chosen["precisions"]}
    if limited == "seq_len":
        axes |= {"d_head": chosen["d_heads"], "batch": chosen["batch"], "causal": chosen["causal"]}
    else:
        axes |= {"mode": chosen["modes"], "size": parse_values("sizes", flags["sizes"])}
        axes |= {"batch": chosen["batch"]} if limited == "context" else {"context": chosen["contexts"]}
    questions = []
    for values in itertools.product(*axes.values()):
        own: dict[str, Any] = dict(zip(axes, values, strict=True))
        shape: dict[str, Any] = size_named(own.pop("size")).numbers if "size" in own else {}
        questions.append(FrontierCell(**shared, **shape, **own))
    return questions


def explore(flags: Mapping[str, Any], settings: Settings, *, say: Callable[[str], None]) -> list[FrontierRow]:
    """Answers the questions of `flags` that have no answer yet, and returns their rows. Raises UsageError for invalid
    flags."""
    given = parse_size("limit", flags["limit"]) if flags["limit"] else None
    for question in make_questions(flags, limit_bytes=given or 1):
        cell = trial_cell(question, question.step)
        kind_of(cell).check(cell)
    engine = LocalEngine()
    with lock_machine(say):
        machine = engine.describe(settings.device)
        there = machine["device_memory_bytes"]
        if given and there and given > there:
            expected = f"at most {format_bytes(there)}, the memory of {machine['device_name']}"
            raise UsageError(f"--limit got {flags['limit']}.", expected=expected)
        questions = make_questions(flags, limit_bytes=given or default_limit(machine))
        done = {} if settings.fresh else history.measured_rounds(settings.db, machine)
        owed = [question for question in questions if (question.key, 0) not in done]
        answered = len(questions) - len(owed)
        earlier = f", {answered} answered before (--fresh asks again)" if answered else ""
        limit = f"limit {format_bytes(questions[0].limit_bytes)}{'' if given else ', what is there now (--limit)'}"
        count = format_count(len(questions), "question")
        say(f"{machine['device_name']} · torch {machine['torch']} · {limit} · {count}{earlier}")
        if not owed:
            return []
        key = sweep_key(sorted(question.key for question in questions), machine)
        known = None if settings.fresh else history.find_run(settings.db, key)
        run = new_run(known or new_id(), settings, machine, sweep_key=key)
        store_run(settings.db, run)  # one that goes on is in the file already
        rows = [_search(question, run, settings, engine=engine, say=say) for question in owed]
        ingest_all(settings.db)
    return rows


def default_limit(machine: Mapping[str, Any]) -> int:
    """Returns the limit (bytes) where none is given: the GPU's memory or, on a CPU, 95 % of what is free now in whole
    GiB, so that the same question asked again has the same key."""
    if machine["device"] == "cpu":
        return max(usable_memory() >> 30, 1) << 30
    return int(machine["device_memory_bytes"])


def _search(
    question: FrontierCell, run: RunRow, settings: Settings, *, engine: LocalEngine, say: Callable[[str], None]
) -> FrontierRow:
    """Searches the frontier of one question, and stores, says and returns its row."""
    started, began, cell_id = utc_now(), time.monotonic(), new_id()
    device: Any = run.device
    gpu = run.device_name or ""
    predicted = predict_largest(question, DeviceMemory(device=device, gpu=gpu, card_bytes=run.device_memory_bytes))
    say(f"{title(question)}: predicted {predicted:,}")
    peaks: dict[int, int | None] = {}
    tried: dict[int, bool] = {}

    def fits(count: int) -> bool:
        size = count * question.step
        job = Job(
            experiment="frontier",
            cell=trial_cell(question, size),
            run_id=run.run_id,
            cell_id=new_id(),
            device=settings.torch_device({"device": device}),
            device_name=gpu,
            limit_bytes=question.limit_bytes,
        )
        outcome = engine.measure(job, timeout_s=settings.timeout_s)
        if outcome.status not in ("ok", "oom"):
            raise _TrialFailed(size, outcome)
        peak = outcome.measurement.values.get("peak_allocated_bytes")
        result = f"fits, peak {format_bytes(peak or 0)}" if outcome.status == "ok" else "does not fit"
        say(f"  {question.limited} {size:,}: {result}")
        tried[size], peaks[size] = outcome.status == "ok", peak
        return tried[size]

    end: dict[str, Any] = {"status": "ok"}
    try:
        search(predicted // question.step, fits)
    except _TrialFailed as failure:
        size, outcome = failure.args
        advice = " A smaller --limit asks for smaller trials." if outcome.status == "timeout" else ""
        message = f"At {size:,}: {outcome.message}{advice}"
        end = {"status": outcome.status, "failed_phase": outcome.failed_phase, "message": message}
    largest = max((size for size, fitted in tried.items() if fitted), default=None)
    row = FrontierRow(
        **asdict(question),
        **end,
        run_id=run.run_id,
        cell_id=cell_id,
        cell_key=question.key,
        started_at=started,
        cell_seconds=time.monotonic() - began,
        predicted=predicted,
        largest=largest,
        smallest_failing=min((size for size, fitted in tried.items() if not fitted), default=None),
        largest_peak_bytes=None if largest is None else peaks[largest],
        trials=len(tried),
    )
    store(settings.db, {"frontier": [row]}, name=str(cell_id))
    say(f"{title(question)}: {answer(row)}")
    return row


def title(question: FrontierCell) -> str:
    """Returns a question in words."""
    if question.limited == "seq_len":
        parts = [f"d {question.d_head}", f"batch {question.batch}", "causal" if question.causal else "not causal"]
    else:
        other = f"batch {question.batch}" if question.limited == "context" else f"context {question.context}"
        parts = [shape_name(question), question.mode, other]
    words = [question.implementation, *parts, question.precision, f"in {format_bytes(question.limit_bytes)}"]
    return f"largest {question.limited}: {' · '.join(words)}"


def answer(row: FrontierRow) -> str:
    """Returns the answer of a row in words."""
    if row.status != "ok":
        return f"{row.status}. {row.message}"
    trials = f"{row.trials} trials"
    if row.largest is None:
        return f"not even {row.smallest_failing:,} fits, {trials}"
    return f"{row.largest:,} fits, {row.smallest_failing:,} does not (predicted {row.predicted:,}, {trials})"
