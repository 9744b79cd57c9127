"""The names of the cells in a comparison."""

from typing import Any

from pages.ui.pairs import name_pairs
from runner.analysis.compare.pairs import LeftOut
from runner.analysis.compare.verdict import Side, SideResult, Verdict
from runner.schema import StepCell, new_id
from runner.schema.sizes import SIZES


def left_out(size: str, **values: Any) -> LeftOut[SideResult]:
    asked: dict[str, Any] = {**SIZES[size].numbers, "mode": "train", "precision": "fp32", **values}
    cell = StepCell(**asked)
    return LeftOut(
        named=SideResult(cell=cell, run_id=new_id(), cell_id=new_id(), status="oom"), kind="failed", reason="oom"
    )


def test_lengths_have_thousands_separators_and_editions_do_not() -> None:
    a, b = (Side(kind="label", value=label, title=label) for label in ("before", "after"))
    verdict = Verdict(table="steps", sides=(a, b), phase="step", pairs=(), left_out=())
    shown = [left_out("xl@2025", context=2048), left_out("small", context=512)]
    assert name_pairs(verdict, shown) == ("train · fp32 · eager", ["xl@2025 · 2,048", "small · 512"])
