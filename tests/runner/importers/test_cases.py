"""Files of other people with the right outcome of each, worked out by hand: tests/cases, read and audited."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runner.analysis.audit.published import audit_published
from runner.errors import UsageError
from runner.importers.files import import_file
from runner.importers.published import describe_table
from runner.published.reading import load_mapping, read_file
from runner.results.published import PublishedRow
from runner.store.read.findings import load_timeline_findings
from tests.command import execute
from tests.synthetic.stored import read

CASES = Path(__file__).parents[2] / "cases"
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Case:
    """What must be stored: figures by line and quantity ("oom" for a row that ran out), how many values in all, what is
    said beside, and the lines of each doubt or fault."""

    figures: dict[int, dict[str, float] | str] = field(default_factory=dict)
    values: int | None = None
    subject: str = "steps"
    said: tuple[str, ...] = ()
    found: dict[str, tuple[int, ...]] = field(default_factory=dict)
    refused: str | None = None


def rows(quantity: str, *values: float, first: int = 2) -> dict[int, dict[str, float] | str]:
    return {line: {quantity: value} for line, value in enumerate(values, start=first)}


def passes(*pairs: tuple[float, float], first: int) -> dict[int, dict[str, float] | str]:
    return {line: {"forward": one, "backward": two} for line, (one, two) in enumerate(pairs, start=first)}


PUBLISHED = {
    "lost-tables/two-of-three.md": Case(
        figures=passes((4.1, 8.6), (9.7, 20.4), first=5), said=("Preparing the data", "Whole step", "Zeit")
    ),
    "spans/rowspan.typ": Case(refused="Typst"),
    "spans/rowspan.html": Case(figures={**passes((5.2, 10.9), (9.8, 20.1), (11.4, 23.6), first=5), 8: "oom"}),
    "spans/multirow-upward.tex": Case(refused="LaTeX"),
    "spans/group-rows.tex": Case(refused="LaTeX"),
    "unread-columns/variant.csv": Case(
        figures=passes((18.2, 37.0), (25.1, 52.4), (35.9, 72.2), (49.6, 101.0), first=2), values=8
    ),
    "unread-columns/gpu-seed.csv": Case(figures=rows("forward", 18.2, 21.9, 9.9, 19.1)),
    "unread-columns/flavour.csv": Case(figures=rows("forward", 58.2, 17.9, 230.1)),
    "unread-columns/blank-below.md": Case(figures=rows("forward", 4.0, 8.1, 11.2, 22.4, first=5)),
    "unread-columns/really-twice.csv": Case(figures=rows("forward", 18.2, 24.9, 36.7), found={"duplicate_key": (2, 3)}),
    "half-memory/constant.csv": Case(figures=rows("reserved_memory", *[22548578304] * 6)),
    "half-memory/growing.csv": Case(values=6, found={"no_effect": (3, 5, 7)}),
    "ratios/rounded.md": Case(figures=rows("speedup", 2.8, 1.12, 1.5, first=5)),
    "captions/figure-before.tex": Case(refused="LaTeX"),
    "shares/mfu.csv": Case(figures=rows("share", 0.4125, 0.475), said=("taken as percent",)),
    "shares/fractions.csv": Case(figures=rows("share", 0.41, 0.475)),
    "fences/code.md": Case(figures=rows("forward", 12.0, first=10)),
    "fences/printed.md": Case(figures=rows("forward", 12.0, 35.5, first=5)),
    "subjects/all-reduce.csv": Case(subject="other"),
    "subjects/sequence-length.md": Case(figures=passes((21.0, 43.0), (44.5, 92.1), first=5)),
    "caption-units/gib.md": Case(
        figures=rows("peak_memory", 3.5 * GIB, 6.25 * GIB, first=5), said=("as the title says",)
    ),
    "markdown-shapes/empty-heading.md": Case(figures=rows("forward", 12.0, 35.5, first=5)),
    "markdown-shapes/no-outer-bars.md": Case(figures=rows("forward", 12.0, 35.5, first=3)),
    "clean/passes-std.csv": Case(values=12),
    "clean/memory.tsv": Case(values=6),
    "clean/attention.md": Case(values=12, subject="attention"),
    "clean/speedups.jsonl": Case(values=9),
    "clean/compiled.tex": Case(refused="LaTeX"),
    "clean/passes.html": Case(values=6),
    "clean/compiled-speedup.md": Case(values=9),
    "clean/all-reduce.csv": Case(values=4, subject="other"),
    "faulty/negative-backward.csv": Case(found={"negative_time": (4,)}),
    "faulty/optimizer-unit.md": Case(found={"wrong_unit": (4,)}),
    "faulty/tf32.tsv": Case(found={"tf32_as_fp32": (2,)}),
    "faulty/carried-peak.md": Case(found={"peak_carried_over": (6,)}),
    "faulty/wrong-speedup.jsonl": Case(found={"ratio_off": (2,)}),
    "faulty/seconds-in-ms.csv": Case(found={"wrong_unit": (4,)}),
    "faulty/slip.tex": Case(refused="LaTeX"),
    "faulty/doubled-row.tsv": Case(found={"duplicate_key": (2, 3)}),
}


#: Memory snapshots: the findings with their bytes.
SNAPSHOTS = {
    "moments-anew": {},
    "kept-graphs": {"kept_graph": ("kept_bytes", 2 * (12 + 36 + 8) * 2**20 + 2 * 4)},
    "steady": {},
    "no-history": {"no_history": ("held_bytes", 84193280)},
}


def _value(row: PublishedRow, quantity: str) -> float | None:
    return next((figure.value for figure in row.figures if figure.quantity == quantity), None)


_MAPPED = [name for name in PUBLISHED if (CASES / name).with_suffix(".toml").exists()]


@pytest.mark.parametrize(
    ("name", "mapped"), [*((name, False) for name in PUBLISHED), *((name, True) for name in _MAPPED)]
)
def test_published_tables(name: str, mapped: bool) -> None:
    """As they are read; `test_published.py` tests that they are stored so."""
    case, path = PUBLISHED[name], CASES / name
    mapping = load_mapping(path.with_suffix(".toml")) if mapped else None
    if case.refused:
        with pytest.raises(UsageError, match=case.refused):
            read_file(path, mapping=mapping)
        return
    found = read_file(path, mapping=mapping)
    assert not found.lost
    lines = [*found.remarks, *(line for table in found.tables for line in describe_table(table))]
    for words in case.said:
        assert any(words in line for line in lines)
    table = found.tables[-1]
    assert table.subject == case.subject
    if case.figures:
        stored = {
            row.line: "oom" if row.status == "oom" else {name: _value(row, name) for name in wanted}
            for row in table.rows
            if (wanted := case.figures[row.line])
        }
        assert stored == case.figures
    if case.values is not None:
        assert sum(figure.value is not None for row in table.rows for figure in row.figures) == case.values
    assert {one.finding.code: one.lines for one in audit_published([table])} == case.found


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots(name: str, db: Path) -> None:
    (line,) = import_file(CASES / f"snapshots/{name}.pickle", db=db).lines
    ((cell_id,),) = read(db, "SELECT cell_id FROM timelines")
    found = load_timeline_findings(db, cell_id)
    assert {one.code: one.severity for one in found} == dict.fromkeys(SNAPSHOTS[name], "doubt")
    for one in found:
        evidence, size = SNAPSHOTS[name][one.code]
        assert one.evidence[evidence] == size
    assert ("no peak" in line) == (name == "no-history")


def _run(*words: str, where: str) -> str:
    return execute(sys.executable, "-m", "runner", *words, cwd=CASES / where, code=0).stdout


def test_a_cpu_that_computes_is_not_launch_bound() -> None:
    """158 and 173 ms at 4 and 8 tokens are 80 and 86 ms of AdamW over 34 million parameters."""
    said = _run("show", "--findings", "--db", "rows", where="own_rows")
    assert "wide_interval (doubt), 1 cell" in said
    assert "launch_bound" not in said


@pytest.mark.soak
def test_own_models_are_told_apart_and_say_what_is_trained() -> None:
    files = ("unused_head.py", "tiny/model.py", "big/model.py")
    said = [_run("model", "check", f"{file}:build", "--device", "cpu", where="own_models") for file in files]
    assert "6,680, 1,976 of them trained" in said[0]
    assert [lines.partition("@")[0] for lines in said] == ["unused_head", "tiny/model", "big/model"]


#: Recordings of Nsight Systems: steps, kernels by phase with calls and ms, the sum of the kernels alone.
RECORDINGS = {
    "uneven-phases.sqlite": (None, {("forward", 12.0, 1.44), ("backward", 10.0, 2.6), ("optimizer", 10.0, 0.9)}, 4.94),
    "uneven-phases.csv": (None, {("forward", 24.0, 2.88), ("backward", 20.0, 5.0), ("optimizer", 10.0, 0.9)}, 8.78),
    "two-devices.sqlite": (3, {("forward", 1.0, 0.11), ("forward", 1.0, 0.03), ("unknown", 1.0, 0.025)}, 0.14),
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_of_nsight_systems(name: str, db: Path) -> None:
    steps, kernels, total = RECORDINGS[name]
    import_file(CASES / "nsys" / name, db=db)
    ((stored, count, kernel_ms),) = read(db, "SELECT steps, kernels, kernel_ms FROM traces")
    ran = read(db, "SELECT phase, calls, round(device_ms, 6) FROM kernels")
    (machine,) = read(db, "SELECT device_name, device_memory_bytes FROM runs")
    assert (stored, set(ran), kernel_ms) == (steps, kernels, pytest.approx(total))
    if name.endswith(".sqlite"):
        assert machine == ("Example Accelerator 48GB", 51539607552)
    if name == "two-devices.sqlite":
        assert (count, len(ran)) == (2, 4), "the copies are named apart from them"
