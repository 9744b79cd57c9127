"""`python -m runner audit` of imported published tables: printed like a measured run, with the tables of the same
report."""

from pathlib import Path

import pytest

from runner.analysis.audit.published.remedies import PUBLISHED_REMEDIES
from tests.command import run

REFERENCE = Path(__file__).parents[3] / "data/reference"
COMPILED = "End to End Benchmarks (RTX PRO 6000 WK) / Compiled"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with the published tables of data/reference."""
    db = tmp_path_factory.mktemp("published") / "results.duckdb"
    assert run("import", str(REFERENCE), db=db).returncode == 0
    return db


def test_findings_of_a_published_file(imported: Path) -> None:
    done = run("show", COMPILED, "--strict", db=imported)
    assert done.returncode == 1, "one row is graded D"
    lines = done.stdout.splitlines()
    assert [words for words in lines if words.endswith((" row", " rows"))] == [
        "impossible_ratio (fault), 1 row",
        "tf32_as_fp32 (fault), 1 row",
        "subtraction (doubt), 5 rows",
        "cold_beside_warm (doubt), 1 row",
        "cold_step (doubt), 1 row",
    ]
    assert f"  What to do: {PUBLISHED_REMEDIES['subtraction']}" in lines
    assert "  001_e2e_rtxpro6000_compiled.csv, lines 2–6" in lines
    (cold,) = (words for words in lines if "beside 20.3 ms (eager)" in words)
    assert "about 10.6 ms" in cold, "the steady mean is 35.62 - 79.27 / √10"


def test_a_clean_table_has_no_findings(imported: Path) -> None:
    done = run("show", "1.1.4 nsys forward", "--strict", db=imported)
    assert done.returncode == 0
    assert "The audit found nothing against any of these rows." in done.stdout
