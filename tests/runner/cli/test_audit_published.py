"""`show --findings` of imported published tables: printed like a measured run."""

from pathlib import Path

import pytest

from runner.analysis.audit.published import PUBLISHED_REMEDIES
from tests.command import run

REFERENCE = Path(__file__).parents[3] / "data/reference"
COMPILED = "End to End Benchmarks (RTX PRO 6000 WK) / Compiled"


@pytest.mark.soak
def test_findings_of_a_published_file(db: Path) -> None:
    assert run("import", str(REFERENCE), db=db).returncode == 0
    done = run("show", COMPILED, "--strict", db=db, code=1)  # one row is graded D
    lines = done.stdout.splitlines()
    assert [words for words in lines if words.endswith((" row", " rows"))] == [
        "impossible_ratio (fault), 1 row",
        "cold_step (doubt), 1 row",
    ]
    assert f"  What to do: {PUBLISHED_REMEDIES['impossible_ratio']}" in lines
    assert lines.count("  001_e2e_rtxpro6000_compiled.csv, line 3") == 2
    assert any("Backward takes 0.213 ms and forward 35.6 ms" in words for words in lines)


def test_a_clean_table_has_no_findings(db: Path) -> None:
    assert run("import", str(REFERENCE / "004_nsys_forward.csv"), db=db).returncode == 0
    done = run("show", "1.1.4 nsys forward", "--strict", db=db, code=0)
    assert "Nothing was found by 11 rules, which does not say that the rows are right." in done.stdout
