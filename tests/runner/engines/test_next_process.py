"""In a sweep the process of the next cell waits while the last one ends, and costs no cell and no result."""

import os
import resource
from collections.abc import Iterator

import psutil
import pytest

from runner.engines.local import LocalEngine, open_places
from tests.command import gone, tiny
from tests.runner.engines.test_engine import below, measure


@pytest.fixture
def sweeping() -> Iterator[LocalEngine]:
    """Yields an engine as a sweep has it, and restores the environment that it changes for its workers."""
    before = dict(os.environ)
    with open_places([], compiles=False) as (place,):
        yield place
    assert gone(below())
    os.environ.clear()
    os.environ.update(before)


def test_the_process_of_the_next_cell_starts_as_the_last_one_ends(sweeping: LocalEngine) -> None:
    assert measure(sweeping, tiny()).status == "ok"
    (waiting,) = below()
    seen: set[int] = set()
    assert measure(sweeping, tiny(), beat=lambda doing: seen.update(child.pid for child in below())).status == "ok"
    assert seen == {waiting.pid}, "one process at a time, which had started before"
    assert waiting.pid not in {child.pid for child in below()}, "a process measures one cell"
    sweeping.end()
    assert gone(below())


def test_a_process_that_dies_while_it_waits_costs_no_cell(sweeping: LocalEngine) -> None:
    assert measure(sweeping, tiny()).status == "ok"
    (waiting,) = below()
    waiting.kill()
    assert gone([waiting])
    assert measure(sweeping, tiny()).status == "ok"


def test_a_result_is_kept_where_the_next_process_cannot_start(sweeping: LocalEngine) -> None:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave_no_descriptor(doing: str) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds(), usual[1]))

    try:
        assert measure(sweeping, tiny(), beat=leave_no_descriptor).status == "ok"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert not below()
    assert measure(sweeping, tiny()).status == "ok"
