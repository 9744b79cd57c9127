"""Races the ways to train one model for the fastest training step on this machine. Every trial is a row of one run.

    tuner = Tuner(prepared, settings, engine=engine, watcher=watcher, race=race, began=time.monotonic())
    tuner.run()
    tuner.finals, tuner.taken_back

A way is a batch with a precision, a dtype of the weights, a backend, an attention, an optimizer and checkpointing.
Short trials come first, one process each, until half of the budget is spent: of a likely way (the anchor), then of that
with one setting changed. What each setting brings is then fitted as a factor of the rate, by least squares over all
trials, and the ways that these factors promise most are tried next. So thousands of ways take some tens of trials. The
best of them, the finalists, are measured with more steps in interleaved rounds, each in a fresh process, until they can
be told apart. Last the winner is measured once more beside itself with one setting taken back at a time. An interrupted
race goes on: what was measured at this commit counts. Limits: a way that is good only in a combination of settings that
promise nothing one by one is not found.

A way needs no trial where one is known to bring nothing (`Race.objection`).
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any
from uuid import UUID

import numpy as np

from runner.analysis.costs.steps import Device
from runner.analysis.pair import compute_ratio
from runner.engines.engine import Engine
from runner.experiments.experiment import Grid
from runner.formats import format_bytes, format_duration
from runner.results.cells import StepResult
from runner.schema import StepCell
from runner.schema.axes import PLAIN
from runner.store.history import CellRound
from runner.store.read import load_ceilings
from runner.store.read.selection import Selection
from runner.store.read.timed import load_steps
from runner.sweep.frontier import RESERVED_SHARE
from runner.sweep.loop import Place, Sweep, Watcher
from runner.sweep.prepare import Expected, Prepared
from runner.sweep.request import Settings

#: What is tried everywhere, and on each kind of device, by the flags of a sweep; the plain value first.
_EVERYWHERE = {"weights": ("fp32", "bf16"), "optimizers": ("foreach", "fused"), "checkpoint": (0, 1)}
CHOICES: Mapping[Device, Mapping[str, tuple[Any, ...]]] = {
    "cuda": {
        **_EVERYWHERE,
        "precisions": ("fp32", "tf32", "bf16", "fp16"),
        "backends": ("eager", "compiled-block", "compiled", "cuda-graphs"),
        "attention": ("naive", "sdpa", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient"),
    },
    "mps": {
        **_EVERYWHERE,
        "precisions": ("fp32", "bf16", "fp16"),
        "backends": ("eager",),
        "attention": ("naive", "sdpa"),
    },
    "cpu": {
        **_EVERYWHERE,
        "precisions": ("fp32", "bf16"),
        "backends": ("eager", "compiled-block", "compiled"),
        "attention": ("naive", "sdpa"),
    },
}
#: The way that is tried first: by guess the fastest, so that few settings have to change.
ANCHOR: Mapping[Device, Mapping[str, Any]] = {
    "cuda": {"precision": "bf16", "backend": "compiled-block", "attention": "sdpa", "optimizer": "fused"},
    "mps": {"precision": "bf16", "attention": "sdpa"},
    "cpu": {"attention": "sdpa", "optimizer": "fused"},
}
#: The tokens of the anchor's step, which are to fill the device, and the most of any.
FILLING: Mapping[Device, int] = {"cuda": 2**14, "mps": 2**12, "cpu": 2**9}
MOST: Mapping[Device, int] = {"cuda": 2**18, "mps": 2**15, "cpu": 2**12}
#: The settings of a way, the first ones first in the order of trying them: those that bring most on a GPU.
SETTINGS = ("batch", "attention", "weights_dtype", "backend", "optimizer", "precision", "checkpoint_blocks")
#: Few warm-up steps and few measured ones.
TRIAL: Mapping[str, Any] = {"warmup": (3,), "steps": 3, "max_steps": 20, "max_seconds": 1.0}
#: After so many different ways that failed the model is taken to be broken.
MOST_BROKEN = 4
#: The largest part of the budget that one trial may take; compiling is most of a long one.
MOST_OF_BUDGET = 0.25
#: How many times longer than the anchor's a trial may take to be among the first.
LONG = 3.0
#: A setting seen in n trials brings n / (n + this) of what it brought on average.
RIDGE = 0.3
#: A guess that promises less than this share of the best is no guess.
PROMISING = 0.97

#: A way, by the values of `SETTINGS`.
Way = tuple[Any, ...]
way_of: Callable[[StepCell], Way] = attrgetter(*SETTINGS)


def list_ways(model: Mapping[str, Any], context: int, device: Device, *, keep_math: bool = False) -> list[StepCell]:
    """Returns the trial of every way: of a model by the axis of a sweep that names it (`{"sizes": ("small",)}`), with
    so many tokens a sequence. With `keep_math`, of those that compute as the plain step does."""
    axes: dict[str, Any] = {**CHOICES[device], **({"precisions": ("fp32",)} if keep_math else {})}
    batches = tuple(2**power for power in range(20) if 2**power * max(context, 1) <= MOST[device]) or (1,)
    grid = Grid.of(StepCell, **model, **axes, **TRIAL, contexts=(context,), modes=("train",), batch=batches)
    cells = (cell for cell in grid.cells() if isinstance(cell, StepCell))
    return list({one.key: one for one in cells if one.weights_dtype == "fp32" or one.precision == "bf16"}.values())


class Race:
    """The ways of one model on one device, and what is known of them. `room_bytes` is what tensors may take, `rates`
    the measured FLOP/s of matrix products by precision. `by_energy` ranks by tokens per joule instead of per
    second."""

    def __init__(
        self,
        cells: Sequence[Expected],
        *,
        device: Device,
        room_bytes: int | None,
        budget_s: float,
        by_energy: bool = False,
    ) -> None:
        self.device, self.room_bytes, self.budget_s, self.by_energy = device, room_bytes, budget_s, by_energy
        self.rates: Mapping[str, float] = {}
        self.items = {way_of(one.cell): one for one in cells if isinstance(one.cell, StepCell)}
        self.known: dict[Way, StepResult] = {}
        self.anchor: Way | None = None

    def take(self, results: Iterable[StepResult]) -> None:
        """Takes note of measured cells; those of other models or limits do not matter."""
        keys = {item.cell.key: way for way, item in self.items.items()}
        self.known |= {keys[one.cell_key]: one for one in results if one.cell_key in keys}

    def score(self, one: StepResult) -> float | None:
        """Returns tokens per second or per joule; None for a way that failed or took more memory than there is."""
        over = self.device == "cuda" and self.room_bytes and (one.peak_reserved_bytes or 0) > self.room_bytes
        if one.status != "ok" or over:
            return None
        if self.by_energy:
            return one.tokens / one.step_joules if one.step_joules else None
        return one.rate

    def ranked(self) -> list[Way]:
        scores = {way: score for way, one in self.known.items() if (score := self.score(one))}
        return sorted(scores, key=lambda way: -scores[way])

    def find_anchor(self) -> Expected | None:
        """Returns the next guess of a way that works, as long as none did: the likely one, eager, then smaller batches;
        None once one works, and where none is left."""
        if self.ranked():
            self.anchor = self.anchor or self.ranked()[0]
            return None
        at = {**PLAIN, **ANCHOR[self.device]}
        broken = [way for way, one in self.known.items() if one.status != "oom"]
        open_ways = [way for way in self.items if way not in self.known and not self.objection(way)]

        def rank(way: Way) -> tuple[Any, ...]:
            named, tokens = dict(zip(SETTINGS, way, strict=True)), self._tokens(self.items[way])
            unlike = sum(named[name] != value for name, value in at.items() if name in named)
            failed = any(other[1:] == way[1:] for other in broken)
            compiled = bool(broken) and named["backend"] != "eager"
            # Of ways that are equally close to the guess: the largest batch that is not above the filling one.
            is_above = tokens > FILLING[self.device]
            return failed, is_above, compiled, unlike, tokens if is_above else -tokens

        self.anchor = min(open_ways, key=rank, default=None) if len(broken) < MOST_BROKEN else None
        return self.items[self.anchor] if self.anchor else None

    def list_changes(self) -> list[Expected]:
        """Returns the anchor with one setting changed, as far as that needs a trial: likely gains first, and trials
        that take much longer last."""
        assert self.anchor, "a race begins with a way that works"
        found = []
        for way, item in self.items.items():
            differing = [place for place, (a, b) in enumerate(zip(way, self.anchor, strict=True)) if a != b]
            paired = {SETTINGS[place] for place in differing} == {"precision", "weights_dtype"}
            if (len(differing) == 1 or paired) and way not in self.known and not self.objection(way):
                far = abs(math.log2(way[0] / self.anchor[0])) > 2
                late = item.predicted.seconds > LONG * self.items[self.anchor].predicted.seconds
                found.append((far, late, min(differing), item))
        return [item for *_, item in sorted(found, key=lambda one: one[:3])]

    def list_promising(self, count: int) -> list[Expected]:
        """Returns up to so many ways that are not tried yet and that the factors promise most, the best first; of
        those that promise the same, the one most like the best. None where they promise less than was found."""
        ranked = self.ranked()
        best = math.log(self.score(self.known[ranked[0]]) or 1)
        guess = self._fit()
        open_ways = {way: guess(way) for way in self.items if way not in self.known}
        hopeful = sorted(
            (way for way, rate in open_ways.items() if rate > best + math.log(PROMISING)),
            key=lambda way: (
                -round(open_ways[way], 2),
                sum(a != b for a, b in zip(way, ranked[0], strict=True)),
                self.items[way].predicted.seconds,
            ),
        )
        return list(islice((self.items[way] for way in hopeful if not self.objection(way)), count))

    def _fit(self) -> Callable[[Way], float]:
        """Returns a function that guesses the logarithm of a way's score: a mean and a term for each setting, by least
        squares with a ridge. A batch that was not tried has the term of the nearest, any other setting the
        anchor's."""
        scores = {way: math.log(score) for way, one in self.known.items() if (score := self.score(one))}
        mean = sum(scores.values()) / len(scores)
        tried = list(dict.fromkeys(setting for way in scores for setting in enumerate(way)))
        has = np.array([[way[place] == value for place, value in tried] for way in scores], float)
        over = has.T @ (np.array([*scores.values()]) - mean)
        brings: list[float] = np.linalg.solve(has.T @ has + RIDGE * np.eye(len(tried)), over).tolist()
        terms = dict(zip(tried, brings, strict=True))
        batches = [value for place, value in tried if place == 0]

        def find_term(place: int, value: Any) -> float:
            if place == 0:
                value = min(batches, key=lambda batch: abs(math.log(batch / value)))
            usual = terms.get((place, self.anchor[place]), 0.0) if self.anchor else 0.0
            return terms.get((place, value), usual)

        return lambda way: mean + sum(find_term(place, value) for place, value in enumerate(way))

    def objection(self, way: Way) -> str:
        """Returns why a way needs no trial; empty where it does."""
        item, at = self.items[way], dict(zip(SETTINGS, way, strict=True))
        if self.room_bytes and self._needs(item) > self.room_bytes:
            return f"predicted not to fit into {format_bytes(self.room_bytes)}"
        if any(a[0] <= way[0] and a[1:] == way[1:] and one.status == "oom" for a, one in self.known.items()):
            return "a smaller batch ran out of memory"
        if at["checkpoint_blocks"]:
            kept = tuple(0 if name == "checkpoint_blocks" else value for name, value in at.items())
            tried = self.known.get(kept)
            if not self.is_too_large(kept) and not (tried and tried.status == "oom"):
                return "computes activations again that fit"
        if item.predicted.seconds > MOST_OF_BUDGET * self.budget_s:
            return f"one trial takes longer than {format_duration(MOST_OF_BUDGET * self.budget_s)}"
        rate, ranked = self.rates.get(at["precision"]), [] if self.by_energy else self.ranked()
        flops = item.predicted.step_flops
        if rate and flops and ranked and self._tokens(item) / flops * rate < (self.known[ranked[0]].rate or 0):
            return f"{at['precision']} products alone would take longer than the best way"
        return ""

    def is_too_large(self, way: Way) -> bool:
        return bool(self.room_bytes and self._needs(self.items[way]) > self.room_bytes)

    def _needs(self, item: Expected) -> int:
        """Returns the bytes that a way is predicted to need; 0 for an own model, of which that is not known."""
        return round((item.predicted.peak_bytes or 0) * (RESERVED_SHARE if self.device == "cuda" else 1))

    def _tokens(self, item: Expected) -> int:
        cell = _cell(item)
        return cell.batch * max(cell.context, 1)

    def list_left_out(self, measured: Iterable[StepResult]) -> dict[Way, str]:
        """Returns the ways that are not among the measured cells, whatever their limits, with the reason."""
        tried = {way_of(one.cell) for one in measured}
        return {
            way: self.objection(way) or "not promising, by what its settings brought elsewhere"
            for way in self.items
            if way not in tried
        }


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
            if not self._measure([replace(one, round=number) for one in order], until=FINALS):
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
            if not self._measure([replace(one, round=place) for one, place in again], until=1.0):
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
