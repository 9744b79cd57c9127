"""Writes a cell in words.

    >>> title(cell)
    'small · 512 · train · bf16 · compiled'

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from string import Formatter
from typing import Protocol

from runner.schema.axes import MODEL, Model
from runner.schema.cells import Cell
from runner.schema.columns import columns_of
from runner.schema.own import is_unread
from runner.schema.sizes import model_name

#: Words for what the schema abbreviates.
WORDS: Mapping[str, str] = {
    "oom": "out of memory",
    "timeout": "timed out",
    "crashed": "crashed",
    "error": "error",
    "skipped": "skipped",
    "forward": "forward",
    "loss": "loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "forward_backward": "forward + backward",
    "step": "whole step",
}
_LIMITS = ("min_steps", "max_steps", "max_seconds")


class Ended(Protocol):
    """A result that may have failed."""

    @property
    def status(self) -> str: ...
    @property
    def failed_phase(self) -> str | None: ...


def describe_status(result: Ended) -> str:
    """Returns how a cell ended, with the phase: `out of memory in backward`."""
    return WORDS.get(result.status, result.status) + (f" in {result.failed_phase}" if result.failed_phase else "")


def title(cell: Cell) -> str:
    """Returns a cell in a few words: its shape, its first axes, and every other field that is not the default."""
    asked = cell.asked()
    lead = [name for _, name, _, _ in Formatter().parse(asked.TITLE) if name]
    parts = [model_name(cell)] if isinstance(cell, Model) else []
    own = isinstance(cell, Model) and cell.model_key is not None
    said = {name: "" if own and not getattr(cell, name) else getattr(cell, name) for name in lead}
    parts += [*asked.TITLE.format(**said).split(" · "), *cell.remarks()]
    known = {*MODEL, *lead, *_LIMITS}
    labels = {column.name: column.label.lower() for column in columns_of(asked)}
    parts += [
        _format_field(labels[item.name], value)
        for item in fields(asked)
        if item.name not in known
        and item.default is not MISSING
        and (value := getattr(cell, item.name)) not in (None, item.default)
        and not is_unread(item.name, value)
    ]
    return " · ".join(part for part in parts if part)


def _format_field(label: str, value: object) -> str:
    return label if value is True else f"not {label}" if value is False else f"{label} {value}"
