"""The page Published results as its readers see it: claims and verdicts, and a table next to the reader's own rows.

The file has small at 256 tokens in float32, eager, forward and backward. That is the cell of line 2 of report 001's
eager table and of its tables after zero and one step of warm-up, and of line 3 of report 000's.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.importers.files import import_file
from runner.schema.sizes import size_named
from tests.browser import Site, at_widths, fits_sideways, opened, said, traces
from tests.runner.analysis.audit.test_expected import expected_places
from tests.synthetic import memory_rows, rows

REFERENCE = Path(__file__).parents[3] / "data/reference"
EAGER = "001 · End to End Benchmarks (RTX PRO 6000 WK)"
COMPILED = "001 · End to End Benchmarks (RTX PRO 6000 WK) / Compiled"
ATTENTION = "002 · Attention Benchmarking"
RUN = rows.run()
SHAPE: dict[str, Any] = {**size_named("small").numbers}
SMALL = rows.asked(**SHAPE, context=256, mode="backward")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rows.store(tmp_path_factory.mktemp("published") / "results.duckdb", RUN, [rows.ok(RUN, SMALL)])


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


def visit_words(file: Path, **parameters: str) -> str:
    """Returns the words of the page."""
    found = Visits(file).visit("published", {name.replace("_", "-"): [value] for name, value in parameters.items()})
    return plain(" ".join(str(getattr(node, "value", "")) for node in nodes(found.main)))


def test_how_many_tables_have_no_findings(file: Path) -> None:
    told = visit_words(file)
    worst: dict[str, set[str]] = {}
    for table, _, _, severity in expected_places():
        worst.setdefault(table, set()).add(severity)
    faulty = sum("fault" in severities for severities in worst.values())
    doubtful = sum("fault" not in severities and "doubt" in severities for severities in worst.values())
    assert (
        f"{31 - faulty - doubtful} of 31 published tables that come with Stepscope can be read as they stand; "
        f"{doubtful} have rows in doubt, and {faulty} have rows that do not mean what they say."
    ) in told


def test_a_published_table_with_measured_rows(browser: Browser, address: str) -> None:
    """Forward is 30 and backward 56 of 88 parts of the step's time; the table says 10.12 and 14.12 ms."""
    with opened(browser, f"{address}/published?published-table={EAGER}") as visit:
        drawn = traces(visit.page, "published-beside")
        step = rows.step_ms(SMALL)
        assert drawn["forward"]["x"] == pytest.approx([10.1203 / (step * 30 / 88)], rel=1e-4)
        assert drawn["backward"]["x"] == pytest.approx([14.1196 / (step * 56 / 88)], rel=1e-4)
        assert drawn["forward + backward"]["x"] == pytest.approx([24.2399 / (step * 86 / 88)], rel=1e-4)
        assert "in 1 cell with the same settings" in said(visit.page)
        expect(visit.page.get_by_text("Published, on RTX PRO 6000 WK.")).to_be_visible()


@pytest.mark.soak
def test_the_page_fits_every_width(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/published", width=390) as visit:
        for width in at_widths(visit.page, 390, 1400):
            assert traces(visit.page, "published-grades")
            assert fits_sideways(visit.page), width


def test_errors_and_corrected_values(file: Path) -> None:
    told = visit_words(file, published_table=COMPILED)
    assert "Backward takes 0.213 ms and forward 35.6 ms" in told
    assert "Verdict: none of 5 rows survives, 3 in doubt and 2 wrong: tf32 as fp32, impossible ratio, subtr" in told


@pytest.mark.soak
def test_tables_of_the_file_come_before_the_shipped_ones(tmp_path: Path) -> None:
    db = rows.store(tmp_path / "results.duckdb", RUN, [rows.ok(RUN, SMALL)])
    import_file(REFERENCE / "002_attention_benchmarking.csv", db=db)
    told = visit_words(db)
    assert "0 of 1 published tables in this file can be read as they stand" in told
    shipped = visit_words(db, published_from="Shipped with Stepscope", published_table=ATTENTION)
    assert "of 31 published tables that come with Stepscope" in shipped


@pytest.mark.soak
def test_peaks_are_shown_with_those_measured_here(tmp_path: Path) -> None:
    """44.8438 MiB at 256 tokens and a width of 16 is 1.12 times 40 MiB."""
    db = tmp_path / "results.duckdb"
    own = {"peak_allocated_bytes": 40 * 2**20}
    memory_rows.store(db, [memory_rows.attention(RUN, seq_len=256, d_head=16, values=own)])
    found = Visits(db).visit("published", {"published-table": [ATTENTION]})
    told = plain(" ".join(str(getattr(node, "value", "")) for node in nodes(found.main)))
    assert "Published peaks are 1.12× those measured here, in 1 cell with the same settings." in told


def test_a_table_without_a_measured_cell_says_how_to_measure_it(file: Path) -> None:
    told = visit_words(file, published_table=ATTENTION)
    assert "None of its 20 cells was measured in this file." in told
    assert "python -m runner sweep --experiment attention" in told
