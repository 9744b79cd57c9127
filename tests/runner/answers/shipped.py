"""The shipped rows of an H200, read once a kind, and what SQL says of them."""

from functools import cache
from typing import Any

from runner.results.rows import Rows
from runner.store.database import open_reader
from runner.store.packing import find_file
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.command import ROOT

FOLDER = ROOT / "data/reference/h200"


@cache
def shipped(*needs: str) -> Rows:
    return read(find_file(FOLDER), Selection(), needs)


def query(sql: str) -> list[tuple[Any, ...]]:
    with open_reader(find_file(FOLDER)) as reader:
        return reader.execute(sql).fetchall()
