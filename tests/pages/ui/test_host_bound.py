"""Speedups of cells that the host bounds have the ratio of device times next to them, on every page.

Of three sizes in fp32 and bf16 the host bounds both sides of the first, the bf16 side of the second, and none of the
third:

| | fp32: waited for, device (ms) | bf16 | ratio | device ratio |
|---|---|---|---|---|
| toy-64 | 32, 10 | 32, 4 | 1 | 2.5 |
| toy-128 | 40, 40 | 20, 10 | 2 | 4 |
| toy-256 | 80, 80 | 40, 40 | 2 | 2 |

toy-64 in fp32 is there with CUDA graphs, too, by which the device sets its time: 10 ms.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.schema import TimingRow
from tests.browser import Site, at_widths, fits_sideways, opened, traces
from tests.command import run
from tests.synthetic import memory_rows, rows
from tests.synthetic.clocks import by_clocks, gpu

OF = gpu()
#: √(2.5 · 4) = 3.162.
PAIRS = (
    "2 of the 3 pairs are bound by the host on one side or both: by device time the ratio is 3.16× (geometric mean of "
    "2, 2.50× to 4.00×)."
)


def attention(implementation: str, **clocks: Any) -> memory_rows.Tables:
    """Returns an attention cell with these times in a loop and on the device, the same in each phase."""
    bound = {"bound": "host" if clocks["device_ms"] < clocks["loop_ms"] else "device"}
    made = memory_rows.attention(OF, seq_len=1024, implementation=implementation, values=bound)
    timings = [replace(row, **clocks) for row in made["timings"] if isinstance(row, TimingRow)]
    return {**made, "timings": timings}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "results.duckdb"
    times: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
        "toy-64": ((32.0, 10.0), (32.0, 4.0)),
        "toy-128": ((40.0, 40.0), (20.0, 10.0)),
        "toy-256": ((80.0, 80.0), (40.0, 40.0)),
    }
    cells = [
        by_clocks(OF, rows.asked(size, precision=precision), waited=waited, loop=waited, device=device)
        for size, both in times.items()
        for precision, (waited, device) in zip(("fp32", "bf16"), both, strict=True)
    ]
    graphs = rows.asked("toy-64", backend="cuda-graphs")
    rows.store(path, OF, [*cells, by_clocks(OF, graphs, waited=10.0, loop=10.0, device=10.0)])
    return memory_rows.store(
        path,
        [attention("naive", loop_ms=6.0, device_ms=6.0), attention("sdpa-flash", loop_ms=4.0, device_ms=2.0)],
    )


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


def visited(file: Path, page: str, **parameters: list[str]) -> tuple[str, Any]:
    """Returns all words of a page and the rows of its cards."""
    visit = Visits(file).visit(page, parameters)
    return plain(" ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))), visit.rows


@pytest.mark.soak
def test_mixed_precision_names_host_bound_pairs(file: Path) -> None:
    words, cards = visited(file, "mixed-precision")
    assert PAIRS in words
    table = cards["card-precision-speedup"]
    steps = table[table["Phase"] == "whole step"]
    assert steps[["Speedup (×)", "Device ratio (×)"]].values.tolist() == [[1.0, 2.5], [2.0, 4.0], [2.0, 2.0]]


def test_torch_compile_names_host_bound_pairs(file: Path) -> None:
    """CUDA graphs give 32 / 10, and by device time no speedup."""
    words, cards = visited(file, "torch-compile")
    assert "The pair is bound by the host on one side: by device time the ratio is 1.00×." in words
    (row,) = cards["card-ways"].to_dict("records")
    assert (row["Speedup (×)"], row["Device ratio (×)"]) == (pytest.approx(3.2), 1.0)


def test_attention_names_host_bound_pairs(file: Path) -> None:
    words, cards = visited(file, "attention")
    assert "The pair is bound by the host on one side: by device time the ratio is 3.00×." in words
    assert set(cards["card-fused-speedup"]["Device ratio (×)"]) == {3.0}


def test_compare_names_host_bound_pairs_on_its_page_and_in_the_terminal(file: Path) -> None:
    words, cards = visited(file, "compare", compare=["Precisions"])
    assert PAIRS in words
    assert sorted(cards["card-compare-pairs"]["Device ratio (×)"]) == [2.0, 2.5, 4.0]
    printed = run("compare", "precision:fp32", "precision:bf16", db=file).stdout
    assert PAIRS in " ".join(printed.split())


@pytest.mark.soak
def test_without_device_times_nothing_is_added(tmp_path: Path) -> None:
    of = rows.run()
    cells = [rows.ok(of, rows.asked(precision=precision)) for precision in ("fp32", "bf16")]
    words, cards = visited(rows.store(tmp_path / "results.duckdb", of, cells), "mixed-precision")
    assert "bound by the host" not in words
    assert "Device ratio (×)" not in cards["card-precision-speedup"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("place", "card", "ringed"),
    [
        ("mixed-precision", "precision-speedup", [1, 1, 2, 2]),  # for forward and the whole step
        ("torch-compile", "ways", [3.2]),
        ("compare?compare=Precisions", "compare-pairs", [1, 2]),
    ],
)
def test_rings_mark_host_bound_pairs(
    browser: Browser, address: str, place: str, card: str, ringed: list[float]
) -> None:
    with opened(browser, f"{address}/{place}", width=390) as visit:
        for width in at_widths(visit.page, 390, 1440):
            rings = traces(visit.page, card)["bound by the host on a side"]
            assert sorted(rings["x"]) == pytest.approx(ringed)
            assert fits_sideways(visit.page), width
