"""New rows are drawn at once for one reader; with many, only after the last ones have been drawn for all."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pages.ui import pace
from pages.ui.pace import MAX_HELD_S, choose_shown_state, drawing
from runner.store.database import fingerprint
from tests.synthetic import rows


class Clock:
    """The time, and the processor time of the thread, both in seconds."""

    def __init__(self) -> None:
        self.passed, self.worked = 100.0, 0.0

    def draw(self, path: Path, reader: str, seconds: float) -> None:
        """Simulates the drawing of a page that takes this long."""
        with drawing(path, reader):
            self.worked += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    fake = SimpleNamespace(monotonic=lambda: clock.passed, thread_time=lambda: clock.worked)
    monkeypatch.setattr(pace, "time", fake)
    monkeypatch.setattr(pace, "_shown", {})
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return rows.store(tmp_path / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])


def change(path: Path, number: int) -> str:
    """Changes the state of the file and returns the new one."""
    os.utime(path, ns=(number, number))
    return fingerprint(path)


def test_one_reader_sees_every_state_at_once(path: Path, clock: Clock) -> None:
    assert choose_shown_state(path) == fingerprint(path)
    for number in range(1, 4):
        clock.draw(path, "a", 20.0)
        state = change(path, number)
        assert choose_shown_state(path) == state


def test_with_two_readers_the_next_state_waits_for_twice_the_drawing_time(path: Path, clock: Clock) -> None:
    choose_shown_state(path)
    clock.draw(path, "a", 1.0)
    clock.draw(path, "b", 2.0)
    second = change(path, 1)
    assert choose_shown_state(path) == second, "the first state was not delayed"
    clock.draw(path, "a", 0.25)
    clock.draw(path, "b", 0.25)
    third = change(path, 2)
    clock.passed += 5.99
    assert choose_shown_state(path) == second
    clock.passed += 0.01
    assert choose_shown_state(path) == third, "it waits for 2 × (1 + 2) seconds"
    fourth = change(path, 3)
    clock.passed += 1.0
    assert choose_shown_state(path) == fourth, "it waits for 2 × (0.25 + 0.25) seconds"


def test_no_state_is_delayed_for_long(path: Path, clock: Clock) -> None:
    choose_shown_state(path)
    for reader in "ab":
        clock.draw(path, reader, 60.0)
    second = change(path, 1)
    assert choose_shown_state(path) == second
    third = change(path, 2)
    clock.passed += MAX_HELD_S - 1
    assert choose_shown_state(path) == second
    clock.passed += 1
    assert choose_shown_state(path) == third
