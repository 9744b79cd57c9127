"""Figures of datasheets: found by torch's device names, without sparsity, with a source, and mutually consistent;
and the work of an operator, from the shapes of its arguments, compared with sums done by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from runner.analysis.costs.hardware import DATASHEETS, datasheet, peak_bandwidth, peak_flops
from runner.analysis.costs.operations import CAUSAL, Arguments, flops, moved_bytes


def test_published_figures() -> None:
    """H100 SXM: 1,979 TFLOP/s in bf16 and 989 in TF32 are printed with sparsity. A100: 312 is printed without it. The
    vendor may be missing, and what a GPU lacks is unknown."""
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 1979e12 / 2
    assert peak_flops("NVIDIA H100 80GB HBM3", "tf32") == 989e12 / 2
    assert peak_flops("NVIDIA A100-SXM4-80GB", "fp16") == 312e12
    assert peak_flops("NVIDIA GeForce RTX 4090", "fp32") == pytest.approx(82.6e12)
    assert peak_bandwidth("NVIDIA H200") == 4.8e12
    assert datasheet("A100-SXM4-40GB") == datasheet("NVIDIA A100-SXM4-40GB") is not None
    assert peak_flops("Tesla V100-SXM2-16GB", "fp16") == 125e12
    for name, precision in (("Tesla T4", "bf16"), ("Tesla V100-PCIE-32GB", "tf32"), ("NVIDIA L4", "int8")):
        assert peak_flops(name, precision) is None


@pytest.mark.parametrize(
    "name", ["", "AMD EPYC 9354", "NVIDIA A10G", "NVIDIA H100", "NVIDIA GeForce RTX 4090 Laptop GPU"]
)
def test_an_unlisted_device_is_unknown(name: str) -> None:
    assert datasheet(name) is None
    assert peak_flops(name, "bf16") is None
    assert peak_bandwidth(name) is None


@pytest.mark.parametrize("name", DATASHEETS)
def test_figures_are_consistent(name: str) -> None:
    """A sparse figure among dense ones would break these ratios: half precision has at least twice TF32's rate, because
    a tensor core's rate halves when the width doubles, and the rate per byte of bandwidth is that of real GPUs."""
    sheet = DATASHEETS[name]
    assert "NVIDIA" in sheet.source
    assert not name.startswith("NVIDIA ")
    assert sheet.fp16_tflops is not None
    if sheet.bf16_tflops is not None:
        assert sheet.bf16_tflops == sheet.fp16_tflops
    if sheet.tf32_tflops is not None:
        assert sheet.fp32_tflops is not None
        assert sheet.fp16_tflops == pytest.approx(2 * sheet.tf32_tflops, rel=0.02)
        assert sheet.fp32_tflops <= sheet.tf32_tflops
    if sheet.bandwidth_gb_per_s is not None:
        assert 75 < 1e3 * sheet.fp16_tflops / sheet.bandwidth_gb_per_s < 500


@pytest.mark.parametrize("name", CAUSAL)
def test_the_argument_that_makes_attention_causal(name: str) -> None:
    for suffix, place in zip(("", "_backward"), CAUSAL[name], strict=True):
        schema = getattr(torch.ops.aten, name + suffix).default._schema
        assert schema.arguments[place].name == "is_causal"


def asked(operator: str, *arguments: tuple[Any, str], values: Sequence[Any] = ()) -> Arguments:
    shapes, dtypes = ([*part] for part in zip(*arguments, strict=True))
    values = values or [None] * len(arguments)
    return Arguments(operator=operator, shapes=shapes, dtypes=dtypes, values=values, list_bytes=2)


def test_bytes_count_inputs_and_outputs_once() -> None:
    wide, half = ([2, 3, 4], "float"), ([4], "c10::BFloat16")
    scalar: tuple[list[int], str] = ([], "Scalar")
    cases = [
        (asked("aten::mm", ([2, 3], "c10::BFloat16"), ([3, 5], "c10::BFloat16")), 2 * (6 + 15 + 10)),
        (asked("aten::addmm", ([5], "float"), ([2, 3], "float"), ([3, 5], "float")), 4 * (5 + 6 + 15 + 10)),
        (asked("aten::mul", wide, half), 24 * 4 + 4 * 2 + 24 * 4),
        (asked("aten::add_", wide, scalar), 2 * 24 * 4),
        (asked("aten::lt", wide, wide), 2 * 24 * 4 + 24),
        (asked("aten::copy_", ([8], "float"), ([8], "c10::Half")), 8 * 4 + 8 * 2),
        (asked("aten::fill_", wide, scalar), 24 * 4),
        (asked("aten::mean", wide, ([], "ScalarList"), values=[None, [-1], True, None]), 24 * 4 + 6 * 4),
        (asked("aten::sum", wide), 24 * 4 + 4),
        (asked("aten::_softmax", ([8, 8], "c10::BFloat16"), scalar, scalar, values=[None, -1, True]), 64 * 2 + 64 * 4),
        (asked("aten::_foreach_add_", ([[3], [5]], "TensorList"), ([[3], [5]], "TensorList")), 2 * (8 + 8 + 8)),
        (asked("aten::einsum", ([], ""), ([[2, 3]], "TensorList")), None),
        (asked("aten::mul", ([4], "a type of tomorrow"), scalar), None),
    ]
    for call, expected in cases:
        assert moved_bytes(call) == expected, call
    assert flops(asked("aten::mul", wide, half)) == 24
    assert flops(asked("aten::exp", wide)) is None
