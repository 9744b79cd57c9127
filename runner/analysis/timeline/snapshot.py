"""Reads the CUDA allocator's snapshot as events, after checking its shape.

    for recording in recordings(snapshot):       # one a device, from torch.cuda.memory._snapshot() or its pickle
        history = follow(recording.events, recording.held)

The docstring of `torch.cuda.memory._snapshot` describes the format. Differences between releases are accepted: blocks
without `address`, traces without `time_us` (then the order stands for the time), both names of a block whose free is
pending. Memory counts as freed when its tensor gives it up (`free_requested`), as `memory_allocated` counts. The
snapshot may come from anyone: a value of another type raises BadSnapshot, and the number of items read is limited,
because a small pickle can refer to one list a million times.

`Stacks` holds Python stacks as text, each once. File names are relative to the checkout that ran, to `site-packages` or
to the standard library, so that no machine's folders are stored. Standard library only.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any, cast

from runner.analysis.timeline.allocations import NS_PER_US, Allocation, MemoryEvent
from runner.schema import Category

#: File, line, function.
Frame = tuple[str, int, str]

_CHECKOUT = str(Path(__file__).resolve().parents[3]) + "/"
_FOLDERS = ("/site-packages/", "/dist-packages/")
#: The number of folders of a foreign path that are kept before its file name.
_KEPT = 3
#: The most frames of one stack and characters of one name that are kept, and characters of a path that are read.
MAX_FRAMES, MAX_CHARACTERS, _PATH_LENGTH = 100, 300, 4_000


class Stacks:
    """The stacks of one timeline. A stack's number is its position in `texts`; one `file:line function` a line."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.characters = 0
        self._numbers: dict[str, int] = {}
        self._known: dict[Hashable, int | None] = {}

    def remember(self, key: Hashable, frames: Callable[[], tuple[Frame, ...]]) -> int | None:
        """Returns the number of a stack that is known by `key`, None for an empty one; `frames`, innermost first, is
        called the first time only."""
        try:
            return self._known[key]
        except KeyError:
            kept = frames()[:MAX_FRAMES]
            text = "\n".join(f"{strip_folders(file)}:{line} {_cut(name)}" for file, line, name in kept)
            if text and text not in self._numbers:
                self._numbers[text] = len(self.texts)
                self.texts.append(text)
                self.characters += len(text)
            number = self._known[key] = self._numbers.get(text)
            return number


def strip_folders(file: str) -> str:
    """Returns a file's name without the folders of its machine."""
    file = _cut(file[-_PATH_LENGTH:].replace("\\", "/"))
    if file.startswith(_CHECKOUT) and not any(folder in file for folder in _FOLDERS):
        return file.removeprefix(_CHECKOUT)
    for folder in _FOLDERS:
        if folder in file:
            return file.rpartition(folder)[2]
    return "/".join(file.split("/")[-_KEPT:]) if file.startswith("/") or file[1:3] == ":/" else file


def _cut(text: str) -> str:
    """Returns one line of bounded length, because names in foreign files may be anything."""
    end = text[-MAX_CHARACTERS:]
    return end if end.isprintable() else "".join(char if char.isprintable() else " " for char in end)


#: The first frames of compiled code in a recording: the recorder and the allocator themselves.
_RECORDER = ("torch::unwind", "CapturedTraceback", "gather_with_cpp", "CachingAllocator", "at::detail::empty")


def frames_of(stack: str) -> list[str]:
    """Returns the frames of a stack, innermost first. Frames without a line (`??:0 malloc`) count where all lack it."""
    frames = [frame for frame in stack.split("\n") if frame]
    lines = [frame for frame in frames if not frame.split(" ")[0].endswith(":0")]
    return lines or list(dropwhile(lambda frame: any(name in frame for name in _RECORDER), frames)) or frames


#: The most events and blocks in one snapshot, and the most devices.
MAX_ITEMS, MAX_DEVICES = 4_500_000, 256
#: Addresses, sizes and times are less than this, and so is the sum of a device's allocations.
MAX_BYTES = 2**62
_MAX_US = MAX_BYTES // NS_PER_US
#: The most characters of a category.
_CATEGORY_LENGTH = 40

_SEGMENT_CHANGES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
#: Any other action, `snapshot` or one of a later release, changes nothing.
_ACTIONS = frozenset({"alloc", "free_requested", "free_completed", "oom", *_SEGMENT_CHANGES})
#: PyTorch's names (`torch.profiler._memory_profiler.Category`), which snapshots made by its profiler carry.
_CATEGORIES: Mapping[str, Category] = {
    "parameter": "parameter",
    "gradient": "gradient",
    "optimizer_state": "optimizer state",
    "activation": "activation",
    "input": "input",
    "temporary": "temporary",
    "autograd_detail": "temporary",
}


class BadSnapshot(ValueError):
    """The object is not the allocator's snapshot. The message says what was found, `expected` what should be there."""

    def __init__(self, got: str, *, expected: str) -> None:
        super().__init__(got)
        self.expected = expected


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One device's history, its beginning first. The `source` of an event or a held block is the position of its frames
    and category in `sources`.

    `reserved` has (position in events, bytes) wherever the allocator took memory from the driver or returned it;
    `failures` are the positions of allocations that ran out of memory."""

    device: int
    events: list[MemoryEvent] = field(default_factory=list)
    held: list[Allocation] = field(default_factory=list)
    sources: list[Mapping[str, Any]] = field(default_factory=list)
    reserved: list[tuple[int, int]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)


def recordings(snapshot: object) -> list[Recording]:
    """Returns every device with a history or memory in use. Raises BadSnapshot."""
    whole = _check_mapping(snapshot, "the snapshot")
    traces = _check_list(whole.get("device_traces", []), "device_traces")
    if len(traces) > MAX_DEVICES:
        raise BadSnapshot(f"device_traces of {len(traces)} devices", expected=f"at most {MAX_DEVICES}")
    traces = [_check_list(trace, "a device's trace") for trace in traces]
    segments = [_check_mapping(item, "a segment") for item in _check_list(whole.get("segments"), "segments")]
    blocks = [_check_list(segment.get("blocks"), "blocks") for segment in segments]
    if sum(map(len, (*traces, segments, *blocks))) > MAX_ITEMS:
        raise BadSnapshot("more events and blocks than one can look at", expected=f"at most {MAX_ITEMS:,}")
    found = {device: Recording(device=device) for device in range(len(traces))}
    for device, trace in enumerate(traces):
        _read_trace(trace, found[device])
    _read_segments(zip(segments, blocks, strict=True), found)
    kept = [item for item in found.values() if item.held or any(event.change for event in item.events)]
    for item in kept:
        total = sum(abs(event.change) for event in item.events) + sum(allocation.bytes for allocation in item.held)
        if total >= MAX_BYTES:
            raise BadSnapshot(f"allocations of {total:,} bytes together", expected="sizes whose sum fits into 64 bits")
    return kept


def category_of(source: Mapping[str, Any]) -> Category:
    """Returns the purpose that the snapshot gives for an allocation, `unknown` without one."""
    said = source.get("category")
    if not isinstance(said, str) or len(said) > _CATEGORY_LENGTH:
        return "unknown"
    return _CATEGORIES.get(said.lower(), "unknown")


def frames_key(source: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns a key that is equal for equal stacks of one snapshot while it is in memory: PyTorch makes a list for each
    event, of frames that many lists share."""
    return tuple(map(id, _list_frames(source)))


def read_frames(source: Mapping[str, Any]) -> tuple[Frame, ...]:
    """Returns the stack of an event or a block, innermost frame first. Raises BadSnapshot."""
    frames = []
    for item in _list_frames(source):
        frame = _check_mapping(item, "a frame")
        file, name, line = frame.get("filename", ""), frame.get("name", ""), frame.get("line", 0)
        if not isinstance(file, str) or not isinstance(name, str) or not isinstance(line, int):
            raise BadSnapshot("a frame of other types", expected="filename and name as text, line as a number")
        frames.append((file, line % 2**31, name))
    return tuple(frames)


def _list_frames(source: Mapping[str, Any]) -> list[Any]:
    return _check_list(source.get("frames") or [], "frames")[:MAX_FRAMES]


def _read_trace(trace: list[Any], recording: Recording) -> None:
    """Appends the events of one device's trace, in the order of the allocator. A failed allocation is an event that
    changes nothing."""
    events, pending = recording.events, set[int]()
    for number, item in enumerate(trace):
        entry = item if type(item) is dict else _check_mapping(item, "an event")  # a call takes long, 4,000,000 times
        action = entry.get("action")
        at_ns = _check_number(entry.get("time_us", number), "time_us", most=_MAX_US) * NS_PER_US
        if type(action) is not str or action not in _ACTIONS:
            _check(action, (str,), "action", "text")
            continue
        if not events:  # the beginning, so that no allocation shares its microsecond with those that existed before
            events.append(MemoryEvent(at_ns, 0, 0))
        if action == "oom":
            recording.failures.append(len(events))
            events.append(MemoryEvent(at_ns, 0, 0))
            continue
        size = _check_number(entry.get("size"), "size")
        if action in _SEGMENT_CHANGES:
            recording.reserved.append((len(events), _SEGMENT_CHANGES[action] * size))
            continue
        address = _check_number(entry.get("addr"), "addr")
        if action == "free_completed" and address in pending:
            pending.discard(address)
            continue
        if action == "free_requested":
            pending.add(address)
        if size:
            recording.sources.append(entry)
            change = size if action == "alloc" else -size
            events.append(MemoryEvent(at_ns, address, change, len(recording.sources) - 1))


def _read_segments(segments: Iterable[tuple[Mapping[str, Any], list[Any]]], found: dict[int, Recording]) -> None:
    """Adds the blocks in use whose allocation is not among the events, because they existed before."""
    born = {device: {event.address for event in item.events if event.change > 0} for device, item in found.items()}
    for segment, blocks in segments:
        device = _check_number(segment.get("device", 0), "device", most=MAX_DEVICES)
        recording = found.setdefault(device, Recording(device=device))
        address = _check_number(segment.get("address"), "address")
        for entry in blocks:
            block = _check_mapping(entry, "a block")
            size = _check_number(block.get("size"), "size")
            at = _check_number(block.get("address", address), "address")
            if block.get("state") == "active_allocated" and at not in born.get(device, ()):
                recording.sources.append(block)
                asked = _check_number(block.get("requested_size") or size, "requested_size")
                recording.held.append(Allocation(at, asked, None, source=len(recording.sources) - 1))
            address += size


def _check(value: object, kinds: tuple[type, ...], what: str, expected: str) -> Any:
    if type(value) not in kinds:
        raise BadSnapshot(f"{what} that is {_describe_type(value)}", expected=expected)
    return value


def _check_mapping(value: object, what: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], _check(value, (dict,), what, "a dictionary"))


def _check_list(value: object, what: str) -> list[Any]:
    return cast(list[Any], _check(value, (list, tuple), what, "a list"))


def _check_number(value: object, what: str, *, most: int = MAX_BYTES) -> int:
    if type(value) is not int or not 0 <= value < most:
        found = _describe_type(value)
        if isinstance(value, str | bool):
            found = repr(value)[:40]
        elif isinstance(value, int):
            found = "negative" if value < 0 else "too large"
        raise BadSnapshot(f"{what} that is {found}", expected="a whole number, not negative, in 64 bits")
    return value


def _describe_type(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
