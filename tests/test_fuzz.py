"""The reader of `tests.fuzz` gives each request its own answer, even after an interruption or other output."""

import signal
from contextlib import closing
from types import FrameType

import pytest

from tests.fuzz import Reader

#: Counts as many rows as each line names, slowly enough for DuckDB to draw its progress on standard output.
COUNT = """
import duckdb, sys
con = duckdb.connect()
con.execute("SET enable_progress_bar = true; SET progress_bar_time = 1")
for line in sys.stdin:
    print(con.execute("SELECT count(*) FROM range(%d) WHERE hash(range) >= 0" % int(line)).fetchone()[0], flush=True)
"""
#: Interrupts the process that asked before it answers.
INTERRUPT = """
import os, signal, sys
for line in sys.stdin:
    if line == "interrupt\\n":
        os.kill(os.getppid(), signal.SIGUSR1)
    print(line, end="", flush=True)
"""


class Interrupted(Exception):
    pass


def test_duckdbs_progress_bar_is_not_taken_for_an_answer() -> None:
    with closing(Reader(COUNT)) as reader:
        for rows in (20_000_000, 20_000_001, 20_000_002):
            assert reader.ask(b"%d\n" % rows).stdout == b"%d\n" % rows


@pytest.mark.soak
def test_an_interrupted_request_leaves_no_answer_behind() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with closing(Reader(INTERRUPT)) as reader:
            with pytest.raises(Interrupted):
                reader.ask(b"interrupt\n")
            assert reader.ask(b"next\n").stdout == b"next\n"
    finally:
        signal.signal(signal.SIGUSR1, before)
