"""Formats of numbers, and the sums of a thousand hundredths in them, compared with NumPy's bit by bit."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from runner.job import Measurement
from runner.measure.numerics import measure_accumulation, spacing
from runner.schema import AccumulationCell, FloatName, PartialSumRow
from tests.command import make_job

NUMPY: dict[str, Any] = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
#: Four ways to add a thousand hundredths, and the sums that follow from the assignment's text.
SUMS = [("fp32", "fp32", False, 10.0001335), ("fp16", "fp16", False, 9.953125),
        ("fp32", "fp16", False, 10.0021362), ("fp32", "fp16", True, 10.0021362)]  # fmt: skip


def measured(asked: AccumulationCell) -> Measurement:
    return measure_accumulation(make_job(asked), lambda doing: None)


@pytest.mark.parametrize("value", [1.0, 0.01, 9.953125, 10.0, 2047.0, 6e-5, 3e-8, 0.0])
def test_spacing_equals_numpys(value: float) -> None:
    names: tuple[FloatName, ...] = ("fp16", "fp32", "fp64")
    for name in names:
        kind = NUMPY[name]
        assert spacing(float(kind(value)), name) == float(np.spacing(kind(value))), name
    bf16 = torch.tensor(value, dtype=torch.bfloat16)
    above = torch.nextafter(bf16, torch.tensor(math.inf, dtype=torch.bfloat16))
    assert spacing(bf16.item(), "bf16") == (above - bf16).item()


@pytest.mark.parametrize(("accumulator", "addend", "upcast", "expected"), SUMS)
def test_the_four_sums_bit_by_bit(accumulator: FloatName, addend: FloatName, upcast: bool, expected: float) -> None:
    values = measured(AccumulationCell(accumulator=accumulator, addend=addend, upcast=upcast)).values
    held, total, slip = NUMPY[addend](0.01), NUMPY[accumulator](0), None
    for count in range(1, 1001):
        before, total = total, NUMPY[accumulator](total + NUMPY[accumulator](held))
        if slip is None and abs(float(total) - float(before) - float(held)) > 0.1 * float(held):
            slip = count
    assert values["total"] == float(total)
    assert f"{values['total']:.9g}" == f"{expected:.9g}"
    assert values["rounded_value"] == float(held)
    assert values["spacing"] == float(np.spacing(total))
    assert values["last_increment"] == float(total) - float(before)
    assert values["slips_at"] == slip
    assert values["error"] == values["total"] - 10.0


def test_fp16_sums_drift_where_its_numbers_are_too_far_apart() -> None:
    """From 4 on, numbers are 1/256 apart: nearest to 0.0100021 is 3/256, a sixth too much. Near 10 it is 1/128."""
    found = measured(AccumulationCell(accumulator="fp16", addend="fp16"))
    partial = {row.addend: row for row in found.details["partial_sums"] if isinstance(row, PartialSumRow)}
    slips_at = found.values["slips_at"]
    assert 4.0 <= partial[slips_at].total < 4.0 + 2 / 128
    assert partial[slips_at].spacing == 1 / 256
    assert found.values["last_increment"] == found.values["spacing"] == 1 / 128
    assert 100 <= len(partial) <= 102
    assert max(partial) == 1000
    assert partial[1000].total == 9.953125
