"""Names models of the user's own, and describes what was understood of one.

    >>> parse_spec("examples/nano.py:build,width=256").options
    {'width': 256}

`FILE.py:FUNCTION`, `package.module:FUNCTION` or `hf:CONFIG`, each with options behind commas and, if wanted, a name
before it: `wide=examples/nano.py:build,width=256`. Paths are relative to the working directory.

An own part of a step, its attention, loss or optimizer, is a function in a file. Rows hold it with a hash of its
source, so that two of one name are told apart, and so that a changed one is another:

    >>> find_part("kernels/flash.py:attend")
    'kernels/flash.py:attend@1a2b3c4d'

Standard library only.
"""

import ast
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable
from typing import Any, Literal

from runner.errors import BadModel, UsageError

#: The function that builds a model where none is named.
DEFAULT_FUNCTION = "build"
_EXPECTED = "FILE.py:FUNCTION, package.module:FUNCTION or hf:CONFIG, with NAME= before and ,option=value behind"
#: The values of axes that an own model does not read: samples without a length, attention of its own.
UNREAD: Mapping[str, int | str] = {"context": 0, "attention": "own"}
#: The most letters of a name in titles and beside axes.
_LONGEST_NAME = 40
Option = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class OwnSpec:
    """Where an own model comes from: a Python file, an importable module, or a configuration of `transformers`.
    `given` is the name that the user gave it."""

    text: str
    given: str
    kind: Literal["file", "module", "hf"]
    where: str
    function: str
    options: Mapping[str, Option]

    @property
    def name(self) -> str:
        """The given name, or a short one: `examples/nano` for `code/examples/nano.py:build`, `llama` for
        `hf:llama/config.json`. A function that is not called `build` and options are part of that."""
        if self.given:
            return self.given
        parts = [part for part in re.split(r"[/\\]", self.where) if part]
        last = parts[-1].removesuffix(".json").removesuffix(".py")
        folder = next((part for part in parts[-2:-1] if part not in (".", "..")), "")
        name = folder if last == "config" and folder else f"{folder}/{last}" if folder else last
        name = name if self.function == DEFAULT_FUNCTION else f"{name}:{self.function}"
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.options.items()}
        return ",".join([name, *(f"{key}={text}" for key, text in texts.items())])


def parse_spec(text: str) -> OwnSpec:
    """Parses what `--model` names. Raises UsageError."""
    given, where = _split_name(text)
    where, *pairs = (part.strip() for part in where.split(","))
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"The option {pair!r} of --model {text} cannot be read.", expected="name=value")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        # A number, true, false or null as such, anything else as text.
        options[name] = parsed if isinstance(parsed, int | float | bool | None) else value
    kind: Literal["file", "module", "hf"] | None = None
    path, _, function = where.rpartition(":")
    if where.startswith("hf:") and where != "hf:":
        kind, path, function = "hf", where[3:], DEFAULT_FUNCTION
    elif not (":" in where and function.isidentifier()):
        path, function = where, DEFAULT_FUNCTION
    if path.endswith(".py"):
        kind = kind or "file"
    elif path and all(part.isidentifier() for part in path.split(".")):
        kind = kind or "module"
    if kind:
        near = _relative(path) if os.path.isabs(path) else path
        text = text.replace(path, near, 1)
        return OwnSpec(text=text, given=given, kind=kind, where=near, function=function, options=options)
    do = "For example --model train.py:build or --model hf:config.json."
    raise UsageError(f"--model got {text!r}.", expected=_EXPECTED, do=do)


def _split_name(text: str) -> tuple[str, str]:
    """Returns the name before a spec, if there is one, and the spec."""
    name, equals, rest = text.partition("=")
    return (name, rest) if equals and re.fullmatch(r"[\w .-]+", name) else ("", text)


def _relative(path: str) -> str:
    return Path(os.path.relpath(path)).as_posix()


#: The digits of the hash of an own part's source, and how rows hold one, without control characters.
_KEY_DIGITS = 8
PART = r"[^\x00-\x1f\x7f]+\.py:\w+@[0-9a-f]{8}"


def is_own_part(value: object) -> bool:
    """Returns whether a cell's attention, loss or optimizer is the user's own."""
    return isinstance(value, str) and ":" in value


def find_part(text: str) -> str:
    """Returns an own part as rows hold it: `FILE.py:FUNCTION@KEY`, behind its name and `=` if it was given one. The key
    hashes the function's name, the file, and the files beside it that it imports.

    Raises BadModel where there is no such function, and where `text` has a key and the source has another by now."""
    named, _, expected = text.partition("@")
    given, rest = _split_name(named)
    path, _, function = rest.rpartition(":")
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        raise BadModel(
            f"{rest} names no Python file.", expected="FILE.py:FUNCTION", do=f"Looked for {path} in {Path.cwd()}."
        )
    try:
        sources = _read_sources(file)
        names = symtable(decode_source(sources[file]), path, "exec").get_symbols()
    except (OSError, SyntaxError, ValueError) as error:
        raise BadModel(f"{path} cannot be read: {error}.", expected="Python source") from None
    defined = [name.get_name() for name in names if name.is_assigned() or name.is_imported()]
    if function not in defined:
        listed = ", ".join(name for name in defined if not name.startswith("_"))
        raise BadModel(f"{path} has no function {function!r}.", expected=f"one of {listed or 'its own'}")
    digest = hashlib.sha256(function.encode())
    for source in sorted(sources):
        digest.update(b"\0" + os.path.relpath(source, file.parent).encode() + b"\0" + sources[source])
    key = digest.hexdigest()[:_KEY_DIGITS]
    if expected not in ("", key):
        raise BadModel(
            f"{named} has changed: its key is {key}, and {expected} was asked for.",
            do="Bring back that version of the source, or leave the key out to measure the new one.",
        )
    return f"{given}{'=' if given else ''}{_relative(path)}:{function}@{key}"


def part_title(value: Any) -> Any:
    """Returns the title of an own part, `kernels/flash:attend@1a2b`; any other value as it is."""
    if not is_own_part(value):
        return value
    named, _, key = value.partition("@")
    return own_title(named, key[:4])


def _read_sources(file: Path) -> dict[Path, bytes]:
    """Returns the source of a file and of the files beside it that it imports."""
    found, left = dict[Path, bytes](), [file]
    while left:
        path = left.pop()
        found[path] = path.read_bytes()
        for node in ast.walk(ast.parse(found[path])):
            names = [one.name for one in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{name}" for name in names)]
            for beside in (path.parent.joinpath(*name.split(".")) for name in names):
                files = (beside.with_suffix(".py"), beside / "__init__.py")
                left += [one for one in files if one not in found and one.is_file()]
    return found


def own_title(text: str, key: str) -> str:
    """Returns the title of an own model, `examples/nano@3f2a`, from a row's values, which may come from anyone:
    characters that Markdown, HTML or a chart would interpret become underscores, and a long name is cut."""
    try:
        name = parse_spec(text).name
    except UsageError:
        name = text
    name = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return re.sub(r"[^\w .,:=+@…/-]", "_", f"{name}@{key}")


def is_unread(name: str, value: object) -> bool:
    """Returns whether a cell's value of an axis says that its own model has no such axis."""
    return name in UNREAD and value == UNREAD[name]


@dataclass(frozen=True, kw_only=True)
class PassFlops:
    """The FLOPs of one forward pass and of one backward pass, by PyTorch's counter."""

    forward: int
    backward: int

    def of_mode(self, mode: str) -> int:
        """Returns the FLOPs of one step, without what a checkpoint computes again."""
        return self.forward if mode in ("inference", "forward") else self.forward + self.backward


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """What was understood of an own model: its name and key, what its builder reads, and what was built.

    `numbers` are columns of `Model` that are known. `flops` are by batch and context, and lack those that could not be
    counted without data; `missing` says why. `trained` counts the parameters that got a gradient, where steps ran, else
    those that require one. `inputs`, `output`, `blocks` and `loss`, where steps ran, are in words."""

    spec: str
    key: str
    reads: frozenset[str]
    numbers: Mapping[str, int | None]
    parameters: int
    trained: int
    inputs: str
    output: str
    blocks: str
    flops: Mapping[tuple[int, int], PassFlops]
    missing: str = ""
    loss: str = ""

    @property
    def fixed(self) -> dict[str, Any]:
        """The columns of its cells that no axis sets."""
        return {
            **self.numbers,
            "model": self.spec,
            "model_key": self.key,
            **{name: value for name, value in UNREAD.items() if name not in self.reads},
        }


#: How weights and products are held: the precision and the dtype of the weights, by name.
WAYS: Mapping[str, tuple[str, str]] = {
    "fp32": ("fp32", "fp32"),
    "bf16": ("bf16", "fp32"),
    "bf16 weights": ("bf16", "bf16"),
}
#: What is held at one moment of a step: bytes by part and by the powers of batch and context with which they grow.
Held = Mapping[tuple[str, int, int], int]


@dataclass(frozen=True, kw_only=True)
class CountedStep:
    """The training step of an own model, as counted on fake tensors: for each way of `WAYS`, without and with each
    block recomputed, the moments at which its memory can peak. `longest` is the most tokens that its configuration
    takes, where that is known; `has_context` says whether a sample has a length, `has_attention` whether the model asks
    which attention it is to have, `has_blocks` whether blocks repeat."""

    key: str
    longest: int | None
    has_context: bool
    has_attention: bool
    has_blocks: bool
    moments: Mapping[tuple[str, bool], Sequence[Held]]

    def parts_at(self, way: str, is_checkpointed: bool, *, batch: int, context: int) -> dict[str, int]:
        """Returns the bytes of each part at the peak."""
        peak: dict[str, int] = {}
        for held in self.moments[way, is_checkpointed]:
            parts: dict[str, int] = {}
            for (part, of_batch, of_context), size in held.items():
                parts[part] = parts.get(part, 0) + size * batch**of_batch * context**of_context
            peak = max(peak, parts, key=lambda one: sum(one.values()))
        return peak
