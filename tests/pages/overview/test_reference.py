"""The reader's machine compared with that of the reference rows: in one card of Overview, and in no other number."""

import re
from pathlib import Path

import pytest

from pages.offline.visit import Visit, Visits, nodes
from pages.ui.markdown import plain
from runner.schema import StepCell
from tests.synthetic import rows
from tests.synthetic.reference import CELLS, DEVICE, pack_reference


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_reference(tmp_path_factory.mktemp("reference") / "gpu")


@pytest.fixture(autouse=True)
def _named(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", "restored afterwards")
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(packed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def overview(path: Path, **chosen: list[str]) -> Visit:
    return Visits(path).visit("overview", chosen)


def words_of(visit: Visit) -> str:
    words = " ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))
    return re.sub(r"\s+", " ", plain(words))


def own(path: Path, *cells: tuple[StepCell, float]) -> Path:
    """Stores rows of another machine: each cell in three rounds, this many times as long as in `rows.ok`."""
    of = rows.run()
    found = [rows.ok(of, cell, round=number, slower=slower) for cell, slower in cells for number in range(3)]
    return rows.store(path, of, found)


@pytest.mark.soak
def test_the_ratio_of_each_shared_cell(tmp_path: Path) -> None:
    """The reference takes half the time of `rows.ok`. Here one cell takes twice that time and one a quarter of it, so
    they take 4 times and half as long as the reference, a geometric mean of √(4 × ½) = 1.41. A third cell has no
    partner."""
    path = own(tmp_path / "r.duckdb", (CELLS[0], 2.0), (CELLS[1], 0.25), (rows.asked("toy-256"), 1.0))
    visit = overview(path)
    words = words_of(visit)
    assert f"Your machine against an {DEVICE}" in words
    assert (
        f"your machine is 1.41× slower than {DEVICE} (geometric mean of 2 comparable cells): 1 faster, 1 slower, "
        "0 undecided."
    ) in words
    table = visit.rows["card-reference-pairs"]
    ratios = dict(zip(table["Cell"], table["A / B (×)"], strict=True))
    assert {name.split(" · ")[0]: ratio for name, ratio in ratios.items()} == {
        "toy-64": pytest.approx(0.25, rel=1e-3),
        "toy-128": pytest.approx(2.0, rel=1e-3),
    }
    assert list(table["Verdict"]) == ["slower", "faster"]
    assert all(low < ratio < high for low, ratio, high in zip(
        table["Low (×)"], table["A / B (×)"], table["High (×)"], strict=True
    ))  # fmt: skip
    assert "9 measured cells from 1 run on 1 machine" in words, "the reference is not counted anywhere"
    assert "that come with Stepscope, not of your machine" not in words


@pytest.mark.soak
def test_the_filters_of_the_page_apply(tmp_path: Path) -> None:
    path = own(tmp_path / "r.duckdb", (CELLS[0], 2.0), (CELLS[2], 1.0))
    assert f"is 4.00× slower than {DEVICE} (1 comparable cell)" in words_of(overview(path, precision=["fp32"]))
    assert f"is 2.00× slower than {DEVICE} (1 comparable cell)" in words_of(overview(path, precision=["bf16"]))


@pytest.mark.soak
def test_without_a_shared_cell_a_command_to_measure_some_is_shown(tmp_path: Path) -> None:
    """It measures the smallest shape of the reference in its plain precision."""
    words = words_of(overview(own(tmp_path / "r.duckdb", (rows.asked("toy-256"), 1.0))))
    assert "No cell here has the shape and the settings of one of the reference rows" in words
    command = re.search(r"Cells that have: (python -m runner sweep [^A-Z]+) Coverage", words)
    assert command
    assert command[1] == (
        "python -m runner sweep --experiment benchmark --sizes toy-64 --contexts 128 --modes train "
        "--precisions fp32 --max-steps 200 --max-seconds 10"
    )


@pytest.mark.soak
def test_there_is_no_card_for_the_reference_itself_or_without_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own(tmp_path / "r.duckdb", (CELLS[0], 2.0))
    monkeypatch.setenv("STEPSCOPE_REFERENCE", "")
    assert "Your machine against" not in words_of(overview(path))


@pytest.mark.soak
def test_a_damaged_reference_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pack_reference(tmp_path / "broken/gpu")
    (broken / "timings.parquet").write_bytes(b"PAR1 and nothing more")
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(broken))
    words = words_of(overview(own(tmp_path / "r.duckdb", (CELLS[0], 2.0))))
    assert words.count("The reference rows cannot be opened") == 1
    assert "3 measured cells" in words
