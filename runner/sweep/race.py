"""Races the ways to train one model for the fastest training step: what to try next, and what needs no trial.

    race = Race(prepared, device="cuda", room_bytes=139 * 2**30, budget_s=600)
    race.take(results)                       # of cells measured so far, in this process or before
    race.list_promising(4)                   # the cells to try next

A way is a batch with a precision, a dtype of the weights, a backend, an attention, an optimizer and checkpointing.
Short trials come first: of a likely way (the anchor), then of that with one setting changed. What each setting brings
is then fitted as a factor of the rate, by least squares over all trials, and the ways that these factors promise most
are tried next. The best of all go on with more steps, in rounds (`runner.sweep.tune`). So thousands of ways take some
tens of trials. Limits: a way that is good only in a combination of settings that promise nothing one by one is not
found.

A way needs no trial where one is known to bring nothing (`Race.objection`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from runner.analysis.costs.steps import Device
from runner.experiments.experiment import Grid
from runner.formats import format_bytes, format_duration
from runner.results.cells import StepResult
from runner.schema import StepCell
from runner.schema.axes import PLAIN
from runner.sweep.frontier import RESERVED_SHARE
from runner.sweep.prepare import Expected

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
        found: list[Expected] = []
        for way in hopeful:
            if len(found) < count and not self.objection(way):
                found.append(self.items[way])
        return found

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
        if rate and flops and ranked:
            most = self._tokens(item) / flops * rate
            if most < (self.known[ranked[0]].rate or 0):
                return f"{at['precision']} products alone would take longer than the best way"
        return ""

    def is_too_large(self, way: Way) -> bool:
        return bool(self.room_bytes and self._needs(self.items[way]) > self.room_bytes)

    def _needs(self, item: Expected) -> int:
        """Returns the bytes that a way is predicted to need; 0 for an own model, of which that is not known."""
        return round((item.predicted.peak_bytes or 0) * (RESERVED_SHARE if self.device == "cuda" else 1))

    def _tokens(self, item: Expected) -> int:
        cell = item.cell
        assert isinstance(cell, StepCell)
        return cell.batch * max(cell.context, 1)

    def list_left_out(self, measured: Iterable[StepResult]) -> dict[Way, str]:
        """Returns the ways that are not among the measured cells, whatever their limits, with the reason."""
        tried = {way_of(one.cell) for one in measured}
        return {
            way: self.objection(way) or "not promising, by what its settings brought elsewhere"
            for way in self.items
            if way not in tried
        }
