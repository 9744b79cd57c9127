"""Sentences that pages share, from ratios that are known."""

import pytest

from pages.ui.answers import count_certain, describe_speedup
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


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([FASTER], "bf16 is **2.00× faster** than fp32 (95% interval 1.90–2.10×; one pair)."),
        ([SLOWER], "bf16 is **2.00× slower** than fp32 (95% interval 0.400–0.600×; one pair)."),
        (
            [OPEN],
            "Whether bf16 is faster than fp32 is **undecided**: 1.50× faster "
            "(95% interval 0.900–2.50×; one pair, not significant).",
        ),
        (
            [OPEN, OPEN],
            "Whether bf16 is faster than fp32 is **undecided**: 1.50× faster "
            "(geometric mean of 2 pairs, 1.50× to 1.50×); none is significantly faster or slower.",
        ),
    ],
)
def test_a_speedup_that_no_pair_shows_is_undecided(ratios: list[Ratio], words: str) -> None:
    assert describe_speedup(ratios, start="bf16 is", end="than fp32") == words
