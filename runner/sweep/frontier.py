"""The loop of `python -m runner frontier`: the largest size that fits, by prediction and then by trying.

    code = explore(flags, settings, say=print)

Each trial is a step in a fresh process that may take no more than the limit (see `runner.measure.memory.frontier`). The
first size tried is the one that the closed formulas predict (an estimate on CUDA, where what the allocator reserves
decides); from there the loop steps outward until one size fits and another does not, then halves the distance down to
the resolution. A question is done when its key, device name, torch version and commit agree with a row that ended `ok`
or `skipped`.
"""

import hashlib
import itertools
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from runner.analysis.costs.frontier import Room, at, predict_largest, search
from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.experiments import kind_of
from runner.formats import format_bytes
from runner.job import Job, Outcome
from runner.schema import DONE, FrontierCell, FrontierRow, RunRow, new_id, utc_now
from runner.schema.axes import SHAPE
from runner.schema.sizes import shape_name, size_named
from runner.store import history
from runner.store.database import ingest
from runner.store.spool import Spool
from runner.sweep.loop import LAST_INGEST_SECONDS, alone_on_this_machine
from runner.sweep.request import values

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


@dataclass(frozen=True, kw_only=True)
class FrontierSettings:
    """How the frontier is looked for, apart from what is asked. `timeout_s` is for one trial."""

    db: Path
    device: str = "auto"
    label: str | None = None
    timeout_s: float = 600.0
    fresh: bool = False


class Unanswered(Exception):
    """A trial that neither fitted nor ran out of memory."""

    def __init__(self, size: int, outcome: Outcome) -> None:
        super().__init__(size, outcome)
        self.size, self.outcome = size, outcome


def byte_count(text: str) -> int:
    """`2GiB`, `512MiB` or plain bytes as a number of bytes. Raises UsageError for anything else."""
    found = _SIZE.fullmatch(text.strip().upper())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise UsageError(f"--limit got {text!r}.", expected="a size such as 2GiB or 512MiB")
    return round(float(found[1]) * _UNITS[found[2]])


def questions(asked: Mapping[str, Any], *, limit_bytes: int) -> list[FrontierCell]:
    """The questions of a command: `asked` are its flags by name, None where not given. With `sizes` they are about a
    model's step, else about single-head attention. Raises UsageError for what cannot be asked."""
    grows = asked["grow"]
    if (grows is not None) != (asked["sizes"] is not None):
        raise UsageError("--sizes and --grow go together.", do="Such as: --sizes small --grow context")
    if grows not in (None, "context", "batch"):
        raise UsageError(f"--grow got {grows!r}.", expected="context or batch")
    of = {name: values(name, asked[name] or default) for name, default in _DEFAULTS.items()}
    limited = grows or "seq_len"
    step = asked["step"] or (1 if limited == "batch" else 64)
    shared: dict[str, Any] = {"limited": limited, "limit_bytes": limit_bytes, "step": step}
    axes: dict[str, Sequence[Any]] = {"implementation": of["attention"], "precision": of["precisions"]}
    if limited == "seq_len":
        axes |= {"d_head": of["d_heads"], "batch": values("batch", asked["batch"] or "8"), "causal": of["causal"]}
    else:
        axes |= {"mode": of["modes"], "size": values("sizes", asked["sizes"])}
        if limited == "context":
            axes["batch"] = values("batch", asked["batch"] or "4")
        else:
            axes["context"] = of["contexts"]
    found = []
    for chosen in itertools.product(*axes.values()):
        named: dict[str, Any] = dict(zip(axes, chosen, strict=True))
        shape: dict[str, Any] = size_named(named.pop("size")).numbers if "size" in named else {}
        found.append(FrontierCell(**shared, **shape, **named))
    return found


def explore(flags: Mapping[str, Any], settings: FrontierSettings, *, say: Callable[[str], None]) -> int:
    """Answers what `flags` ask, as far as it is not answered yet, and returns the exit code: 0 if all is answered, 1 if
    something failed. Raises UsageError for what cannot be asked."""
    given = byte_count(flags["limit"]) if flags["limit"] else None
    for question in questions(flags, limit_bytes=given or 1):
        cell = at(question, question.step)
        kind_of(cell).check(cell)
    engine = LocalEngine()
    with alone_on_this_machine(say):
        machine = engine.describe(settings.device)
        asked = questions(flags, limit_bytes=given or _what_is_there(machine))
        done = {} if settings.fresh else history.done_cells(settings.db, machine)
        owed = [question for question in asked if (question.key, 0) not in done]
        kept = f", {len(asked) - len(owed)} answered before (--fresh asks again)" if len(owed) < len(asked) else ""
        limit = f"limit {format_bytes(asked[0].limit_bytes)}{'' if given else ', what is there now (--limit)'}"
        say(f"{machine['device_name']} · torch {machine['torch']} · {limit} · {len(asked)} questions{kept}")
        if not owed:
            return 0
        explorer = _Explorer(_run_row(asked, settings, machine), settings, engine=engine, say=say)
        statuses = [explorer.answer(question) for question in owed]
        while ingest(settings.db, patience_s=LAST_INGEST_SECONDS):
            pass
    return 1 if set(statuses) - DONE else 0


def _what_is_there(machine: Mapping[str, Any]) -> int:
    """The limit of who states none: a GPU's memory; on a CPU what is free now, in whole GiB so that the same question
    asked again is the same."""
    if machine["device"] == "cpu":
        return max(int(psutil.virtual_memory().available * 0.95) >> 30, 1) << 30
    return int(machine["device_memory_bytes"])


class _Explorer:
    """One run of trials."""

    def __init__(
        self, run: RunRow, settings: FrontierSettings, *, engine: LocalEngine, say: Callable[[str], None]
    ) -> None:
        self.run, self.settings, self.engine, self.say = run, settings, engine, say
        kind: Any = run.device
        self.room = Room(device=kind, gpu=run.device_name or "", card_bytes=run.device_memory_bytes)
        self.device = (run.device or "") if settings.device == "auto" else settings.device
        self.spool = Spool(settings.db)
        self.spool.write({"runs": [run]}, name=f"run-{run.run_id}")  # a run that goes on is in the file already
        ingest(settings.db)

    def answer(self, question: FrontierCell) -> str:
        """Looks for the frontier of one question, stores its row and says what was found."""
        started, began, cell_id = utc_now(), time.monotonic(), new_id()
        predicted = predict_largest(question, self.room)
        self.say(f"{title(question)}: predicted {predicted:,}")
        peaks: dict[int, int | None] = {}
        tried: dict[int, bool] = {}

        def fits(count: int) -> bool:
            size = count * question.step
            outcome = self._try(question, size)
            tried[size] = outcome.status == "ok"
            peaks[size] = outcome.measurement.values.get("peak_allocated_bytes")
            return tried[size]

        ended: dict[str, Any] = {"status": "ok"}
        try:
            search(predicted // question.step, fits)
        except Unanswered as stopped:
            status, phase = stopped.outcome.status, stopped.outcome.failed_phase
            advice = " A smaller --limit asks for smaller trials." if status == "timeout" else ""
            message = f"At {stopped.size:,}: {stopped.outcome.message}{advice}"
            ended = {"status": status, "failed_phase": phase, "message": message}
        largest = max((size for size, fitted in tried.items() if fitted), default=None)
        row = FrontierRow(
            **asdict(question),
            **ended,
            run_id=self.run.run_id,
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
        self.spool.write({"frontier": [row]}, name=str(cell_id))
        ingest(self.settings.db)
        self.say(f"{title(question)}: {answer(row)}")
        return row.status

    def _try(self, question: FrontierCell, size: int) -> Outcome:
        """Runs one size. Raises Unanswered if it neither fitted nor ran out of memory."""
        job = Job(
            experiment="frontier",
            cell=at(question, size),
            run_id=self.run.run_id,
            cell_id=new_id(),
            device=self.device,
            device_name=self.run.device_name or "",
            limit_bytes=question.limit_bytes,
        )
        outcome = self.engine.measure(job, timeout_s=self.settings.timeout_s)
        if outcome.status not in ("ok", "oom"):
            raise Unanswered(size, outcome)
        peak = outcome.measurement.values.get("peak_allocated_bytes")
        found = f"fits, peak {format_bytes(peak or 0)}" if outcome.status == "ok" else "does not fit"
        self.say(f"  {question.limited} {size:,}: {found}")
        return outcome


def title(question: FrontierCell) -> str:
    """A question in words."""
    if question.limited == "seq_len":
        parts = [f"d {question.d_head}", f"batch {question.batch}", "causal" if question.causal else "not causal"]
    else:
        shape: dict[str, int] = {name: getattr(question, name) for name in SHAPE}
        other = f"batch {question.batch}" if question.limited == "context" else f"context {question.context}"
        parts = [shape_name(**shape), question.mode, other]
    words = [question.implementation, *parts, question.precision, f"in {format_bytes(question.limit_bytes)}"]
    return f"largest {question.limited}: {' · '.join(words)}"


def answer(row: FrontierRow) -> str:
    """What was found, in words."""
    if row.status != "ok":
        return f"{row.status}. {row.message}"
    trials = f"{row.trials} trials"
    if row.largest is None:
        return f"not even {row.smallest_failing:,} fits, {trials}"
    return f"{row.largest:,} fits, {row.smallest_failing:,} does not (predicted {row.predicted:,}, {trials})"


def _run_row(asked: Sequence[FrontierCell], settings: FrontierSettings, machine: Mapping[str, Any]) -> RunRow:
    """The run of these questions on this machine: the earlier one, if they are gone on with."""
    where = [machine[name] for name in ("host", "device_name", "torch", "git_commit")]
    named = json.dumps([sorted(question.key for question in asked), where])
    sweep_key = hashlib.sha256(named.encode()).hexdigest()[:16]
    known = None if settings.fresh else history.run_of(settings.db, sweep_key)
    return RunRow(
        run_id=known or new_id(),
        sweep_key=sweep_key,
        label=settings.label,
        argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        **machine,
    )
