"""How long a sweep will take: computed by hand, equal on every page and in the terminal, and learned from rows."""

from pathlib import Path

import pytest

from runner.engines.local import LocalEngine
from runner.schema import MemoryCell, Row, TimingRow
from runner.store.read.runs import load_progress
from runner.sweep.prepare import CEILING_SECONDS, FAMILIAR_S, Forecast, Prepared, prepare
from runner.sweep.start import sweep
from tests.command import TINY, parsed, rows, tiny
from tests.runner.sweep.test_spread import Watched
from tests.synthetic.rows import TOYS

MEMORY = MemoryCell(**TOYS["toy-64"], context=16, mode="train", precision="fp32")


def test_forecasts_are_corrected_by_measured_times_of_the_cell_and_its_kind() -> None:
    forecast = Forecast([(tiny(), 2.0, 9.0), (tiny(), 2.0, 11.0), (tiny(), 2.0, 30.0)])
    assert forecast.seconds(tiny(), predicted=2.0) == 11.0
    # 50 s where 6 were predicted: all are off by (50 + 5) / (6 + 5) = 5, this kind by (50 + 5 * 5) / (6 + 5)
    assert FAMILIAR_S == 5.0
    assert forecast.seconds(tiny(context=32), predicted=2.0) == pytest.approx(2.0 * 75 / 11)
    assert forecast.seconds(MEMORY, predicted=1.0) == pytest.approx((5.0 * 5) / 5)
    assert Forecast().seconds(tiny(), predicted=2.0) == 2.0


def test_measured_times_scale_the_rest_of_a_sweep_and_compiling_is_another_kind() -> None:
    forecast, compiled = Forecast(), tiny(backend="compiled")
    assert forecast.left(tiny(), 3.0) == 3.0
    forecast.learn(compiled, predicted=10.0, measured=40.0)
    assert forecast.left(compiled, 1.0) == pytest.approx((40 + 5) / 15)
    assert forecast.left(tiny(), 1.0) == 1.0, "compiled cells say nothing about others"
    forecast.learn(tiny(), predicted=10.0, measured=40.0)
    every = (40 + 5) / (10 + 5)
    assert forecast.left(compiled, 1.0) == pytest.approx((40 + 5 * every) / 15)
    assert forecast.left(MEMORY, 1.0) == pytest.approx(every), "nothing is known about this kind alone"


class Listener(Watched):
    """Records what the terminal is told, and the time that a page would show at that moment (s)."""

    def __init__(self, db: Path) -> None:
        super().__init__()
        self.db, self.left, self.prepared = db, list[tuple[float, float | None]](), list[Prepared]()
        self.first_s = 0.0

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self.prepared.append(prepared)
        self.first_s = left_s

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        found = load_progress(self.db)
        self.left.append((left_s, found[0].seconds_left if found else None))


@pytest.mark.soak
def test_page_and_terminal_agree_and_the_next_forecast_uses_the_rows(db: Path) -> None:
    request, settings = parsed(*TINY, "--contexts", "8,16,24", "--db", str(db), "--fresh")
    listener = Listener(db)
    assert sweep(request, settings, watcher=listener) == 0
    assert len(listener.left) == 3
    for terminal, page in listener.left[:-1]:
        assert page == pytest.approx(terminal)
    assert listener.left[-1][0] == pytest.approx(CEILING_SECONDS["cpu"]), "the ceilings at its end are not measured yet"
    (first,) = listener.prepared
    assert first.seconds == pytest.approx(sum(item.predicted.seconds for item in first.cells) + 2 * 1.5)
    assert listener.first_s == first.seconds
    again = prepare(request, settings, LocalEngine())
    taken = {row["cell_key"]: row["cell_seconds"] for row in rows(db, "SELECT cell_key, cell_seconds FROM steps")}
    assert {item.cell.key: item.predicted.seconds for item in again.cells} == pytest.approx(taken)


@pytest.mark.soak
def test_page_and_terminal_agree_about_further_rounds(db: Path) -> None:
    """Before the first of five cells, the forecast contains the time of the three timed cells four times more."""
    request, settings = parsed(*TINY, "--rounds", "auto", "--contexts", "8,16,24", "--db", str(db), "--no-ceilings")
    listener = Listener(db)
    assert sweep(request, settings, watcher=listener) == 0
    (first,) = listener.prepared
    seconds = {item.cell.key: item.predicted.seconds for item in first.cells}
    assert len(first.cells) == 5
    planned = sum(item.predicted.seconds for item in first.cells)
    assert listener.first_s == pytest.approx(planned + 4 * sum(seconds.values()))
    assert len(listener.left) > 5
    pairs = [(terminal, page) for terminal, page in listener.left if page is not None]
    assert len(pairs) >= 4, "except for the last cell of a round, when the page waits for the next"
    assert all(page == pytest.approx(terminal) for terminal, page in pairs)
