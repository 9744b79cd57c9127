"""The report on the reference rows that ship: what the program says of them today."""

import pytest

from tests.command import ROOT, run


@pytest.mark.soak
def test_the_report_on_the_h200_is_that_of_the_rows_that_ship() -> None:
    done = run("report", db=ROOT / "data/reference/h200")
    assert done.returncode == 0, done.stdout
    written = (ROOT / "docs/h200-report.md").read_text()
    assert done.stdout == written, "python -m runner report --db data/reference/h200 > docs/h200-report.md"
