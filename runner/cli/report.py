"""The answers to all questions as one document, in the terminal or in a file.

python -m runner report --out report.md
python -m runner report --question precision --format latex
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.answers import QUESTIONS, ask
from runner.answers.answer import Answer
from runner.answers.fit import COUNTED, measure_errors, say_errors
from runner.cli.terminal import Terminal, as_started
from runner.errors import UsageError
from runner.formats import format_bytes, format_count
from runner.places import check_room, write_text
from runner.plan.commands import sweep_commands
from runner.plan.handout import OUTSIDE, CourseQuestion, ask_handout, cells_of_edition
from runner.render.document import BRIEF_FACTS, HTML, LATEX, MARKDOWN, Document, Form, order_questions, write_document
from runner.render.json import as_json, to_text
from runner.render.text import print_answer
from runner.results.findings import GRADE_WORDS, Grade
from runner.results.rows import RunSummary
from runner.schema import config_of
from runner.store.packing import MEASURE, describe_reference, is_reference
from runner.store.read import Load, load_once, read
from runner.store.read.runs import find_run, load_contents
from runner.store.read.selection import Selection, load_measured

EDITIONS = tuple(edition for edition in OUTSIDE if edition)
#: The formats, with the ending of each file.
FORMATS: dict[str, tuple[Form, str]] = {"markdown": (MARKDOWN, "md"), "html": (HTML, "html"), "latex": (LATEX, "tex")}
#: The answers of a brief report.
BRIEF = ("overview", "step", "precision", "compile", "memory", "attention")
#: The most runs that are listed with their commands.
_MAX_RUNS = 3


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    out: Path | None = None
    form: str = ""
    edition: str | None = None
    machine: str | None = None
    run: str | None = None
    question: str | None = None
    brief: bool = False


def write_report(options: ReportOptions, *, db: Path) -> str:
    """Writes the report, and returns what is to be printed: the report itself, or the file's name."""
    if options.form not in ("", *FORMATS, "json"):
        raise UsageError(f"There is no format {options.form!r}.", expected=", ".join((*FORMATS, "json")))
    form, ending = FORMATS.get(options.form or "markdown", (MARKDOWN, "json"))
    file = options.out / f"report.{ending}" if options.out and options.out.is_dir() else options.out
    if file:
        check_room(file)
    document = _make_document(options, db=db)
    if options.form == "json":
        answers = list(map(as_json, document.answers))
        handout = {
            name: {"problem": one.problem, "cells": len(one.cells), "missing": sweep_commands(one.missing, fresh=False)}
            for name, one in document.handout.items()
        }
        parts = {"title": document.title, **dict(document.facts), "handout": handout, "answers": answers}
        text = to_text(parts, indent=1) + "\n"
    else:
        text = as_started(write_document(document, form, brief=options.brief))
    if file is None:
        return text
    write_text(file, text)
    return f"{file}  {file.stat().st_size / 1e3:,.0f} kB\n"


def print_brief(console: Terminal, options: ReportOptions, *, db: Path) -> None:
    """Prints one page: the machine, and each answer's sentence with its first table."""
    document = _make_document(options, db=db)
    console.print(document.title, style="bold")
    for name, text in document.facts:
        if name in BRIEF_FACTS:
            console.print(f"{name}: {text}")
    console.print("")
    for answer in document.answers:
        if answer.views:
            console.print(QUESTIONS[answer.question].words, style="bold")
            brief = replace(answer, views=answer.views[:1], more="", choices=(), missing=(), doubts=())
            print_answer(console, brief, command=False)
    console.print("The whole report: python -m runner report --out report.md", style="dim")


def _make_document(options: ReportOptions, *, db: Path) -> Document:
    names = _choose_questions(options)
    contents = load_contents(db)
    run = find_run(db, options.run) if options.run is not None else None
    of = contents.select(run.machine, run.run_id) if run else contents.select(options.machine)
    load = load_once()
    handout: Mapping[str, CourseQuestion] = {}
    runs = contents.runs
    if options.edition:
        cells = cells_of_edition(options.edition)
        measured = load_measured(db, of, dict.fromkeys(map(type, cells)))
        every = ask_handout(options.edition, [cell for cell, _ in measured])
        own = QUESTIONS[options.question].course if options.question else every
        handout = {id: one for id, one in every.items() if id in own}
        of = replace(of, only=frozenset(map(config_of, cells)))
        counted = {run for cell, run in measured if of.holds(cell)}
        runs = tuple(run for run in runs if run.run_id in counted)
    facts = [] if options.question else [*_describe(runs, of, db=db, load=load)]
    if options.edition:
        parts = [f"{id} ({len(one.missing)} of {len(one.cells)})" for id, one in handout.items() if one.missing]
        outside = f"Outside of what Stepscope measures: {OUTSIDE[options.edition]}."
        facts.append(("Edition", f"{options.edition}, cells without a row: {', '.join(parts) or 'none'}. {outside}"))
    others = ("mode", "precision", "d-head", "against") if options.edition and not options.brief else ()
    answers: list[Answer] = []
    for name in names:
        cells = [cell for id in QUESTIONS[name].course if id in handout for cell in handout[id].cells]
        modes = {getattr(cell, "mode", "") for cell in cells}
        answers += _answer(name, db, of, load, others=others, modes=modes)
    return Document(
        title=f"Stepscope report: {of.machine or db.name}",
        facts=tuple(facts),
        answers=tuple(answers),
        handout=handout,
    )


def _answer(
    name: str, db: Path, of: Selection, load: Load, *, others: Sequence[str], modes: Collection[str]
) -> Iterator[Answer]:
    """Yields the answer to a question, and its first tables for the values of these choices it did not begin with: of
    the modes these, each in its precisions."""

    def shorten(asked: dict[str, str]) -> Answer:
        other = answer_for(name, db, of, asked, load=load)
        return replace(other, views=other.tables[:3], missing=())

    def list_others(answer: Answer, names: Sequence[str]) -> list[dict[str, str]]:
        chosen = [one for one in answer.choices if one.name in names]
        options = [{one.name: value} for one in chosen for value in one.options if value != one.chosen]
        return [asked for asked in options if asked.get("mode") in (None, *modes)]

    yield (usual := answer_for(name, db, of, load=load))
    for asked in list_others(usual, others):
        yield (other := shorten(asked))
        for precision in list_others(other, ("precision",)) if "mode" in asked else ():
            yield shorten(asked | precision)


def answer_for(
    name: str, db: Path, of: Selection, asked: dict[str, str] | None = None, *, load: Load | None = None
) -> Answer:
    """Returns the answer to a question from the rows of a selection; one over the whole file takes all machines."""
    question = QUESTIONS[name]
    of = replace(of, machine=None, run=None) if question.of_file else of
    return ask(name, read(db, of, {*question.needs, "audited"}, load=load), asked or {})


def _choose_questions(options: ReportOptions) -> Sequence[str]:
    if options.edition not in (None, *EDITIONS):
        raise UsageError(f"There is no edition {options.edition!r}.", expected=" or ".join(EDITIONS))
    if options.question is None:
        names = BRIEF if options.brief else order_questions()
        return [name for name in names if QUESTIONS[name].course or options.edition is None]
    if options.question not in QUESTIONS:
        raise UsageError(f"There is no question {options.question!r}.", expected=", ".join(QUESTIONS))
    return [options.question]


def _describe(runs: Sequence[RunSummary], of: Selection, *, db: Path, load: Load) -> tuple[tuple[str, str], ...]:
    """Returns the head of the report: the machine and its versions, those of the runs that count with their commands,
    and how far the rows can be trusted."""
    runs = [run for run in runs if run.machine == of.machine and of.run in (None, run.run_id)]
    if not runs:
        of_edition = " of this edition" if of.only else ""
        return (("Rows", f"This file has no measured run{of_edition}. Measure what this machine can: {MEASURE}"),)

    def each(column: str, write: Callable[[Any], str] = str, *, between: str = " or ") -> str:
        return between.join(dict.fromkeys(write(one) for row in runs if (one := getattr(row, column)) is not None))

    cores = each("cpu_cores")
    devices = {row.device_uuid for row in runs if row.device_uuid}
    machine = [
        of.machine or "",
        f"at least {len(devices)} of them" if len(devices) > 1 else "",
        each("device_memory_bytes", lambda size: f"{format_bytes(size)} of memory"),
        each("cpu_name"),
        f"{cores} CPU core{'s' * (cores != '1')}" if cores else "",
        each("os"),
    ]
    names = {"torch": "torch", "python": "Python", "cuda": "CUDA", "driver": "driver", "git_commit": "commit"}
    found = {words: each(column, lambda one: str(one)[:12], between=", ") for column, words in names.items()}
    versions = [f"{words} {values}" for words, values in found.items() if values]
    commands = _describe_runs(runs)
    earlier = [f"and {format_count(len(commands) - _MAX_RUNS, 'earlier command')}"] if commands[_MAX_RUNS:] else []
    dirty = sum(bool(row.git_dirty) for row in runs)
    versions += [f"{format_count(dirty, 'run')} with uncommitted changes"] if dirty else []
    facts = {
        "Machine": ", ".join(part for part in machine if part),
        "Versions": ", ".join(versions),
        "Runs": "; ".join([*commands[:_MAX_RUNS], *earlier]),
        "Trust": "no row has a grade.",
    }
    audited = read(db, of, ("audited",), load=load).audited
    counts: Counter[Grade | None] = Counter(row.grade for row in audited if of.holds(row.row))
    if graded := sum(number for grade, number in counts.items() if grade):
        fine = f"{counts['A'] + counts['B']:,} of {graded:,} graded rows have nothing against them or a note (A, B)"
        facts["Trust"] = f"{fine}, {counts['C']:,} are in doubt (C), {counts['D']:,} are wrong (D). {GRADE_WORDS}"
    if is_reference(db):
        shipped = f"{describe_reference([run.device_name for run in runs])} Measure your own: {MEASURE}"
        errors = measure_errors(read(db, of, ("peaks", "steps"), load=load))
        peaks = {"Peaks": f"{say_errors(errors)} {say_errors(COUNTED)}"} if errors.cells else {}
        facts = {"Reference": shipped, **facts, **peaks}
    facts["Reading"] = (
        "in brackets the 95% interval of the mean over processes, the 99% interval of a ratio, for the GPUs that "
        "measured. Of several efforts the most careful counts, of several runs the latest."
    )
    return tuple(facts.items())


def _describe_runs(runs: Sequence[RunSummary]) -> list[str]:
    """Returns a line for each command: a sweep on several GPUs has a run for each, and one that goes on has more."""
    groups: dict[tuple[str | None, str], list[RunSummary]] = {}
    for run in runs:
        command = re.sub(r" --(db|budget)(?: |=)\S+", "", run.argv or "unknown command")
        groups.setdefault((run.given or run.label, command), []).append(run)
    lines = []
    for (called, command), found in groups.items():
        times = [f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else "at an unknown time" for run in found]
        when = times[0] if len({*times}) == 1 else f"{times[-1]} to {times[0]}"
        several = f", {len(found)} runs" if len(found) > 1 else ""
        failed, skipped = sum(run.failed for run in found), sum(run.skipped for run in found)
        cells = f"{format_count(sum(run.ok for run in found), 'measurement')} ok"
        cells += (f", {failed} without a result" if failed else "") + (f", {skipped} skipped" if skipped else "")
        lines.append(f"{when}{f' ({called})' if called else ''}, {command}{several}: {cells}")
    return lines
