"""Two versions of a user's model, measured interleaved in one sweep and compared: two commits, two builders, or two
values of an option.

    python -m runner ab main HEAD --model train.py:build --contexts 128
    python -m runner ab --model old.py:build --against new.py:build
    python -m runner ab --attention naive --against sdpa --sizes small

Each commit is checked out into a temporary worktree, so that the user's tree is not touched. Every cell is measured
from both versions in fresh processes, shuffled within each round, and rounds are added to the same run until each cell
is decided at the threshold. So throughput and latency can decide even where the host sets them.
Limits: what the model reads but Python does not import, such as a data file, does not make another version.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from runner.answers import ask
from runner.answers.answer import Answer
from runner.answers.compare import NEEDS
from runner.cli.compare import CLOCK_WORDS, CompareOptions, print_comparison
from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal
from runner.engines.engine import open_engine
from runner.errors import INTERRUPTED_CODE, BadModel, UsageError
from runner.places import temporary_folder
from runner.plan.planning import QUESTIONS, Request
from runner.results.cells import StepResult
from runner.results.rows import OF_CELL, Rows, RunSteps
from runner.schema import table_of
from runner.schema.axes import MODEL
from runner.schema.own import OwnSpec, parse_spec
from runner.schema.sizes import title
from runner.store.database import check_writable
from runner.store.read import read
from runner.store.read.selection import Selection
from runner.sweep.loop import Place, Sweep
from runner.sweep.prepare import prepare
from runner.sweep.request import FLAGS, Settings
from runner.sweep.start import lock_machine

#: The rounds of the first sweep, those that are added at a time, and the most of a cell.
FIRST_ROUNDS, MORE_ROUNDS, MAX_ROUNDS = 3, 2, 20


def ab(
    console: Terminal, progress: Terminal, given: CompareOptions, against: str, request: Request, settings: Settings
) -> int:
    """Measures both versions and prints how B compares with A: two refs of a repository and one model, or the model or
    the value of an option that was given and the one that it is compared `against`. Returns 0 without a regression, 1
    with one, and raises UsageError where a version cannot be built or measured; what was measured is kept."""
    if "frontier" in request.experiments:
        raise UsageError("--experiment got 'frontier'.", expected=f"some of {', '.join(QUESTIONS)}")
    if request.experiments == tuple(QUESTIONS):  # none was named
        request = replace(request, experiments=("benchmark",))
    specs = request.axes.get("model", ())
    command = shlex.join(["python", "-m", "runner", *sys.argv[1:]])
    settings = replace(settings, db=settings.db.absolute(), fresh=True, ceilings=False, command=command)
    if against and (given.a or given.b):
        raise UsageError("--against was given with two refs.", expected="two refs, or --against")
    if against and (flag := _find_option(request, against)):
        check_writable(settings.db)
        sides = Sides(flag=flag, by=FLAGS[flag].name, a=str(request.axes[flag][0]), b=against)
        return _compare(console, progress, given, request, settings, sides)
    if against and not specs:
        raise UsageError(
            f"--against got {against!r}.",
            expected="another value of an option that was given with one, or a builder beside --model",
            do="Such as --precisions fp32 --against bf16.",
        )
    if len(specs) != 1:
        raise UsageError(f"--model was given {len(specs)} times.", expected="one model, such as --model train.py:build")
    check_writable(settings.db)
    if against:
        return _compare(console, progress, given, request, settings, Sides(a=specs[0], b=parse_spec(against).text))
    if not (given.a and given.b):
        raise UsageError("ab was given no two refs.", expected="two refs such as main HEAD, or --model and --against")
    with _check_out(given.a, given.b, parse_spec(specs[0])) as (folder, models, note):
        progress.say(note)
        settings = replace(settings, command=f"{command}  # {note}", label=settings.label or f"ab {given.a} {given.b}")
        with chdir(folder):
            return _compare(console, progress, given, request, settings, Sides(a=models[0], b=models[1]))


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The two values of one option that are compared, with its flag and its field of a cell."""

    flag: str = "model"
    by: str = "model"
    a: str
    b: str


def _find_option(request: Request, value: str) -> str | None:
    """Returns the flag of which this is another value, where one was given with a single value."""
    known = [name for name, column in FLAGS.items() if column.name in OF_CELL and value in column.choices]
    found = [name for name in known if len(request.axes.get(name, ())) == 1]
    if len(found) > 1:
        flags = " and ".join(f"--{name}" for name in found)
        raise UsageError(f"--against {value} may be of {flags}.", expected="one of them with a single value")
    return next(iter(found), None)


def _compare(
    console: Terminal, progress: Terminal, given: CompareOptions, request: Request, settings: Settings, sides: Sides
) -> int:
    if sides.a == sides.b:
        raise UsageError(f"A and B are both {sides.a}.", expected="two versions")
    request = replace(request, axes={**request.axes, sides.flag: (sides.a, sides.b)}, rounds=FIRST_ROUNDS)
    ends_at = time.monotonic() + settings.budget_s if settings.budget_s else None
    rounds, answer, rows, threshold = 0, None, Rows(), given.threshold or 0.0
    failed: list[str] = []
    opened = open_engine("local", on=(), compiles=request.may_compile)
    lines = SweepLines(progress, db=settings.db, fresh=True)
    with opened as (engine,), lock_machine(progress.say), closing(lines) as watcher:
        try:
            while answer is None or (rounds < MAX_ROUNDS and _list_undecided(answer, threshold)):
                left_s = ends_at - time.monotonic() if ends_at else None
                if left_s is not None and left_s <= 0:
                    break
                settings = replace(settings, budget_s=left_s)
                prepared = prepare(request, settings, engine, report=progress.say)
                if prepared.left_out:
                    raise BadModel("; ".join(f"{name}: {why}" for name, why in prepared.left_out.items()))
                if sides.by == "model" and len(prepared.own) < 2:
                    progress.say(f"{sides.a} and {sides.b} have the same source: there is nothing to measure.")
                    return 0
                sweep = Sweep(prepared, settings, places=[Place(engine, prepared.machine)], watcher=watcher)
                sweep.run()
                rounds += int(request.rounds)
                request, settings = replace(request, rounds=MORE_ROUNDS), replace(settings, joins=sweep.run_id)
                rows = read(settings.db, Selection(run=sweep.run_id), NEEDS)
                rows = replace(rows, by_run=tuple(one for one in rows.by_run if one.run.run_id == sweep.run_id))
                asked = {"by": sides.by, "a": sides.a, "b": sides.b, "clock": CLOCK_WORDS[given.clock]}
                answer = ask("compare", rows, asked)
                if failed := _list_failed(rows.by_run, sides):
                    break
        except KeyboardInterrupt:
            progress.say("Interrupted. Finished cells are kept.")
            return INTERRUPTED_CODE
    if answer is None or not answer.views:
        raise UsageError("No cell was measured from both versions.", expected="a longer --budget", do=_join(failed))
    code = print_comparison(console, answer, rows, given)
    if failed:
        raise UsageError(f"Not measured in both versions: {_join(failed)}.", expected="cells that both have in time")
    if undecided := _list_undecided(answer, threshold):
        when = "when the budget ended" if ends_at and time.monotonic() >= ends_at else f"after {rounds} rounds"
        progress.say(f"Undecided {when}: {_join(undecided)}.")
    return code


def _list_undecided(answer: Answer, threshold: float) -> list[str]:
    """Returns the cells whose interval holds both 1 and a difference beyond the threshold."""
    names = []
    for view in answer.views:
        if view.name == "compare-memory":
            continue
        for row in view.rows:
            low, high = view.get(row, "low"), view.get(row, "high")
            is_within = low is not None and low > 1 / (1 + threshold) and high < 1 + threshold
            if view.get(row, "outcome") == "undecided" and not is_within:
                names.append(str(row.values[0]))
    return names


def _list_failed(runs: Iterable[RunSteps], sides: Sides) -> list[str]:
    """Returns the cells that one version lacks or that failed in it, by name."""
    found: Mapping[str, dict[tuple[object, ...], StepResult]] = {sides.a: {}, sides.b: {}}
    left_out = MODEL if sides.by == "model" else (sides.by,)
    for one in chain.from_iterable(run.steps for run in runs):
        key = tuple(getattr(one.cell, name) for name in table_of(one.cell).question if name not in left_out)
        found[getattr(one.cell, sides.by) or ""][key] = one
    failed = []
    for side, other in ((sides.a, sides.b), (sides.b, sides.a)):
        failed += [f"{title(one.cell)} from {side}: {one.status}" for one in found[side].values() if one.status != "ok"]
        lacking = found[other].keys() - found[side].keys()
        failed += [f"{title(found[other][key].cell)} from {other} only" for key in lacking]
    return failed


def _join(names: list[str]) -> str:
    return "; ".join(names[:8]) + (f"; and {len(names) - 8} more" if len(names) > 8 else "")


@contextmanager
def _check_out(a: str, b: str, spec: OwnSpec) -> Iterator[tuple[Path, tuple[str, str], str]]:
    """Checks two commits out into temporary worktrees. Yields their folder, the model in each, relative to it, and what
    was checked out in words. Removes the worktrees at the end, whatever happens."""
    if spec.kind != "file":
        raise UsageError(f"--model got {spec.text!r}.", expected="a Python file of the repository, such as train.py")
    top = Path(_git("rev-parse", "--show-toplevel"))
    path = Path(spec.where).resolve()
    if not path.is_relative_to(top.resolve()):
        raise UsageError(f"{spec.where} is not in the repository {top}.", expected="a Python file of the repository")
    inside, rest = path.relative_to(top.resolve()).as_posix(), spec.text.partition(spec.where)[2]
    commits = {ref: _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}") for ref in (a, b)}
    if commits[a] == commits[b]:
        raise UsageError(f"{a} and {b} are both commit {commits[a][:12]}.", expected="two commits")
    note = ", ".join(f"{ref} is {commit[:12]}" for ref, commit in commits.items())
    if _git("status", "--porcelain", "--untracked-files=no"):
        note += "; uncommitted changes are in neither"
    with temporary_folder("ab") as folder:
        names = {ref: f"{re.sub(r'[^A-Za-z0-9_.-]', '-', ref)}@{commit[:7]}" for ref, commit in commits.items()}
        try:
            for ref, commit in commits.items():
                _git("worktree", "add", "--quiet", "--detach", str(folder / names[ref]), commit)
                if not (folder / names[ref] / inside).is_file():
                    raise UsageError(f"{ref} has no file {inside}.", expected="a model that both versions have")
            yield folder, (f"{names[a]}/{inside}{rest}", f"{names[b]}/{inside}{rest}"), note
        finally:
            for name in names.values():
                if (folder / name).exists():
                    _git("-C", str(top), "worktree", "remove", "--force", str(folder / name))


def _git(*words: str) -> str:
    """Returns what git prints, without hooks. Raises UsageError with what git says."""
    command = ["git", "-c", "core.hooksPath=/dev/null", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = words[-1].removesuffix("^{commit}")
        raise UsageError(
            f"git {words[0]} failed for {what!r}: {done.stderr.strip() or 'there is no such commit'}.",
            expected="two commits of the repository of the working folder",
        )
    return done.stdout.strip()
