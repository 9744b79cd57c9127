"""The shipped report on the shipped reference rows is what the program prints for them today."""

from tests.command import ROOT, run


def test_the_shipped_report_on_the_h200_is_current() -> None:
    done = run("report", db=ROOT / "data/reference/h200")
    assert done.returncode == 0, done.stdout
    written = (ROOT / "docs/h200-report.md").read_text()
    assert done.stdout == written, "python -m runner report --db data/reference/h200 > docs/h200-report.md"
