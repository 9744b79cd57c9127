"""Holds Python stacks as text, each once.

    >>> stacks = Stacks()
    >>> stacks.number((("runner/models/transformer.py", 108, "forward"),))
    0
    >>> stacks.texts[0]
    'runner/models/transformer.py:108 forward'

File names are relative to the checkout that ran, to `site-packages` or to the standard library, so that no machine's
folders are stored. Standard library only.
"""

from collections.abc import Callable, Hashable
from itertools import dropwhile
from pathlib import Path

#: File, line, function.
Frame = tuple[str, int, str]

_CHECKOUT = str(Path(__file__).resolve().parents[3]) + "/"
_FOLDERS = ("/site-packages/", "/dist-packages/")
#: The number of folders of a foreign path that are kept before its file name.
_KEPT = 3
#: The most frames of one stack and characters of one name that are kept, and characters of a path that are read.
MAX_FRAMES, MAX_CHARACTERS, _PATH_LENGTH = 100, 300, 4_000


class Stacks:
    """The stacks of one timeline. A stack's number is its position in `texts`; a text has one `file:line function` a
    line."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.characters = 0
        self._numbers: dict[str, int] = {}
        self._known: dict[Hashable, int | None] = {}

    def number(self, frames: tuple[Frame, ...]) -> int | None:
        """Returns the number of a stack, innermost frame first; None for an empty one."""
        return self.remember(frames, lambda: frames)

    def remember(self, key: Hashable, frames: Callable[[], tuple[Frame, ...]]) -> int | None:
        """Returns the number of a stack that is known by `key`; `frames` is called the first time only."""
        try:
            return self._known[key]
        except KeyError:
            number = self._known[key] = self._add(frames())
            return number

    def _add(self, frames: tuple[Frame, ...]) -> int | None:
        text = "\n".join(f"{strip_folders(file)}:{line} {_cut(name)}" for file, line, name in frames[:MAX_FRAMES])
        if not text:
            return None
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
            self.characters += len(text)
        return self._numbers[text]


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
    """Returns the frames of a stack, innermost first. Frames without a line (`??:0 malloc`) are left out unless there
    are no others."""
    frames = [frame for frame in stack.split("\n") if frame]
    lines = [frame for frame in frames if not frame.split(" ")[0].endswith(":0")]
    return lines or list(dropwhile(lambda frame: any(name in frame for name in _RECORDER), frames)) or frames
