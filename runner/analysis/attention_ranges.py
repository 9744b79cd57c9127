"""Ranges inside attention, recognized by their names: softmax, mask, and the two matrix products.

    ranges = attention_ranges(parts, trace, phases=("forward",))
    print([(item.role, item.device_ms, item.flops) for item in ranges])

`ROLES` knows Stepscope's own names and common others. FLOPs of matrix products are the profiler's, those of softmax
follow from a formula; imported traces have none, because their shapes are unknown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.analysis.costs.softmax import softmax_flops
from runner.results import KernelPart, KernelTrace

#: The role of a range inside attention, by its name; the first pattern that matches.
ROLES: Mapping[str, re.Pattern[str]] = {
    "softmax": re.compile(r"soft ?max", re.IGNORECASE),
    "mask": re.compile(r"mask", re.IGNORECASE),
    "scores": re.compile(r"score|\bqk", re.IGNORECASE),
    "product with values": re.compile(r"attention product|final mat_?mul|weighted (sum|values)|\bpv\b", re.IGNORECASE),
}
MATMULS = ("scores", "product with values")


@dataclass(frozen=True, kw_only=True)
class AttentionRange:
    """The time and FLOPs of one range in the chosen phases."""

    role: str
    device_ms: float
    flops: int | None
    calls: float


def role_of(scope: str) -> str | None:
    return next((role for role, pattern in ROLES.items() if pattern.search(scope)), None)


def attention_ranges(parts: Sequence[KernelPart], trace: KernelTrace, *, phases: Sequence[str]) -> list[AttentionRange]:
    """Returns every range inside attention that ran in these phases, in the order of computation."""
    inside_attention = []
    for role in ("scores", "mask", "softmax", "product with values"):
        inside = [part for part in parts if part.phase in phases and role_of(part.scope) == role]
        if not inside:
            continue
        counted = [part.flops for part in inside if part.flops is not None]
        flops = sum(counted) if counted else None
        if role == "softmax" and trace.cell and trace.cell.model_key is None:
            flops = sum(softmax_flops(trace.cell, phase=phase) for phase in phases)
        inside_attention.append(
            AttentionRange(role=role, device_ms=sum(part.device_ms for part in inside), flops=flops,
                  calls=sum(part.calls for part in inside))
        )  # fmt: skip
    return inside_attention
