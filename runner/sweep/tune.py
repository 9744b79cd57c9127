"""Finds the fastest way to train a model on this machine: the race, measured. Every trial is a row of one run.

    tuner = Tuner(prepared, settings, engine=engine, watcher=watcher, race=race, began=time.monotonic())
    tuner.run()
    tuner.finals, tuner.taken_back

Trials, one process each, go on until half of the budget is spent. The first of them, the finalists, are then measured
with more steps in interleaved rounds, each in a fresh process, until they can be told apart. Last the winner is
measured once more beside itself with one setting taken back at a time. An interrupted race goes on: what was
measured at this commit counts.
"""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from runner.analysis.pair import compute_ratio
from runner.engines.engine import Engine
from runner.results.cells import StepResult
from runner.schema import StepCell
from runner.schema.axes import PLAIN
from runner.store.history import CellRound
from runner.store.read import load_ceilings
from runner.store.read.selection import Selection
from runner.store.read.timed import load_steps
from runner.sweep.loop import Place, Sweep, Watcher
from runner.sweep.prepare import Expected, Prepared
from runner.sweep.race import SETTINGS, Race, way_of
from runner.sweep.request import Settings

#: The parts of the budget after which the first trials, all trials and the finals end.
FIRST, TRIALS, FINALS = 0.35, 0.55, 0.85
#: How many promising ways are tried before the factors are fitted anew, and how often that may bring nothing.
AT_ONCE, IN_VAIN = 4, 2
#: The most finalists, how close to the best a way must have come to be one, and the most rounds of them.
FINALISTS, CLOSE, ROUNDS = 4, 0.93, 5
#: The limits of their cells: those of a usual one, but for the time (s).
LIMITS: Mapping[str, Any] = {"warmup_steps": 5, "min_steps": 10, "max_steps": 200, "max_seconds": 4.0}
#: The steps of its loop, at least (`runner.measure.timing`).
MIN_STEPS = 5
#: The batch that is measured where the winner's is taken back: that of the presets.
PLAIN_BATCH = 4


class Tuner:
    """A race on this machine, whose budget runs since `began` (time.monotonic). `finals` and `taken_back` are cells
    that were asked for, by the time `run` returns."""

    def __init__(
        self, prepared: Prepared, settings: Settings, *, engine: Engine, watcher: Watcher, race: Race, began: float
    ) -> None:
        self.prepared, self.settings, self.engine, self.watcher, self.race = prepared, settings, engine, watcher, race
        self.run_id: UUID | None = None
        self.began = began
        self.begun: set[CellRound] = set()
        self.results: Mapping[str, StepResult] = {}
        self.finals: list[Expected] = []
        self.taken_back: list[Expected] = []

    def run(self) -> bool:
        """Races. Returns whether some way worked; results stay in the file whatever happens."""
        while anchor := self.race.find_anchor():
            if not self._measure([anchor], until=1.0):
                break
        if not self.race.ranked():
            return False
        changes = self.race.list_changes()
        self.watcher.waiting(f"{len(self.race.items):,} ways; first {len(changes)} changes of the first that worked.")
        self._measure(changes, until=FIRST)
        in_vain = 0
        while in_vain < IN_VAIN and self._spent() < TRIALS:
            before = self.race.ranked()[0]
            promising = self.race.list_promising(AT_ONCE)
            if not promising or not self._measure(promising, until=TRIALS):
                break
            in_vain = 0 if self.race.ranked()[0] != before else in_vain + 1
        self._run_finals()
        self._take_back()
        return True

    def _run_finals(self) -> None:
        """Measures the first ways in rounds until one is left or each of the others can be told apart from it."""
        ranked, known = self.race.ranked(), self.race.known
        best = self.race.score(known[ranked[0]]) or 0
        close = [way for way in ranked if (self.race.score(known[way]) or 0) > CLOSE * best]
        trial_s = self._spent() * self.race.budget_s / len(known)
        rounds = (FINALS - self._spent()) * self.race.budget_s / trial_s / 2
        # Two at least, so that they say how much processes differ; no more than there is time for two rounds of.
        chosen = ranked[: max(min(len(close), FINALISTS, int(rounds)), 2)]
        self.finals = [finalist(self.race.items[way]) for way in chosen]
        self.watcher.waiting(f"Finals: {len(self.finals)} ways, with more steps.")
        left = list(self.finals)
        for number in range(ROUNDS):
            order = random.Random(f"{self.prepared.machine['host']} {number}").sample(left, len(left))
            items = [replace(one, round=number) for one in order]
            if not self._measure(items, until=FINALS):
                return
            left = self._list_undecided(left) if number else left
            if number and len(left) < 2:
                return

    def _list_undecided(self, items: Sequence[Expected]) -> list[Expected]:
        """Returns the best way and those that cannot be told apart from it."""
        timed = {key: one for item in items if (one := self.results.get(key := item.cell.key))}
        scores = {key: score for key, one in timed.items() if (score := self.race.score(one))}
        best = timed[max(scores, key=lambda key: scores[key])] if scores else None
        return [
            item
            for item in items
            if best and (one := timed.get(item.cell.key)) and (one is best or not _is_told_apart(best, one))
        ]

    def _take_back(self) -> None:
        """Measures the winner with one setting at a time as in a plain step, and itself once more."""
        scores = {way_of(_cell(one)): score for one in self.finals if (score := self._score(one))}
        if not scores:
            return
        winner = max(scores, key=lambda way: scores[way])
        item = next(one for one in self.finals if way_of(_cell(one)) == winner)
        plain = {**PLAIN, "batch": PLAIN_BATCH}
        for name, value in zip(SETTINGS, winner, strict=True):
            if value != plain.get(name, value) and not (name == "attention" and value == "own"):
                changed: dict[str, Any] = {name: plain[name]}
                changed |= {"weights_dtype": "fp32"} if name == "precision" else {}
                way = way_of(replace(_cell(item), **changed))
                if way in self.race.items and not self.race.is_too_large(way):
                    self.taken_back.append(finalist(self.race.items[way]))
        self.watcher.waiting(f"What each setting of the winner brings: {len(self.taken_back)} taken back.")
        self._measure([replace(item, round=ROUNDS), *self.taken_back], until=1.0)
        close = [one for one in self.taken_back if (self._score(one) or 0) > CLOSE * scores[winner]]
        for number in range(1, ROUNDS if close else 0):  # which may be as good as it
            again = [(item, ROUNDS + number), *((one, number) for one in close)]
            items = [replace(one, round=place) for one, place in again]
            if not self._measure(items, until=1.0):
                return

    def _score(self, item: Expected) -> float | None:
        one = self.results.get(item.cell.key)
        return self.race.score(one) if one else None

    def _least_seconds(self, item: Expected) -> float:
        """Returns how long a cell takes at least: by what the race has learned, and by the measured rate of products
        (s)."""
        cell = _cell(item)
        rate, steps = self.race.rates.get(cell.precision), cell.warmup_steps + cell.min_steps + MIN_STEPS
        products_s = steps * item.predicted.step_flops / rate if rate else 0.0
        return max(products_s, self.prepared.forecast.left(cell, item.predicted.seconds) if self.run_id else 0.0)

    def _spent(self) -> float:
        return (time.monotonic() - self.began) / self.race.budget_s

    def _measure(self, items: Sequence[Expected], *, until: float) -> bool:
        """Measures cells in this order as far as this part of the budget reaches, but for those that take longer than
        what is left of it all, and takes note of all results. Returns whether there was time for one of them."""
        spent_s = self._spent() * self.race.budget_s
        left_s = until * self.race.budget_s - spent_s
        items = [one for one in items if self._least_seconds(one) < self.race.budget_s - spent_s]
        if left_s <= 0 or not items:
            return False
        items = [one for one in items if one.id not in self.begun]
        self.begun |= {one.id for one in items}
        settings = replace(self.settings, budget_s=left_s, ceilings=self.settings.ceilings and self.run_id is None)
        prepared = replace(self.prepared, cells=tuple(items), joined=self.run_id)
        sweep = Sweep(prepared, settings, places=[Place(self.engine, prepared.machine)], watcher=self.watcher)
        sweep.run()
        if self.run_id is None:
            self.run_id = sweep.run_id
            ceilings = load_ceilings(self.settings.db, Selection(run=self.run_id))
            self.race.rates = {one.precision: one.flops_per_s for one in ceilings if one.precision and one.flops_per_s}
        found = load_steps(self.settings.db, Selection(settled=False, mode="train"))
        known = [one for one in found if one.run_id == self.run_id or (one.cell_key, 0) in self.prepared.done]
        self.results = {one.cell_key: one for one in sorted(known, key=lambda one: one.run_id == self.run_id)}
        # What an interrupted race measured later counts when this one comes to it, so that both decide alike.
        asked = {key for key, _ in self.begun}
        self.race.take(one for key, one in self.results.items() if key in asked)
        return True


def finalist(item: Expected) -> Expected:
    """Returns the same way with the limits of the finals."""
    return replace(item, cell=replace(_cell(item), **LIMITS))


def _cell(item: Expected) -> StepCell:
    cell = item.cell
    assert isinstance(cell, StepCell)
    return cell


def _is_told_apart(best: StepResult, one: StepResult) -> bool:
    found = compute_ratio(best, one, clock="loop") or compute_ratio(best, one)
    return found is not None and found.outcome in ("faster", "slower")
