"""Runs and machines."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What steps were measured on: `device` is cuda, cpu or mps."""

    device: str | None = None
    device_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run and how its cells ended. `given` is the name that somebody gave it later."""

    run_id: UUID
    machine: str
    started_at: datetime | None
    label: str | None
    preset: str | None
    argv: str | None
    torch: str | None
    device: str | None
    device_name: str | None
    device_memory_bytes: int | None
    git_commit: str | None
    git_dirty: bool | None
    source: str | None
    ok: int
    failed: int
    skipped: int
    given: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the run is called in the dashboard's filter and address, and in no other run of the file."""
        when = f"{self.started_at:%Y-%m-%d %H:%M}" if self.started_at else "undated"
        return " ".join(part for part in (when, self.given or self.label or self.preset, self.run_id.hex[-6:]) if part)

    @property
    def cells(self) -> int:
        return self.ok + self.failed + self.skipped
