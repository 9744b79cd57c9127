"""Shapes by name, and shapes written out. Names are for people; rows are keyed on the numbers.

    >>> size_named("small").d_model
    768
    >>> title(cell)
    'small · 512 · train · bf16 · compiled'

Standard library only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from string import Formatter
from typing import Any

from runner.errors import UsageError
from runner.schema.axes import MODEL, SHAPE, Model, ModelCell, Shape
from runner.schema.cells import Cell
from runner.schema.columns import columns_of
from runner.schema.own import is_unread, own_title, part_title


@dataclass(frozen=True, kw_only=True)
class Size(Shape):
    """A shape with a name, which is empty for a shape that was written out."""

    name: str

    @property
    def numbers(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in SHAPE}


SIZES: Mapping[str, Size] = {
    size.name: size
    for size in (
        Size(name="toy-64", d_model=64, d_ff=192, layers=2, heads=2, vocabulary=2048),
        Size(name="toy-128", d_model=128, d_ff=384, layers=3, heads=4, vocabulary=2048),
        Size(name="toy-256", d_model=256, d_ff=768, layers=4, heads=8, vocabulary=2048),
        Size(name="small", d_model=768, d_ff=3072, layers=12, heads=12),
        Size(name="medium", d_model=1024, d_ff=4096, layers=24, heads=16),
        Size(name="large", d_model=1280, d_ff=5120, layers=36, heads=20),
        Size(name="xl@2025", d_model=1600, d_ff=6400, layers=48, heads=25),
        Size(name="xl@2026", d_model=2560, d_ff=10240, layers=32, heads=32),
        Size(name="10B", d_model=4608, d_ff=12288, layers=50, heads=36),
    )
}
#: The digits of an own model's key that its name shows.
KEY_DIGITS = 4
ALIASES: Mapping[str, str] = {"2.7B": "xl@2026", "xl@2024": "xl@2025"}


def size_named(name: str) -> Size:
    """Returns the shape called `name`. Raises UsageError, also for `xl` alone, whose editions are different shapes."""
    found = SIZES.get(ALIASES.get(name, name))
    if found is not None:
        return found
    if name == "xl":
        raise UsageError(
            "'xl' means two different shapes.", do="Say which: xl@2025 (1600 wide) or xl@2026 (2560 wide)."
        )
    raise UsageError(
        f"There is no size called {name!r}.",
        expected=f"one of {', '.join(SIZES)}",
        do="For any other shape use --shape d_model=512,d_ff=2048,layers=8,heads=8.",
    )


def parse_shape(text: str) -> Size:
    """Parses a shape such as `d_model=512,d_ff=2048,layers=8,heads=8[,vocabulary=10000]`. Raises UsageError."""
    expected = "d_model=512,d_ff=2048,layers=8,heads=8 and, if wanted, vocabulary=10000"
    try:
        numbers = {name.strip(): int(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise UsageError(f"The shape {text!r} cannot be read.", expected=expected) from None
    missing = set(SHAPE) - {"vocabulary"} - set(numbers)
    if missing or set(numbers) - set(SHAPE) or min(numbers.values()) < 1:
        raise UsageError(
            f"The shape {text!r} is not whole: every name once, every number at least 1.", expected=expected
        )
    return Size(name="", **numbers)


def shape_name(of: Any) -> str:
    """Returns the name of a cell's shape; without one, width and depth as `512×8`, with a d_ff that is not 4× the
    width."""
    numbers = {name: getattr(of, name) for name in SHAPE}
    wide = "" if of.d_ff == 4 * of.d_model else f" (d_ff {of.d_ff})"
    return next((size.name for size in SIZES.values() if size.numbers == numbers), f"{of.d_model}×{of.layers}{wide}")


def model_name(model: Model) -> str:
    """Returns the name of the model of a cell, a row or an identity: that of its shape, or of an own model its file and
    the first digits of its key, which tell its versions apart: `nano@3f2a`."""
    if model.model_key is None:
        return shape_name(model)
    return own_title(model.model or "", model.model_key[:KEY_DIGITS])


def name_models(models: Iterable[Model]) -> dict[Model, str]:
    """Returns a name for each model; shapes that would share one say in which numbers they differ."""
    names = {model: model_name(model) for model in models}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    apart = {model: _tell_apart(model, name) if name in shared else name for model, name in names.items()}
    seen = Counter[str]()
    for model, name in apart.items():  # rows of others may give two shapes one file and one key
        seen[name] += 1
        apart[model] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return _Names(apart)


class _Names(dict[Model, str]):
    """Also names a model that was not among the others, such as one that a sweep has measured since."""

    def __missing__(self, model: Model) -> str:
        name = model_name(model)
        return _tell_apart(model, name) if name in self.values() else name


def _tell_apart(model: Model, name: str) -> str:
    if model.model_key:
        return own_title(model.model or "", model.model_key[: 4 * KEY_DIGITS])
    return f"{name.partition(' (')[0]} (d_ff {model.d_ff}, {model.heads} heads, vocabulary {model.vocabulary})"


def check_shape(cell: ModelCell) -> None:
    """Raises UsageError for a shape that no model can have. Own models have no shape."""
    if cell.checkpoint_blocks < 0:
        raise UsageError(f"checkpoint_blocks is {cell.checkpoint_blocks}.", expected="0 (keep everything) or more")
    if cell.model_key is not None:
        return
    for name in (*SHAPE, "context"):
        if getattr(cell, name) < 1:
            got = f"--contexts got {cell.context}" if name == "context" else f"{name} is {getattr(cell, name)}"
            raise UsageError(f"{got}.", expected="at least 1")
    shape = cell.shape
    if shape.d_model % shape.heads:
        raise UsageError(
            f"A model width of {shape.d_model} does not divide into {shape.heads} heads.",
            expected="d_model to be a multiple of heads",
            do="Change d_model or heads.",
        )
    if shape.d_model // shape.heads % 2:
        raise UsageError(
            f"{shape.heads} heads of a model width of {shape.d_model} are {shape.d_model // shape.heads} wide.",
            expected="an even head width",
            do="Rotary positions turn pairs: change d_model or heads.",
        )


#: Words for what the schema abbreviates.
WORDS: Mapping[str, str] = {
    "oom": "out of memory",
    "timeout": "timed out",
    "forward": "forward",
    "loss": "loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "forward_backward": "forward + backward",
    "step": "whole step",
}
_LIMITS = ("min_steps", "max_steps", "max_seconds")


def describe_status(status: str, failed_phase: str | None) -> str:
    """Returns how a cell ended, with the phase: `out of memory in backward`; nothing for ok."""
    where = {"errors": "the fp64 check"}.get(failed_phase or "", failed_phase)
    return "" if status == "ok" else WORDS.get(status, status) + (f" in {where}" if where else "")


def title(cell: Cell) -> str:
    """Returns a cell in a few words: its shape, its first axes, and every other field that is not the default."""
    asked = cell.asked()
    lead = [name for _, name, _, _ in Formatter().parse(asked.TITLE) if name]
    parts = [model_name(cell)] if isinstance(cell, Model) else []
    own = isinstance(cell, Model) and cell.model_key is not None
    said = {name: "" if own and not getattr(cell, name) else part_title(getattr(cell, name)) for name in lead}
    parts += [*asked.TITLE.format(**said).split(" · "), *cell.remarks()]
    known = {*MODEL, *lead, *_LIMITS}
    labels = {column.name: column.label.lower() for column in columns_of(asked)}
    parts += [
        label if value is True else f"not {label}" if value is False else f"{label} {part_title(value)}"
        for item in fields(asked)
        for label in (labels[item.name],)
        if item.name not in known
        and item.default is not MISSING
        and (value := getattr(cell, item.name)) not in (None, item.default)
        and not is_unread(item.name, value)
    ]
    return " · ".join(part for part in parts if part)
