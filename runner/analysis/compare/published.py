"""Pairs published figures with measured cells of the same shape, and computes their ratios.

    for pair in stand_beside(readings, steps=load_steps(…), attention=load_attention(…)):
        print(pair.reading.words, pair.phase, pair.ratio)
    for peak in match_peaks(readings, attention=load_attention(…)):
        print(peak.reading.words, peak.published_bytes, peak.measured_bytes)

Cells are matched on shape, context, batch, precision and backend, and attention on length and width; a precision or a
backend that a table does not state is taken to be fp32 and eager. Of several measured cells the one in the project's
defaults is taken, in the mode that passes through the phases that the row states.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args
from uuid import UUID

from runner.analysis.audit.published.readings import Reading
from runner.results import AttentionResult, StepResult
from runner.results.times import Estimate
from runner.schema import AttentionCell, Mode, Phase, StepCell
from runner.schema.axes import SHAPE
from runner.schema.choices import Precision

PHASES: tuple[Phase, ...] = ("forward", "backward", "forward_backward", "optimizer", "step")
#: The settings on which a reading and a measured cell must agree.
_MATCHED = frozenset((*SHAPE, "batch", "context", "seq_len", "d_head", "precision", "backend"))
_PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: The modes in the order in which they are preferred for a row that states forward and backward.
_MODES: tuple[Mode, ...] = ("backward", "train", "forward", "inference")


@dataclass(frozen=True, kw_only=True)
class PublishedPair:
    """One phase of a reading beside a measured cell: both times in ms, and published over measured with the interval
    that the measured one gives it."""

    reading: Reading
    phase: Phase
    beside: StepResult | AttentionResult
    published_ms: float
    measured: Estimate

    @property
    def cell_id(self) -> UUID:
        return self.beside.cell_id

    @property
    def ratio(self) -> float:
        return self.published_ms / self.measured.ms

    @property
    def low(self) -> float | None:
        return self.published_ms / self.measured.high_ms if self.measured.high_ms else None

    @property
    def high(self) -> float | None:
        return self.published_ms / self.measured.low_ms if self.measured.low_ms else None


@dataclass(frozen=True, kw_only=True)
class PublishedPeak:
    """The peak memory of a reading beside that of a measured cell: bytes allocated."""

    reading: Reading
    beside: AttentionResult
    published_bytes: float
    measured_bytes: int

    @property
    def ratio(self) -> float:
        return self.published_bytes / self.measured_bytes


def stand_beside(
    readings: Sequence[Reading], *, steps: Sequence[StepResult], attention: Sequence[AttentionResult]
) -> list[PublishedPair]:
    """Returns a pair for each time of a reading of which a cell was measured."""
    known: dict[object, list[StepResult | AttentionResult]] = defaultdict(list)
    for step in steps:
        known[_match_key(step.cell)].append(step)
    for attended in attention:
        known[_match_key(attended.cell)].append(attended)
    return [pair for reading in readings for pair in _pair_phases(reading, known)]


def match_peaks(readings: Sequence[Reading], *, attention: Sequence[AttentionResult]) -> list[PublishedPeak]:
    """Returns a pair for each peak of an attention row of which a cell was measured that knows its own."""
    known: dict[object, list[AttentionResult]] = defaultdict(list)
    for attended in attention:
        if attended.peak_allocated_bytes:
            known[_match_key(attended.cell)].append(attended)
    peaks = []
    for reading in readings:
        asked, figure = wanted_cell(reading), reading.memory.get(("peak_memory", ""))
        cells = known.get(_match_key(asked), []) if asked and reading.is_ok else []
        if asked and cells and figure and figure.value:
            cell = min(cells, key=lambda cell: _rank_distance(cell.cell, asked))
            measured = cell.peak_allocated_bytes or 0
            peaks.append(
                PublishedPeak(reading=reading, beside=cell, published_bytes=figure.value, measured_bytes=measured)
            )
    return peaks


def _pair_phases(reading: Reading, known: dict[object, list[StepResult | AttentionResult]]) -> Iterator[PublishedPair]:
    asked = wanted_cell(reading)
    if asked is None or not reading.is_ok:
        return
    found = sorted(known.get(_match_key(asked), []), key=lambda cell: _rank_distance(cell.cell, asked))
    for phase in PHASES:
        time = reading.times.get(phase)
        cell = next((cell for cell in found if phase in cell.times), None)
        if time and time.mean > 0 and cell:
            measured = cell.times[phase].step
            yield PublishedPair(reading=reading, phase=phase, beside=cell, published_ms=time.mean, measured=measured)


def wanted_cell(reading: Reading) -> StepCell | AttentionCell | None:
    """Returns the cell that stands for a reading; None where its numbers are not stated or no cell has them."""
    key = reading.key
    precision = next((name for name in _PRECISIONS if name == (key.precision or "fp32")), None)
    backend = key.backend or "eager"
    if precision is None or backend not in ("eager", "compiled") or not key.length or not key.batch:
        return None
    if reading.table.subject == "attention" and key.width:
        return AttentionCell(
            implementation="naive",
            backend="compiled" if backend == "compiled" else "eager",
            batch=key.batch,
            seq_len=key.length,
            d_head=key.width,
            precision=precision,
        )
    if reading.shape is None:
        return None
    return StepCell(
        d_model=reading.shape.d_model,
        d_ff=reading.shape.d_ff,
        layers=reading.shape.layers,
        heads=reading.shape.heads,
        vocabulary=reading.shape.vocabulary,
        batch=key.batch,
        context=key.length,
        mode=_choose_mode(reading),
        precision=precision,
        backend="compiled" if backend == "compiled" else "eager",
    )


def _choose_mode(reading: Reading) -> Mode:
    stated = next((mode for mode in _MODES if mode == reading.key.mode), None)
    if stated:
        return stated
    if "optimizer" in reading.times or "step" in reading.times:
        return "train"
    return "backward" if {"backward", "forward_backward"} & reading.times.keys() else "forward"


def _match_key(cell: StepCell | AttentionCell) -> tuple[object, ...]:
    """Returns the values on which two cells must agree."""
    return tuple(getattr(cell, name) for name in type(cell).names() if name in _MATCHED)


def _rank_distance(cell: StepCell | AttentionCell, asked: StepCell | AttentionCell) -> tuple[int, int]:
    """Returns the number of settings in which a cell differs from the wanted one, and the rank of its mode."""
    names = [name for name in type(asked).names() if name != "mode"]
    apart = sum(getattr(cell, name) != getattr(asked, name) for name in names)
    if isinstance(cell, AttentionCell) or isinstance(asked, AttentionCell):
        return apart, 0
    order = [asked.mode, *(mode for mode in _MODES if mode != asked.mode)]
    return apart, order.index(cell.mode)
