"""Sentences that pages share, from ratios that are known."""

import pytest

from pages.ui.answers import count_certain
from runner.analysis.statistics import Ratio

FASTER, SLOWER = Ratio(ratio=2.0, low=1.9, high=2.1, decided=True), Ratio(ratio=0.5, low=0.4, high=0.6, decided=True)
OPEN = Ratio(ratio=1.5, low=0.9, high=2.5)


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([FASTER, FASTER], "all are significantly faster"),
        ([OPEN, OPEN], "none is significantly faster or slower"),
        ([FASTER, SLOWER, OPEN], "1 is significantly faster, 1 slower, 1 undecided"),
        ([FASTER, FASTER, OPEN], "2 are significantly faster, 0 slower, 1 undecided"),
    ],
)
def test_how_many_ratios_are_certain(ratios: list[Ratio], words: str) -> None:
    assert count_certain(ratios) == words
