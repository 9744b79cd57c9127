"""What varies between processes, and what a whole sweep drifts by: two cards.

draw_noise(frame)
draw_canary(frame)
"""

import math
from collections.abc import Sequence
from typing import Any, get_args

import streamlit as st

from pages.figures.frame import CLOCKS, label_values, title_of
from pages.trust.answers import name_kind, say_canary, say_resolvable
from pages.trust.noise_figures import CanaryDot, NoiseDot, canary_dots, noise_dots
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.evidence import LoadEvidence, of_cells
from pages.ui.filters import run_name
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.audit.drift import Canary, judge_canary
from runner.analysis.statistics import resolvable
from runner.formats import format_percent
from runner.results import Clock, RepeatedCell, Repetition
from runner.schema.titles import title
from runner.store.queries.noise import TIMED, KnownNoise, load_known_noise, load_repeated

#: More kinds of cells than these are not one picture any more.
MAX_KINDS = 24
#: How often each cell of a pair is measured where one process decides too little.
ROUNDS = 5


def draw_noise(frame: Frame) -> None:
    """Draws how much equal cells differ from process to process, on every machine."""
    draw_heading(frame, "Which differences can be resolved?", anchor="differences")
    known = sorted(frame.ask(load_known_noise), key=lambda item: _order(frame, item))
    if not known:
        st.caption(
            restrict("No cell was measured in several processes by one run: what varies between processes is not "
                     "known, and no difference is significant. A sweep without `--rounds 1` measures a few again.")
        )  # fmt: skip
        return
    cells = [cell for cell in frame.ask(load_repeated) if cell.machine == frame.selection.machine]
    own = [item for item in known if item.kind.machine == frame.selection.machine]
    answer = say_resolvable(own, machine=frame.selection.machine or "this machine", rounds=ROUNDS)
    card = Card(
        key="noise",
        title="Noise between processes",
        answer=answer,
        evidence=_load_evidence(frame, cells),
        note="Whole steps of cells that one run measured in several processes, on every machine, regardless of the "
        "sidebar. The standard deviation is that of the logarithm of their medians. A difference is resolved where one "
        "pair of cells is enough to decide it.",
        alt=f"Noise by kind of cell, as dots on a log axis. {answer}",
        rows=[_make_row(item) for item in known],
        cells=[cell.cell for cell in cells],
    )
    dots = [
        NoiseDot(
            kind=f"{item.kind.machine} · {name_kind(item)}",
            clock=item.kind.clock,
            std=item.noise.std,
            one=_resolve(item, rounds=1),
            five=_resolve(item, rounds=ROUNDS),
        )
        for item in known[: MAX_KINDS * len(CLOCKS)]
    ]
    draw(frame, card, lambda: noise_dots(dots))


def _order(frame: Frame, item: KnownNoise) -> tuple[Any, ...]:
    """Returns the place of a kind: the sidebar's machine first, what the device bounds before what the host does."""
    machine, clocks = item.kind.machine, get_args(Clock)
    own = machine != frame.selection.machine
    return own, machine, TIMED.index(item.table), item.kind.bound or "", clocks.index(item.kind.clock)


def _make_row(item: KnownNoise) -> dict[str, Any]:
    one, five = _resolve(item, rounds=1), _resolve(item, rounds=ROUNDS)
    return {
        "Machine": item.kind.machine,
        "Cells": name_kind(item),
        "Clock": CLOCKS[item.kind.clock],
        "Repeated cells": item.noise.cells,
        "Standard deviation (%)": 100 * item.noise.std,
        "Resolved by one process each (%)": one and 100 * one,
        f"Resolved by {ROUNDS} processes each (%)": five and 100 * five,
    }


def _resolve(item: KnownNoise, *, rounds: int) -> float | None:
    """Returns the smallest difference that one pair resolves, as a share; None where it resolves none."""
    least = resolvable(item.noise, rounds=rounds)
    return least if math.isfinite(least) else None


def _load_evidence(frame: Frame, cells: Sequence[RepeatedCell]) -> list[LoadEvidence | None]:
    """Returns what loads the rounds of these cells, of each table."""
    return [of_cells(frame, [cell for cell in cells if cell.table == table], among="all") for table in TIMED]


def draw_canary(frame: Frame) -> None:
    """Draws the rounds of the cell that a run measured most often, over time; nothing where no cell was."""
    canaries = _find_canaries(frame, frame.ask(load_repeated))
    if not canaries:
        return
    name = next(iter(canaries))
    if len(canaries) > 1:
        name = select_one("canary", "Canary of run", list(canaries))
    canary, cell = canaries[name], canaries[name].cell
    answer = say_canary(title(cell.cell), canary)
    card = Card(
        key="canary",
        folded=True,
        title="Canary over time",
        answer=answer,
        evidence=[of_cells(frame, [cell], among="all")],
        note="The cell that this run measured in most processes. The bars are the 95% intervals within a process; "
        "where the machine changed is shaded. Click a dot to see the cell's samples.",
        alt=f"Median step of one cell over the time of a run. {answer}",
        rows=[_describe_round(cell, one) for one in cell.rounds],
        cells=[cell.cell],
    )
    dots = [
        CanaryDot(
            cell_id=str(one.cell_id),
            at=at,
            round=one.round,
            median_ms=one.time.median_ms,
            low_ms=one.time.low_ms,
            high_ms=one.time.high_ms,
        )
        for one, at in zip(cell.rounds, cell.started, strict=True)
    ]
    draw(frame, card, lambda: canary_dots(dots, changes=canary.drifts or (), state=name), on_click=pin)


def _find_canaries(frame: Frame, cells: Sequence[RepeatedCell]) -> dict[str, Canary]:
    """Returns the canary of each run that the sidebar leaves, newest first."""
    found: dict[str, Canary] = {}
    for run in frame.contents.runs:
        if run.machine != frame.selection.machine or frame.selection.run not in (None, run.run_id):
            continue
        canary = judge_canary([cell for cell in cells if cell.run_id == run.run_id])
        if canary:
            found[run_name(run)] = canary
    return found


def _describe_round(cell: RepeatedCell, one: Repetition) -> dict[str, Any]:
    return {
        "Cell": title(cell.cell),
        title_of("steps", "round"): one.round,
        title_of("steps", "started_at"): one.started_at,
        **label_values("timings", one.time, ("median_ms", "low_ms", "high_ms", "n")),
        "Against the first": format_percent(one.time.median_ms / cell.rounds[0].time.median_ms - 1, signed=True),
    }
