"""Results as pages, the terminal and the analysis read them: a cell over its rounds, with its times.

The store makes them (`runner.store.queries`), the analysis reasons from them. Standard library only.
"""

from dataclasses import dataclass
from uuid import UUID

from runner.schema import Phase, StepCell


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """One phase of one cell over all its rounds, in ms."""

    median_ms: float
    mean_ms: float | None
    std_ms: float | None
    low_ms: float | None
    high_ms: float | None
    n: int | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cell on one machine, over its rounds. `status` is ok when any round is; `times` is empty when none is."""

    cell_id: UUID
    run_id: UUID
    cell: StepCell
    cell_key: str
    machine: str | None
    torch: str | None
    status: str
    failed_phase: str | None
    message: str | None
    rounds: int
    failed_rounds: int
    parameters: int | None
    tokens_per_s: float | None
    mfu: float | None
    compile_seconds: float | None
    times: dict[Phase, PhaseTime]


#: The samples of one phase in ms: one tuple a round.
Rounds = tuple[tuple[float, ...], ...]
