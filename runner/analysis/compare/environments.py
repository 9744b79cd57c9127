"""How do the environments of two sides differ: device, driver, CUDA, torch, commit, threads, …?

    for found in find_differences(a_runs, b_runs):
        print(found.label, found.a, found.b)       # torch 2.11.0+cu130 2.13.0+cu130

A side may hold several runs; then all of their values are named. Limits: two checkouts with uncommitted changes may
differ although their commit is the same (`both_uncommitted`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.schema import TABLES, Cell, Model, RunRow
from runner.schema.sizes import KEY_DIGITS

#: The columns that can explain a difference of times, the strongest reasons first.
COLUMNS = (
    "source", "device", "device_name", "compute_capability", "device_memory_bytes", "driver", "cuda", "torch",
    "git_commit", "threads", "omp_wait_policy", "cpu_name", "cpu_cores", "cpu_flags", "memory_bytes", "allocator",
    "compiler", "python", "stepscope", "os", "host",
)  # fmt: skip
_UNKNOWN = "–"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One column of `runs` in which two sides differ, as text; a dash stands for unknown or missing."""

    label: str
    a: str
    b: str


def find_versions(pairs: Iterable[tuple[Cell, Cell]]) -> list[Difference]:
    """Returns the own models of which the two sides measured different versions, by the digits of their keys."""
    found = {
        (a.model, a.model_key, b.model_key)
        for a, b in pairs
        if isinstance(a, Model) and isinstance(b, Model) and a.model_key and b.model_key and a.model_key != b.model_key
    }
    return [
        Difference(label=f"Source of {name}", a=a[:KEY_DIGITS], b=b[:KEY_DIGITS])
        for name, a, b in sorted(found, key=str)
        if a and b
    ]


def find_differences(a: Sequence[RunRow], b: Sequence[RunRow]) -> list[Difference]:
    """Returns the columns whose values differ between the sides."""
    found = []
    for name in COLUMNS:
        values = [{_format_value(run, name) for run in side} for side in (a, b)]
        if values[0] != values[1]:
            a_words, b_words = (_list_values(own, other, name) for own, other in (values, reversed(values)))
            found.append(Difference(label=TABLES["runs"].column(name).label, a=a_words, b=b_words))
    return found


def both_uncommitted(a: Sequence[RunRow], b: Sequence[RunRow]) -> bool:
    """Returns whether both sides ran the same commit with uncommitted changes, so that their code may differ."""
    dirty = [{run.git_commit for run in side if run.git_dirty} for side in (a, b)]
    return bool(dirty[0] & dirty[1])


def describe_differences(found: Sequence[Difference]) -> str:
    """Returns a sentence: `The environments differ in torch (2.11.0 → 2.13.0) and threads (2 → 1).`"""
    if not found:
        return "Both sides ran in the same environment: device, driver, torch, commit, threads and all else recorded."
    parts = [f"{_lower_label(item.label)} ({item.a} → {item.b})" for item in found]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"The environments differ in {listed}."


def describe_environment(runs: Sequence[RunRow]) -> str:
    """Returns what one side ran on: `NVIDIA H200, torch 2.11.0+cu130, commit 7b7e79900c`."""
    parts = []
    for name, word in (("device_name", ""), ("torch", "torch "), ("git_commit", "commit ")):
        values = sorted({_format_value(run, name) for run in runs} - {_UNKNOWN})
        parts += [word + ", ".join(values)] if values else []
    return ", ".join(parts) or "an unknown environment"


def _format_value(run: RunRow, name: str) -> str:
    value = getattr(run, name)
    if value is None:
        return _UNKNOWN
    if name.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    if name == "git_commit":
        return f"{value[:10]}{' with uncommitted changes' if run.git_dirty else ''}"
    return str(value)


def _list_values(own: set[str], other: set[str], name: str) -> str:
    """Returns all values of one side, but only those instruction sets that the other side lacks."""
    if name == "cpu_flags":
        theirs = {flag for value in other for flag in value.split()}
        own = {" ".join(flag for flag in value.split() if flag not in theirs) or "none further" for value in own}
    return ", ".join(sorted(own))


def _lower_label(label: str) -> str:
    """Returns a label for the middle of a sentence: `device name`, but `CUDA`."""
    return label[0].lower() + label[1:] if label[1:2].islower() and label.split()[0] != "OpenMP" else label
