"""What `--rounds auto` measures in real sweeps, and when."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from runner.sweep import rounds
from tests.command import TINY, awaited, ended, rows, run, start
from tests.synthetic.stored import read

#: Three cells of three samples each: too few for an interval, so that each of them certainly gets a second round.
AUTO = (*TINY, "--rounds", "auto", "--contexts", "8,16,24")


@pytest.fixture(scope="module", autouse=True)
def _brief() -> Iterator[None]:
    """Gives the further rounds of these small sweeps 1 s instead of two minutes."""
    with patch.object(rounds, "SHORT_SECONDS", 1.0):
        yield


@pytest.fixture(scope="module")
def db(module_db: Path) -> Path:
    """Returns the file after the sweep `AUTO`."""
    done = run("sweep", *AUTO, db=module_db, code=0)
    assert "preset laptop · 5 cells" in done.stdout, "3 rounds of the canary and 1 of each other cell"
    assert "One more round of " in done.stdout
    return module_db


def measured(db: Path) -> list[tuple[int, int]]:
    return read(db, "SELECT context, round FROM steps ORDER BY cell_id")


@pytest.mark.soak
def test_undecided_cells_get_further_rounds_between_those_of_the_canary(db: Path) -> None:
    found = measured(db)
    assert (found[0], found[4]) == ((8, 0), (8, 2)), "the canary is first and last in the plan"
    assert sorted(found[:5]) == [(8, 0), (8, 1), (8, 2), (16, 0), (24, 0)]
    assert found[-1][0] == 8, "the canary is first and last in the sweep"
    counts = Counter(context for context, _ in found)
    assert set(found) == {(context, number) for context, count in counts.items() for number in range(count)}
    assert len(found) == len(set(found))
    assert 2 <= min(counts[16], counts[24]) <= max(counts[16], counts[24]) <= 15
    assert rows(db, "SELECT count(DISTINCT run_id) AS runs FROM steps") == [{"runs": 1}]
    assert rows(db, "FROM plan") == []


def test_a_sweep_of_one_round_is_continued_under_its_run(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    assert run("sweep", *AUTO, "--rounds", "1", db=path).returncode == 0
    assert "5 cells, 3 of them measured before" in run("sweep", *AUTO, db=path).stdout
    assert sorted(measured(path))[:3] == [(8, 0), (8, 1), (8, 2)]
    assert rows(path, "SELECT count(*) AS runs FROM runs") == [{"runs": 1}]


@pytest.mark.soak
def test_a_sweep_interrupted_in_its_further_rounds_continues_them(tmp_path: Path) -> None:
    """Warm-up makes its cells long enough for the signal to arrive in time."""
    path, words = tmp_path / "results.duckdb", (*AUTO, "--warmup", "200")
    process = start("sweep", *words, db=path)
    awaited(process, lambda: rows(path, "FROM plan WHERE position > 4") if path.exists() else [])
    process.send_signal(signal.SIGINT)
    assert "Interrupted" in ended(process)
    kept = measured(path)
    assert len(kept) >= 5
    assert rows(path, "SELECT count(*) AS cells FROM plan")[0]["cells"] > 5, "the plan still shows the added rounds"
    assert "The budget ran out with" in run("sweep", *words, "--budget", "0.000001s", db=path, code=0).stdout
    assert measured(path) == kept
    run("sweep", *words, db=path, code=0)
    found = measured(path)
    assert found[: len(kept)] == kept
    assert len(found) == len(set(found)) > len(kept)
    assert rows(path, "SELECT count(*) AS runs FROM runs") == [{"runs": 1}]
    assert "Nothing to measure" in run("sweep", *words, db=path).stdout


def test_a_dry_run_says_how_long_further_rounds_may_take(tmp_path: Path) -> None:
    done = run("sweep", *AUTO, "--dry-run", db=tmp_path / "r.duckdb")
    assert "5 cells" in done.stdout
    assert "of further rounds, until intervals are within ±1%" in done.stdout
    assert "further" not in run("sweep", *AUTO, "--rounds", "2", "--dry-run", db=tmp_path / "r.duckdb").stdout
