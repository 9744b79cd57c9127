"""Reads the provenance of a report, which says how its tables were measured, for one table.

    read_provenance(table, position=0).batch           # 4, of "4 (end to end); 8 (attention)"

A column of the provenance may speak of several tables at once: "128 (first table); 128-1024 (second)". What cannot be
told stays None or False.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from runner.results.published import PublishedTable

#: The words by which the parts of a column name the tables that they are about.
_ABOUT = {"steps": "end to end", "attention": "attention"}
_POSITIONS = ("first", "second", "third", "fourth")
_PART = re.compile(r"\s*([^(;]*?)\s*(?:\(([^)]*)\))?\s*(?:;|$)")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The known facts about one table. `unsynchronized` are the words that say so."""

    batch: int | None = None
    context: int | None = None
    has_population_std: bool | None = None
    warms_forward_only: bool = False
    unsynchronized: str | None = None
    knows_memory: bool = False


def read_provenance(table: PublishedTable, *, position: int = 0) -> Provenance:
    """Returns what the provenance says of one table, which is the report's first, second, … by `position` from 0."""
    said = table.provenance
    std = said.get("std_kind", "").lower()
    return Provenance(
        batch=_parse_number(_find_part(said.get("batch_size", ""), table.subject, position)),
        context=_parse_number(_find_part(said.get("context_lengths", ""), table.subject, position)),
        has_population_std=True if "population" in std else False if "sample" in std else None,
        warms_forward_only=_find_part(said.get("warmup_ran", ""), table.subject, position).startswith("forward only"),
        unsynchronized=_find_unsynchronized(said.get("clock", ""), table.subject, position),
        knows_memory=bool(said.get("memory_means")),
    )


@lru_cache(maxsize=4096)
def _find_part(text: str, subject: str, position: int) -> str:
    """Returns the part of a column that is about this table: by its subject, by its place, or the only one."""
    parts: list[tuple[str, str]] = [(value, about or "") for value, about in _PART.findall(text) if value]
    for value, about in parts:
        if _ABOUT.get(subject, "nothing") in about or _POSITIONS[min(position, 3)] in about.split():
            return value
    unqualified = [value for value, about in parts if not any(word in about for word in (*_ABOUT.values(), "table"))]
    return unqualified[0] if len(unqualified) == 1 else ""


def _parse_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


@lru_cache(maxsize=4096)
def _find_unsynchronized(text: str, subject: str, position: int) -> str | None:
    """Returns the words that say which clock did not wait for the device, if they are about this table."""
    found = re.search(r"[^;]*\bnot? synchroni[sz][^;]*", text, re.IGNORECASE)
    if not found or subject != "steps":
        return None
    words = found.group().strip()
    place = re.search(r" in the (first|second|third|fourth) table", words)
    return words if place is None or place.group(1) == _POSITIONS[min(position, 3)] else None
