"""The fastest way to train a model on this machine: the race of `runner.sweep.race`, and its answer.

python -m runner tune --sizes small --context 512 --budget 10m
python -m runner tune nano.py:build --objective tokens/J --json
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import RenderableType
from rich.progress import Progress

from runner.allowance import gpu_handle
from runner.answers import ask
from runner.answers.answer import Answer
from runner.answers.tune import CODE, EQUAL, RANKS, name_way
from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal, new_grid
from runner.engines.engine import open_engine
from runner.errors import UsageError
from runner.formats import at_tokens, format_bytes, format_duration, format_number, format_share
from runner.places import write_db
from runner.plan.planning import Request
from runner.render.text import print_answer
from runner.schema import Row, StepRow, TimingRow
from runner.schema.own import OwnModel, parse_spec
from runner.schema.sizes import parse_shape, size_named, title
from runner.store.database import check_writable
from runner.store.read import read
from runner.store.read.selection import Selection
from runner.sweep.frontier import DeviceMemory, default_limit, parse_size
from runner.sweep.loop import SweepEnd
from runner.sweep.prepare import Prepared, describe_models, prepare
from runner.sweep.race import SETTINGS, Race, Tuner, Way, list_ways
from runner.sweep.request import Settings
from runner.sweep.start import lock_machine

#: The ways that the ranking shows while they are raced.
SHOWN = 6


def tune(
    console: Terminal,
    progress: Terminal,
    settings: Settings,
    model: Mapping[str, Any],
    *,
    context: int,
    objective: str,
    price: float,
    memory: str,
    keep_math: bool,
    as_json: bool,
) -> None:
    """Races the ways to train a model, named as an axis of a sweep names it, at one length. Prints the ranking and what
    the winner needs. Raises UsageError where nothing can be raced or no way works; what was measured is kept."""
    if objective not in RANKS:
        raise UsageError(f"--objective got {objective!r}.", expected=", ".join(RANKS))
    limit = parse_size("memory", memory) if memory else None
    for name in model.get("sizes", ()):
        size_named(name)
    for shape in model.get("shape", ()):
        parse_shape(shape)
    check_writable(settings.db)
    began = time.monotonic()
    with open_engine("local", on=(), compiles=True) as (engine,), lock_machine(progress.say):
        machine = engine.describe(settings.device)
        device = machine["device"]
        if objective == "tokens/J" and gpu_handle(settings.torch_device(machine)) is None:
            raise UsageError(f"{machine['device_name']} counts no energy.", expected="--objective tokens/s")
        own: Mapping[str, OwnModel] = {}
        if spec := model.get("model"):
            axes = {"model": (parse_spec(spec).text,), "batch": (1, 4, 16, 64), "contexts": (context,)}
            own, _ = describe_models(Request(axes=axes), settings, engine, machine, report=progress.say)
            model = {"model": tuple(own.values())}
        has_context = all("context" in one.reads for one in own.values())
        ways = list_ways(model, context if has_context else 0, device, keep_math=keep_math)
        prepared = prepare(Request(cells=tuple(ways)), settings, engine, own=own)
        card = machine["device_memory_bytes"] if device == "cuda" else None
        room = DeviceMemory(device=device, gpu=machine["device_name"] or "", card_bytes=card)
        race = Race(
            prepared.cells,
            device=device,
            room_bytes=room.bytes_within(min(limit or default_limit(machine), default_limit(machine))),
            budget_s=settings.budget_s or 600.0,
            by_energy=objective == "tokens/J",
        )
        reasons = Counter(map(race.objection, race.items))
        if not reasons[""]:
            least = min(item.predicted.seconds for item in prepared.cells)
            do = f"A trial takes {format_duration(least)} or longer." if least > race.budget_s / 5 else ""
            listed = "; ".join(f"{count:,} ways: {why}" for why, count in reasons.most_common())
            raise UsageError(f"Nothing can be tried. {listed}.", expected="more memory, or a longer --budget", do=do)
        with closing(RaceLines(progress, db=settings.db, objective=objective)) as watcher:
            cell = prepared.cells[0].cell
            within = f" · {format_bytes(race.room_bytes)} of room" if race.room_bytes else ""
            raced = f"{title(cell).split(' · ')[0]}{at_tokens(getattr(cell, 'context', 0))}"
            where = f"{machine['device_name']} · torch {machine['torch']}{within}"
            watcher.waiting(f"{where} · {raced} · {format_duration(race.budget_s)}")
            tuner = Tuner(prepared, settings, engine=engine, watcher=watcher, race=race, began=began)
            is_done = tuner.run()
    if not is_done:
        failed = next(iter(race.known.values()), None)
        if failed is None:
            took = f"The budget of {format_duration(race.budget_s)} ended before a way was measured."
            raise UsageError(took, expected="a longer one", do="Name one, such as --budget 2m.")
        why = f"{failed.status}: {' '.join((failed.message or '').split())[:300]}"
        raise UsageError(f"No way worked. The first ended {why}.", expected="a model that trains here")
    rows = read(settings.db, Selection(run=tuner.run_id, settled=False), ("every_step",))
    mine = tuple(one for one in rows.every_step if one.cell.context in (context, 0))
    chosen = {"by": objective, "price": f"{price:g}", **({"memory": f"{limit / 2**30:g}"} if limit else {})}
    found = ask("tune", replace(rows, every_step=mine), chosen)
    left_out = race.list_left_out(tuner.results.values())
    if as_json:
        console.dump(_make_json(found, left_out))
        return
    print_answer(console, found, command=False)
    reasons = Counter(left_out.values())
    console.say(
        f"{len(race.items) - len(left_out):,} of {len(race.items):,} ways were tried; the others were left out:"
    )
    for why, count in reasons.most_common():
        console.say(f"  {count:,}: {why}")
    console.say("The winner in PyTorch:")
    for line in (line for view in found.views if CODE.name in view.names for line in view.column(CODE.name) if line):
        console.say(f"  {line}")
    where = write_db(settings.db)
    console.say(f"Again: stepscope show tune{where}. The rows: stepscope show{where}, or stepscope app{where}.")


def _make_json(answer: Answer, left_out: Mapping[Way, str]) -> dict[str, Any]:
    view = answer.views[0]
    ranking = [
        {
            "settings": {name: getattr(answer.cells[row.cells[0]], name) for name in SETTINGS},
            "tokens_per_s": view.get(row, "tokens_per_s"),
            "low": view.get(row, "tokens_per_s_low"),
            "high": view.get(row, "tokens_per_s_high"),
            "mfu": view.get(row, "mfu"),
            "peak_bytes": view.get(row, "peak_gib") and round(view.get(row, "peak_gib") * 2**30),
            "joules_per_1000_tokens": view.get(row, "joules"),
            "cost_per_billion_tokens": view.get(row, "cost"),
            "equal_to_first": view.get(row, "beside") in ("first", EQUAL),
            "cell_id": row.cells[0],
        }
        for row in view.rows
    ]
    others = [{"settings": dict(zip(SETTINGS, way, strict=True)), "why": why} for way, why in left_out.items()]
    return {"ranking": ranking, "left_out": others}


class Standings(Progress):
    """A bar below the ranking so far."""

    ranking: RenderableType = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.ranking
        yield from super().get_renderables()


class RaceLines(SweepLines):
    """One line a trial. On a terminal they stand above the ranking so far and a bar."""

    kind = Standings

    def __init__(self, console: Terminal, *, db: Path, objective: str) -> None:
        super().__init__(console, db=db)
        self.objective = objective
        self.trials: dict[str, list[StepRow]] = {}

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self._expect(total)

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        assert isinstance(row, StepRow)
        assert isinstance(self.bar, Standings)
        self.number += 1
        way = f"batch {row.batch} · {name_way(row)}"
        if row.status != "ok":
            said = f"{row.status}  {' '.join((row.message or '').split())[:100]}"
        else:
            trials = self.trials.setdefault(way, [])
            trials.append(row)
            said = " · ".join(one for one in _describe_trials([row]) if one)
            if self.rank()[0] == way:
                over = _describe_trials(trials)[-1 if self.objective == "tokens/J" else 0]  # what ranks it
                said += f"; {over} over its {len(trials)} trials" if len(trials) > 1 else ""
                said += "  ← best so far"
        self.console.say(f"[{self.number}] {way}  {said}")
        self.bar.update(self.task, advance=1)
        ranked = self.rank()
        grid = new_grid("", f"the best of {len(ranked)} so far", "", "", "", "", "processes")
        for place, way in enumerate(ranked[:SHOWN], 1):
            grid.add_row(str(place), way, *_describe_trials(self.trials[way]), str(len(self.trials[way])))
        self.bar.ranking = grid

    def rank(self) -> list[str]:
        """Returns the ways that worked, the best first."""

        def score(way: str) -> float:
            rows = self.trials[way]
            return -_joules(rows) if self.objective == "tokens/J" else _rate(rows)

        return sorted(self.trials, key=score, reverse=True)

    def ended(self, how: SweepEnd) -> None:
        """Prints nothing: a race is many short sweeps."""


def _rate(rows: Sequence[StepRow]) -> float:
    return median(row.tokens_per_s or row.samples_per_s or 0.0 for row in rows)


def _joules(rows: Sequence[StepRow]) -> float:
    """Returns the energy of 1,000 tokens (J); infinity where it is not known."""
    return median(1000 * (row.step_joules or inf) / (row.batch * max(row.context, 1)) for row in rows)


def _describe_trials(rows: Sequence[StepRow]) -> list[str]:
    """Returns rate, MFU, peak and energy of a way, in the median over its processes; empty where not known."""
    mfu, peak, joules = rows[-1].mfu, rows[-1].peak_allocated_bytes, _joules(rows)
    return [
        f"{format_number(_rate(rows))} tokens/s",
        f"{format_share(mfu)} MFU" if mfu else "",
        format_bytes(peak) if peak else "",
        f"{format_number(joules)} J/1,000 tokens" if joules < inf else "",
    ]
