"""Figures of datasheets: found by torch's device names, without sparsity, with a source, and mutually consistent."""

import pytest

from runner.analysis.costs.hardware import DATASHEETS, datasheet, peak_bandwidth, peak_flops


def test_published_figures() -> None:
    """H100 SXM: 1,979 TFLOP/s in bf16 and 989 in TF32 are printed with sparsity. A100: 312 is printed without it."""
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 1979e12 / 2
    assert peak_flops("NVIDIA H100 80GB HBM3", "tf32") == 989e12 / 2
    assert peak_flops("NVIDIA A100-SXM4-80GB", "fp16") == 312e12
    assert peak_flops("NVIDIA GeForce RTX 4090", "fp32") == pytest.approx(82.6e12)
    assert peak_bandwidth("NVIDIA H200") == 4.8e12


def test_names_with_and_without_the_vendor() -> None:
    assert datasheet("A100-SXM4-40GB") == datasheet("NVIDIA A100-SXM4-40GB") is not None
    assert peak_flops("Tesla V100-SXM2-16GB", "fp16") == 125e12


@pytest.mark.parametrize(
    "name", ["", "AMD EPYC 9354", "NVIDIA A10G", "NVIDIA H100", "NVIDIA GeForce RTX 4090 Laptop GPU"]
)
def test_an_unlisted_device_is_unknown(name: str) -> None:
    assert datasheet(name) is None
    assert peak_flops(name, "bf16") is None
    assert peak_bandwidth(name) is None


def test_a_precision_that_a_gpu_lacks_is_unknown() -> None:
    assert peak_flops("Tesla T4", "bf16") is None
    assert peak_flops("Tesla V100-PCIE-32GB", "tf32") is None
    assert peak_flops("NVIDIA L4", "int8") is None


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
