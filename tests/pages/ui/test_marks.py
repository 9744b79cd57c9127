"""Columns of tables from ratios that are known."""

from pages.ui.marks import speedup_columns
from runner.analysis.statistics import Ratio


def test_a_ratio_of_undisturbed_times_stands_beside_them() -> None:
    plain = {"Speedup (×)": 2.0, "Low (×)": 1.9, "High (×)": 2.1}
    assert speedup_columns(Ratio(ratio=2.0, low=1.9, high=2.1)) == plain
    beside = {"Baseline undisturbed (ms)": 8.0, "Variant undisturbed (ms)": 4.0}
    assert speedup_columns(Ratio(ratio=2.0, low=1.9, high=2.1, undisturbed=(8.0, 4.0))) == plain | beside
    assert set(speedup_columns(None).values()) == {None}
