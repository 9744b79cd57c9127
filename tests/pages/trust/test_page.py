"""The page Trust as its readers see it: a real server, a real browser, grades and findings computed by hand.

The machine that is shown first has steps graded A, A, B, C and D and one without a result, an attention row graded A,
and a memory row graded D because its parameters are not those of its shape. The other machine has one good row of an
earlier run.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.offline.visit import Visits, nodes
from pages.trust.answers import answer
from pages.ui.filters import run_name
from pages.ui.markdown import plain
from runner.analysis.audit.remedies import REMEDIES
from runner.analysis.audit.report import group_findings
from runner.errors import DatabaseDamaged
from runner.schema import new_id
from runner.store.queries.audit import load_audit
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from tests.browser import Site, at_widths, fits_sideways, opened, said, traces
from tests.pages.test_damage import visit_words as words_of
from tests.runner.store.test_damage import damage
from tests.synthetic import memory_rows, rows

#: Ids of the same millisecond are not ordered.
IDS = sorted(new_id() for _ in range(3))
OTHER, FIRST = rows.run(run_id=IDS[0], host="bench0"), rows.run(run_id=IDS[1], label="first")
SECOND = rows.run(run_id=IDS[2], label="second")
HERE = "Example CPU · bench1"


def changed(size: str, **values: Any) -> rows.Rows:
    found = rows.ok(SECOND, rows.asked(size))
    return replace(found, step=replace(found.step, **values))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trust") / "results.duckdb"
    rows.store(path, OTHER, [rows.ok(OTHER, rows.asked("toy-64"))])
    rows.store(path, FIRST, [rows.ok(FIRST, rows.asked("toy-64", context=64))])
    cells = [
        rows.ok(SECOND, rows.asked("toy-64", mode="inference")),
        changed("toy-64", phase_sum_share=0.9),
        changed("toy-128", other_cpu_share=0.3, phase_sum_share=0.9),
        changed("toy-256", recompiles=2, other_cpu_share=0.25),
        rows.failed(SECOND, rows.asked("toy-256", context=256)),
    ]
    rows.store(path, SECOND, cells)
    other = [memory_rows.attention(SECOND, seq_len=1024), memory_rows.memory(SECOND, {"parameters": 2**20})]
    return memory_rows.store(path, other)


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


@pytest.fixture(scope="module")
def at_trust(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page as it opens on a phone; the tests below are in the order in which they use it."""
    with opened(browser, f"{address}/trust", width=390) as visit:
        yield visit.page


@pytest.mark.soak
def test_the_page_fits_every_width(at_trust: Page) -> None:
    for width in at_widths(at_trust, 390, 1440):
        assert traces(at_trust, "grades")
        assert fits_sideways(at_trust), width


def test_grades_by_table(at_trust: Page) -> None:
    drawn = traces(at_trust, "grades")
    assert drawn["A: nothing against it"]["x"] == [2, 1, 0]
    assert drawn["B: a note"]["x"] == [1, 0, 0]
    assert drawn["C: in doubt"]["x"] == [1, 0, 0]
    assert drawn["D: it does not mean what it says"]["x"] == [1, 0, 1]
    assert drawn["no result"]["x"] == [1, 0, 0]
    assert (
        "4 of 7 graded rows on this machine can be trusted, 1 is in doubt and 2 do not mean what they say. Most "
        "frequent: busy machine (2), not by formula (1) and recompiled (1). 1 more row has no result, and so no grade."
    ) in said(at_trust)


def test_findings_by_code_most_severe_first(at_trust: Page) -> None:
    drawn = traces(at_trust, "findings")
    assert (drawn["fault: grade D"]["y"], drawn["fault: grade D"]["x"]) == ([0, 1], [1, 1])
    assert (drawn["doubt: grade C"]["y"], drawn["doubt: grade C"]["x"]) == ([2], [2])
    assert (drawn["note: grade B"]["y"], drawn["note: grade B"]["x"]) == ([3], [2])
    card = at_trust.locator(".st-key-card-findings")
    for name in ("not by formula", "recompiled", "busy machine", "phases do not add"):
        expect(card.get_by_text(name, exact=True)).to_be_visible()


def test_a_finding_opens_to_its_cells_and_its_remedy(file: Path, at_trust: Page) -> None:
    audit = load_audit(file, Selection(machine=HERE))
    (group,) = (group for group in group_findings(audit.rows) if group.code == "recompiled")
    ((row, _),) = group.found
    at_trust.locator("summary", has_text="recompiled").click()
    expect(at_trust.get_by_text(f"python -m runner replay {row.cell_id}")).to_be_visible()
    told = at_trust.locator("[data-testid=stExpanderDetails]", has_text="What would fix it:").inner_text()
    assert REMEDIES["recompiled"].replace("`", "") in told.replace("\n", "")
    assert fits_sideways(at_trust)


# -------------------------------------------------------------------------------------- without a browser: what it says


def table(file: Path, card: str, **parameters: list[str]) -> list[dict[str, Any]]:
    """Returns the rows of a card."""
    found = Visits(file).visit("trust", parameters).rows[f"card-{card}"]
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


def test_grades_by_run_and_by_machine(file: Path) -> None:
    names = {run.run_id: run_name(run) for run in load_contents(file).runs}
    by_run = table(file, "grades", **{"trust-by": ["run"]})
    assert [(row["Run"], row["A"], row["D"], row["No result"]) for row in by_run] == [
        (names[SECOND.run_id], 2, 2, 1),
        (names[FIRST.run_id], 1, 0, 0),
    ]
    by_machine = table(file, "grades", **{"trust-by": ["machine"]})
    assert [(row["Machine"], row["A"], row["B"], row["C"], row["D"]) for row in by_machine] == [
        (HERE, 3, 1, 1, 2),
        ("Example CPU · bench0", 1, 0, 0, 0),
    ]


def test_the_table_of_findings_has_evidence_and_remedies(file: Path) -> None:
    found = table(file, "findings")
    assert [(row["Finding"], row["Cell"].split(" · ")[0]) for row in found] == [
        ("not by formula", "toy-64"),
        ("recompiled", "toy-256"),
        ("busy machine", "toy-128"),
        ("busy machine", "toy-256"),
        ("phases do not add", "toy-128"),
        ("phases do not add", "toy-64"),
    ]
    busy = found[3]
    assert (busy["Severity"], busy["Table"], busy["Evidence"]) == ("doubt", "steps", "other_cpu_share 0.25")
    assert busy["What was found"] == "Other processes took 25% of the CPU while this cell was measured."
    assert all(row["What would fix it"] == REMEDIES[row["Finding"].replace(" ", "_")] for row in found)
    assert len({row["Id"] for row in found}) == 4


def test_filters_machine_and_run_apply(file: Path) -> None:
    narrow = table(file, "grades", size=["toy-128"])
    assert [(row["Table"], row["C"]) for row in narrow] == [("steps", 1), ("attention", 0)]
    (run,) = (run_name(run) for run in load_contents(file).runs if run.label == "first")
    assert [row["A"] for row in table(file, "grades", run=[run])] == [1]
    sound = Visits(file).visit("trust", {"run": [run]})
    told = plain(" ".join(str(getattr(node, "value", "")) for node in nodes(sound.main)))
    assert "The only graded row in this run can be trusted: the audit found nothing against it." in told
    assert "card-findings" not in sound.rows
    assert "The audit has no findings for these rows." in told


def test_missing_rows_and_damaged_tables_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, path = rows.run(), tmp_path / "results.duckdb"
    monkeypatch.setenv("STEPSCOPE_DB", str(path))
    rows.store(path, of, [rows.failed(of, rows.asked())])
    assert "No row in this file has a result to grade. 1 more row has no result" in words_of(path, "trust")
    damaged = rows.store(tmp_path / "damaged.duckdb", of, rows.laptop(of))
    damage(damaged, "samples")
    monkeypatch.setenv("STEPSCOPE_DB", str(damaged))
    with pytest.raises(DatabaseDamaged, match="needs a table that cannot be read"):
        Visits(damaged).visit("trust", {})


def test_all_rows_can_be_trusted_with_or_without_notes(file: Path) -> None:
    audit = load_audit(file, Selection(machine=HERE)).rows
    good = [row for row in audit if row.grade in ("A", "B")]
    words = answer(good, group_findings(good), among="here")
    assert words == "**All 4** graded rows here can be trusted: the audit has no more than notes on them."
