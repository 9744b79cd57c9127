"""`python -m runner show --findings`: grades by table, every finding with its cell and its remedy, and `--strict`; of
measured rows, and of published tables."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from runner.analysis.audit.findings import REMEDIES, count_grades, list_findings, shorten_ids
from runner.analysis.audit.published import PUBLISHED_REMEDIES
from runner.schema import RunRow, new_id
from runner.store.read.findings import count_not_read, load_audit
from runner.store.read.selection import Selection
from tests.command import ROOT, run
from tests.synthetic import memory_rows, rows

#: Ids of the same millisecond are not ordered.
IDS = sorted(new_id() for _ in range(2))
FIRST = rows.run(run_id=IDS[0], label="clean")
SECOND = rows.run(run_id=IDS[1], label="mixed", device_name="Example CPU 2")


def damaged(of: RunRow, size: str, **values: Any) -> rows.Rows:
    """Returns a cell that worked, with values in its row that break a rule of the audit."""
    found = rows.ok(of, rows.asked(size))
    return replace(found, step=replace(found.step, **values))


@pytest.fixture(scope="module")
def filled(module_db: Path) -> Path:
    """Returns a file with a run of one good row, and a later one of rows graded A to D, a failed and a memory row."""
    rows.store(module_db, FIRST, [rows.ok(FIRST, rows.asked(context=64))])
    cells = [
        rows.ok(SECOND, rows.asked("toy-64", mode="inference")),
        damaged(SECOND, "toy-64", phase_sum_share=0.9),
        damaged(SECOND, "toy-128", other_cpu_share=0.3, phase_sum_share=0.9),
        damaged(SECOND, "toy-256", recompiles=2, other_cpu_share=0.25),
        rows.failed(SECOND, rows.asked("toy-256", context=256)),
    ]
    rows.store(module_db, SECOND, cells)
    return rows.store_tables(module_db, [memory_rows.memory(SECOND, {"parameters": 2**20})])


def line(text: str, beginning: str) -> list[str]:
    """Returns the words of the only line that begins like this."""
    (found,) = (words for words in text.splitlines() if words.startswith(beginning))
    return found.split()


def test_grades_by_table_and_every_finding_most_severe_first(filled: Path) -> None:
    done = run("show", "mixed", "--strict", db=filled, code=1)  # one row is graded D
    text = done.stdout
    assert line(text, "table") == ["table", "A", "B", "C", "D", "no", "result"]
    assert line(text, "steps") == ["steps", "1", "1", "1", "1", "1"]
    codes = [words for words in text.splitlines() if words.endswith((" cell", " cells"))]
    memory_code, *timed = sorted(codes, key=lambda words: "not_by_formula" not in words)
    assert memory_code == "not_by_formula (fault), 1 cell"
    assert timed == ["recompiled (fault), 1 cell", "busy_machine (doubt), 2 cells", "phases_do_not_add (note), 2 cells"]
    assert [word.split("(")[1].split(")")[0] for word in codes] == ["fault", "fault", "doubt", "note"]
    for code in ("recompiled", "busy_machine", "phases_do_not_add"):
        assert f"  What to do: {REMEDIES[code]}" in text
    busy = text[text.index("busy_machine") : text.index("phases_do_not_add")].splitlines()
    assert [words.split("steps: ")[1] for words in busy if "steps: " in words] == [
        "toy-128 · 128 · train · fp32 · eager",
        "toy-256 · 128 · train · fp32 · eager",
    ]
    assert "    Other processes took 25% of the CPU while this cell was measured." in busy
    assert "    other_cpu_share 0.25" in busy


def test_a_finding_names_its_cell_by_a_unique_prefix_of_its_id(filled: Path) -> None:
    audit = load_audit(filled, Selection(run=SECOND.run_id))
    (worst,) = (row for row in audit if any(finding.code == "recompiled" for finding in row.findings))
    text = run("show", "mixed", "--strict", db=filled).stdout
    found = text[text.index("recompiled (fault)") : text.index("busy_machine")].splitlines()
    (named,) = (words.split()[0] for words in found if words.endswith("toy-256 · 128 · train · fp32 · eager"))
    assert [row.cell_id for row in audit if str(row.cell_id).startswith(named)] == [worst.cell_id]
    short = shorten_ids([row.cell_id for row in audit])
    assert len(set(short.values())) == len(short) == len(audit)
    assert all(str(cell_id).startswith(words) and len(words) >= 13 for cell_id, words in short.items())


def test_a_run_without_a_fault_is_exit_0(filled: Path) -> None:
    done = run("show", str(FIRST.run_id)[:30], "--strict", db=filled, code=0)
    assert line(done.stdout, "steps") == ["steps", "1", "0", "0", "0", "0"]
    assert "The audit found nothing against any of these rows." in done.stdout


def test_the_latest_run_is_audited_unless_one_is_named_and_no_run_is_an_error(filled: Path, tmp_path: Path) -> None:
    latest = run("show", "--findings", db=filled)
    assert (latest.returncode, "mixed" in latest.stdout) == (0, True), "only --strict judges"
    old = run("audit", db=filled)
    assert (old.returncode, "audit is now: python -m runner show --findings --strict" in old.stdout) == (1, True)
    assert latest.stdout in old.stdout
    assert "No run is called 'nobody'. Expected an id" in run("show", "nobody", "--findings", db=filled, code=2).stdout
    assert "python -m runner sweep" in run("show", "--strict", db=tmp_path / "none.duckdb", code=2).stdout


def test_filters_apply_to_the_tables_that_have_their_column(filled: Path) -> None:
    trained = load_audit(filled, Selection(machine="Example CPU 2 · bench1", mode="train"))
    assert count_grades(trained)["steps"] == {"B": 1, "C": 1, "D": 1, None: 1}
    narrow = load_audit(filled, Selection(machine="Example CPU 2 · bench1", context=(256,)))
    assert [(row.table, row.grade) for row in narrow] == [("steps", None)]
    assert list_findings(load_audit(filled, Selection(machine="Example CPU · bench1"))) == []
    by_machine = Counter(row.machine for row in load_audit(filled, Selection()))
    assert by_machine == {"Example CPU · bench1": 1, "Example CPU 2 · bench1": 6}


def test_only_the_newest_rows_are_read(filled: Path) -> None:
    every = load_audit(filled, Selection(run=SECOND.run_id))
    with patch("runner.store.read.findings.MAX_ROWS", 2):
        audit = load_audit(filled, Selection(run=SECOND.run_id))
        assert count_not_read(filled, Selection(run=SECOND.run_id)) == 3
    newest = sorted((row.cell_id for row in every if row.table == "steps"), reverse=True)[:2]
    assert [row.cell_id for row in audit if row.table == "steps"] == newest


@pytest.mark.soak
def test_findings_of_a_published_file(db: Path) -> None:
    run("import", str(ROOT / "data/reference"), db=db, code=0)
    compiled = "End to End Benchmarks (RTX PRO 6000 WK) / Compiled"
    lines = run("show", compiled, "--strict", db=db, code=1).stdout.splitlines()  # one row is graded D
    codes = ["impossible_ratio (fault), 1 row", "cold_step (doubt), 1 row"]
    assert [words for words in lines if words.endswith((" row", " rows"))] == codes
    assert f"  What to do: {PUBLISHED_REMEDIES['impossible_ratio']}" in lines
    assert lines.count("  001_e2e_rtxpro6000_compiled.csv, line 3") == 2
    assert any("Backward takes 0.213 ms and forward 35.6 ms" in words for words in lines)


def test_a_clean_published_table_has_no_findings(db: Path) -> None:
    run("import", str(ROOT / "data/reference/004_nsys_forward.csv"), db=db, code=0)
    done = run("show", "1.1.4 nsys forward", "--strict", db=db, code=0)
    assert "Nothing was found by 11 rules, which does not say that the rows are right." in done.stdout
