"""The audit of the 31 published tables finds what was expected before the rules were written, and nothing else."""

import csv
from collections.abc import Iterator
from pathlib import Path

from runner.analysis.audit.published.audit import audit_published
from runner.published.reading import read_published
from runner.results.published import PublishedTable

REFERENCE = Path(__file__).parents[4] / "data/reference"
EXPECTED = Path(__file__).parent / "expected_findings.csv"
#: The place of a finding: file, line, code, severity.
Place = tuple[str, int, str, str]


def reference_tables() -> list[PublishedTable]:
    paths = sorted(path for path in REFERENCE.glob("*.csv") if path.name != "provenance.csv")
    return [table for path in paths for table in read_published(path)]


def expected_places() -> set[Place]:
    with EXPECTED.open() as file:
        return {
            (row["table"], line, row["code"], row["severity"])
            for row in csv.DictReader(file)
            for line in _span(row["lines"])
        }


def _span(text: str) -> Iterator[int]:
    first, _, last = text.partition("-")
    yield from range(int(first), int(last or first) + 1)


def test_recall_and_false_alarms() -> None:
    tables = reference_tables()
    assert len(tables) == 31
    expected = expected_places()
    found = {
        (one.table.file, line, one.finding.code, one.finding.severity)
        for one in audit_published(tables)
        for line in one.lines
    }
    for severity in ("fault", "doubt", "note"):
        wanted, said = ({place for place in places if place[3] == severity} for places in (expected, found))
        print(f"{severity}: {len(wanted & said)} of {len(wanted)} expected findings, {len(said - wanted)} false alarms")
    assert sorted(expected - found) == []
    assert sorted(found - expected) == []


def test_clean_tables_stay_clean() -> None:
    """Six tables have no findings."""
    flagged = {one.table.file for one in audit_published(reference_tables())}
    clean = {table.file for table in reference_tables()} - flagged
    assert clean == {
        "001_mixed_precision_accumulation.csv",
        "003_autocast_dtypes.csv",
        "003_mixed_precision_accumulation.csv",
        "003_nsys_kernels.csv",
        "004_autocast_dtypes.csv",
        "004_nsys_forward.csv",
    }


def test_a_table_has_no_more_findings_alone_than_with_the_others() -> None:
    """Findings that need no other table are found without the others, and no other findings are."""
    (table,) = read_published(REFERENCE / "002_simple_benchmarking.csv")
    alone = {(one.finding.code, one.lines) for one in audit_published([table])}
    among = {
        (one.finding.code, one.lines) for one in audit_published(reference_tables()) if one.table.file == table.file
    }
    assert alone == among
