"""Reads traces of torch.profiler (`export_chrome_trace`), also packed with gzip: kernels by phase, range and operator.

    process = load_trace(Path("trace.json.gz"))
    print(process.steps, process.busy_ms, len(process.kernels))

A kernel's correlation leads to the call that launched it, whose thread and time give the step (`ProfilerStep#`), the
phase and the `record_function` range; its external id gives the operator. What autograd's engine evaluates is backward,
what `Optimizer.step` runs is the optimizer's, and anything else that a step's own thread launches is forward, the loss
included. The file is streamed: events of other kinds are dropped at once. Limits: a trace without kernels of a GPU is
refused; EVENTS kernels and operators, EVENT_CHARACTERS of one event. Standard library only.
"""

import gzip
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern
from typing import IO, Any

from runner.importers.recordings import (
    NOWHERE,
    Kernels,
    Launched,
    ThreadRanges,
    TracedProcess,
    clean_name,
    phase_of,
    read_gpu,
    refuse,
)

EVENTS, EVENT_CHARACTERS, _CHUNK = 5_000_000, 2**24, 2**22
_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_STEP = re.compile(r"ProfilerStep#(\d+)")
_ENGINE = "autograd::engine::evaluate_function"
#: The largest gap between two kernels of one step that is the launching's, and not a pause of the program (µs).
_PAUSE_US = 1e5
_DO = "Write one with `torch.profiler.profile(…)` and `export_chrome_trace(FILE)`."
_refuse = partial(refuse, "trace of torch.profiler", do=_DO)


def is_trace(path: Path, start: bytes) -> bool:
    """Returns whether a file that begins so is a trace of torch.profiler."""
    if path.name.lower().endswith(".json.gz"):
        return True
    return path.suffix.lower() == ".json" and any(key in start for key in (b'"traceEvents"', b'"schemaVersion"'))


@dataclass
class _Trace:
    """The events that count. Times are in µs; a kernel is (start, duration, name, correlation, external id,
    moved bytes)."""

    kernels: list[tuple[float, float, str, int, int, int | None]] = field(default_factory=list)
    launches: dict[int, tuple[int, float]] = field(default_factory=dict)
    operators: dict[int, str] = field(default_factory=dict)
    ranges: dict[int, list[tuple[int, int | None, str]]] = field(default_factory=dict)
    steps: list[tuple[float, float, int]] = field(default_factory=list)
    broken: int = 0


def load_trace(path: Path) -> TracedProcess:
    """Returns what the trace says of its steps. Raises UsageError for a file that is no such trace, or one without
    kernels of a GPU."""
    trace = _Trace()
    for event in _read_events(path):
        _add_event(event, trace)
        if len(trace.kernels) + len(trace.operators) > EVENTS:
            raise _refuse(path, f"more than {EVENTS:,} kernels and operators", "fewer: record fewer steps")
    trace.steps.sort()
    threads = {thread: ThreadRanges(ranges) for thread, ranges in trace.ranges.items()}
    kernels: Kernels = {}
    busy: list[tuple[float, float]] = []
    for start, duration, name, number, external, moved in trace.kernels:
        thread, moment = trace.launches.get(number, (0, start))
        before = bisect_right(trace.steps, (moment, float("inf"), 0)) - 1
        step = trace.steps[before] if before >= 0 and moment < trace.steps[before][1] else None
        if step is None and trace.steps:
            continue
        place = threads[thread].at(round(moment * 1e3)) if thread in threads else NOWHERE
        is_forward = not place.phase and step is not None and step[2] == thread and not phase_of(place.scope)
        sums = kernels.setdefault(("forward" if is_forward else place.phase, place.scope, name), Launched())
        sums.add(round(duration * 1e3), moved_bytes=moved, operator=trace.operators.get(external, ""))
        busy.append((start, start + duration))
    if not trace.kernels:
        raise _refuse(path, "a trace in which no kernel of a GPU ran", "one recorded with ProfilerActivity.CUDA")
    outside = len(trace.kernels) - len(busy)
    remarks = [f"{outside:,} kernels were launched outside of every ProfilerStep and are left out"] if outside else []
    if trace.broken:
        remarks.append(f"{trace.broken:,} kernels have no duration and are left out")
    count, steps = len(trace.steps), len(trace.steps) or 1
    covered, gaps = _cover(busy)
    return TracedProcess(
        title=path.name,
        steps=count or None,
        kernels=kernels,
        remarks=remarks,
        step_ms=sum(end - start for start, end, _ in trace.steps) / steps / 1e3 if count else None,
        busy_ms=covered / 1e3 / steps,
        gap_ms=gaps / 1e3 / steps,
        gpu=_read_gpu(path),
    )


def _read_gpu(path: Path) -> tuple[str | None, int | None]:
    with _open(path) as file:
        head = file.read(_CHUNK).partition('"traceEvents"')[0]
    begin = re.search(r'"deviceProperties"\s*:\s*(?=\[)', head)
    try:
        gpus = json.JSONDecoder().raw_decode(head, begin.end())[0] if begin else []
    except (ValueError, RecursionError):
        return None, None
    named = [(gpu.get("name"), gpu.get("totalGlobalMem")) for gpu in gpus if isinstance(gpu, dict)]
    return read_gpu({one for one in named if all(isinstance(value, str | int) for value in one)})


def _add_event(event: dict[str, Any], trace: _Trace) -> None:
    kind, start, duration, args = event.get("cat"), event.get("ts"), event.get("dur"), event.get("args")
    if event.get("ph") != "X" or not isinstance(start, int | float) or not isinstance(kind, str):
        return
    name, thread = event.get("name"), event.get("tid")
    args = args if isinstance(args, dict) else {}
    if not isinstance(duration, int | float) or duration < 0 or not isinstance(name, str):
        trace.broken += kind in _ON_DEVICE
        return
    number, external = (one if isinstance(one := args.get(key), int) else 0 for key in ("correlation", "External id"))
    thread = hash(thread) if isinstance(thread, int | str) else 0
    if kind in _ON_DEVICE:
        moved = args.get("bytes")
        size = moved if kind != "kernel" and isinstance(moved, int) and 0 <= moved < 2**50 else None
        name = _name_copy(name) if kind != "kernel" else name
        trace.kernels.append((start, duration, intern(clean_name(name)), number, external, size))
    elif kind in _LAUNCHES:
        if number:
            trace.launches[number] = (thread, start)
    elif kind in ("user_annotation", "cpu_op"):
        if kind == "cpu_op" and external:
            trace.operators[external] = intern(clean_name(name))
        step = _STEP.fullmatch(name)
        if step:
            trace.steps.append((start, start + duration, thread))
        place = clean_name(name) if kind == "user_annotation" else ""
        if name.startswith(_ENGINE):
            place = "backward"
        elif place.startswith(("Optimizer.step", "Optimizer.zero_grad")):
            place = "optimizer"
        if place and not step:
            span = (round(start * 1e3), round((start + duration) * 1e3), intern(place))
            trace.ranges.setdefault(thread, []).append(span)


def _name_copy(name: str) -> str:
    """Returns the name of a copy as `nsys stats` writes it: “Memcpy HtoD (Pinned -> Device)” is Host-to-Device."""
    ways = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}
    way = next((words for short, words in ways.items() if short in name), "other")
    return "[CUDA memset]" if name.startswith("Memset") else f"[CUDA memcpy {way}]"


def _cover(spans: list[tuple[float, float]]) -> tuple[float, float]:
    """Returns the time that at least one span covers, and that of the gaps between them which are no pauses."""
    covered, gaps, last = 0.0, 0.0, float("-inf")
    for start, end in sorted(spans):
        gaps += start - last if 0 < start - last <= _PAUSE_US else 0.0
        covered += max(0.0, end - max(start, last))
        last = max(last, end)
    return covered, gaps


def _read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the events one by one. Raises UsageError for a file that is no trace, or ends within one."""
    decoder, buffer, at = json.JSONDecoder(), "", 0
    try:
        with _open(path) as file:
            while not (begin := _BEGIN.search(buffer)):
                chunk = file.read(_CHUNK)
                if not chunk or len(buffer) > EVENT_CHARACTERS:
                    raise _refuse(path, "no “traceEvents”", "what `export_chrome_trace` writes")
                buffer += chunk
            at = begin.end()
            while True:
                match = _BETWEEN.match(buffer, at)
                at = match.end() if match else at
                if buffer[at : at + 1] == "]":
                    return
                try:
                    event, at = decoder.raw_decode(buffer, at)
                except ValueError:
                    chunk = file.read(_CHUNK)
                    if not chunk or len(buffer) - at > EVENT_CHARACTERS:
                        raise _refuse(path, "an event that does not end", "a whole trace") from None
                    buffer, at = buffer[at:] + chunk, 0
                    continue
                if isinstance(event, dict):
                    yield event
                if at > _CHUNK:
                    buffer, at = buffer[at:], 0
    except (OSError, EOFError, RecursionError) as error:
        raise _refuse(path, f"a file that cannot be read ({type(error).__name__})", "a whole trace") from None


def _open(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")
