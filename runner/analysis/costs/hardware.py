"""Gives the figures of a GPU's datasheet: matrix rate by precision and memory bandwidth. Their memory is in gpus.csv.

    >>> peak_flops("NVIDIA H100 80GB HBM3", "bf16")
    989500000000000.0

GPUs are looked up by the name that torch.cuda.get_device_name gives, with or without its leading "NVIDIA". Rates are
dense: where a document prints only the rate "with sparsity", half of it is stored. Half precision is the rate with
float32 accumulation, which is how PyTorch multiplies. Only figures that a named NVIDIA document states are listed;
the others are None. Rates hold at the boost clock that the document assumes: a card that clocks higher can exceed
them by some percent, a power-limited one stays well below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """One GPU's figures, in the units of its document; `source` is the document's title."""

    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    bandwidth_gb_per_s: float | None = None
    source: str


def _v100(*, fp32: float, fp16: float) -> Datasheet:
    return Datasheet(
        fp32_tflops=fp32,
        fp16_tflops=fp16,
        bandwidth_gb_per_s=900,
        source="NVIDIA V100 Tensor Core GPU datasheet",
    )


def _a100(*, bandwidth: float) -> Datasheet:
    return Datasheet(
        fp32_tflops=19.5,
        tf32_tflops=156,
        bf16_tflops=312,
        fp16_tflops=312,
        bandwidth_gb_per_s=bandwidth,
        source="NVIDIA A100 Tensor Core GPU datasheet",
    )


#: By torch's device name, without the leading "NVIDIA".
DATASHEETS: Mapping[str, Datasheet] = {
    "Tesla V100-SXM2-16GB": _v100(fp32=15.7, fp16=125),
    "Tesla V100-SXM2-32GB": _v100(fp32=15.7, fp16=125),
    "Tesla V100-PCIE-16GB": _v100(fp32=14, fp16=112),
    "Tesla V100-PCIE-32GB": _v100(fp32=14, fp16=112),
    # NVIDIA's documents disagree on the bandwidth of the T4 (300 and 320 GB/s).
    "Tesla T4": Datasheet(fp32_tflops=8.1, fp16_tflops=65, source="NVIDIA T4 Tensor Core GPU datasheet"),
    "A10": Datasheet(
        fp32_tflops=31.2,
        tf32_tflops=62.5,
        bf16_tflops=125,
        fp16_tflops=125,
        bandwidth_gb_per_s=600,
        source="NVIDIA A10 Tensor Core GPU datasheet",
    ),
    "A100-PCIE-40GB": _a100(bandwidth=1555),
    "A100-SXM4-40GB": _a100(bandwidth=1555),
    "A100 80GB PCIe": _a100(bandwidth=1935),
    "A100-SXM4-80GB": _a100(bandwidth=2039),
    "L4": Datasheet(
        fp32_tflops=30.3,
        tf32_tflops=60,
        bf16_tflops=121,
        fp16_tflops=121,
        bandwidth_gb_per_s=300,
        source="NVIDIA L4 Tensor Core GPU datasheet",
    ),
    "L40S": Datasheet(
        fp32_tflops=91.6,
        tf32_tflops=183,
        bf16_tflops=362.05,
        fp16_tflops=362.05,
        bandwidth_gb_per_s=864,
        source="NVIDIA L40S GPU datasheet",
    ),
    "H100 PCIe": Datasheet(
        fp32_tflops=51,
        tf32_tflops=378,
        bf16_tflops=756.5,
        fp16_tflops=756.5,
        bandwidth_gb_per_s=2000,
        source="NVIDIA H100 Tensor Core GPU datasheet",
    ),
    "H100 80GB HBM3": Datasheet(
        fp32_tflops=67,
        tf32_tflops=494.5,
        bf16_tflops=989.5,
        fp16_tflops=989.5,
        bandwidth_gb_per_s=3350,
        source="NVIDIA H100 Tensor Core GPU datasheet",
    ),
    "H200": Datasheet(
        fp32_tflops=67,
        tf32_tflops=494.5,
        bf16_tflops=989.5,
        fp16_tflops=989.5,
        bandwidth_gb_per_s=4800,
        source="NVIDIA H200 Tensor Core GPU datasheet",
    ),
    # Its fp32 and TF32 rates are printed for systems of eight only, rounded in different ways.
    "B200": Datasheet(
        bf16_tflops=2250,
        fp16_tflops=2250,
        bandwidth_gb_per_s=8000,
        source="NVIDIA DGX B200 datasheet, an eighth of the system",
    ),
    "GeForce RTX 3090": Datasheet(
        fp32_tflops=35.6,
        tf32_tflops=35.6,
        bf16_tflops=71,
        fp16_tflops=71,
        bandwidth_gb_per_s=936,
        source="NVIDIA Ampere GA102 GPU Architecture whitepaper",
    ),
    "GeForce RTX 4090": Datasheet(
        fp32_tflops=82.6,
        tf32_tflops=82.6,
        bf16_tflops=165.2,
        fp16_tflops=165.2,
        bandwidth_gb_per_s=1008,
        source="NVIDIA Ada GPU Architecture whitepaper",
    ),
    "GeForce RTX 5090": Datasheet(
        fp32_tflops=104.8,
        tf32_tflops=104.8,
        bf16_tflops=209.5,
        fp16_tflops=209.5,
        bandwidth_gb_per_s=1792,
        source="NVIDIA RTX Blackwell GPU Architecture whitepaper",
    ),
    "RTX PRO 6000 Blackwell Workstation Edition": Datasheet(
        fp32_tflops=126,
        tf32_tflops=251.9,
        bf16_tflops=503.8,
        fp16_tflops=503.8,
        bandwidth_gb_per_s=1792,
        source="NVIDIA RTX Blackwell PRO GPU Architecture whitepaper",
    ),
}


def datasheet(device_name: str) -> Datasheet | None:
    """Returns the figures of the GPU of this name, None for one that is not listed. An A10G is not an A10."""
    return DATASHEETS.get(device_name.strip().removeprefix("NVIDIA "))


@lru_cache(maxsize=1024)
def peak_flops(device_name: str, precision: str) -> float | None:
    """Returns the dense peak rate of matrix products in FLOP/s, None where no figure is known or the GPU lacks the
    precision."""
    sheet = datasheet(device_name)
    if sheet is None:
        return None
    tflops = {
        "fp32": sheet.fp32_tflops,
        "tf32": sheet.tf32_tflops,
        "bf16": sheet.bf16_tflops,
        "fp16": sheet.fp16_tflops,
    }.get(precision)
    return None if tflops is None else tflops * 1e12


def peak_bandwidth(device_name: str) -> float | None:
    """Returns the datasheet's bandwidth of the device memory in bytes/s, None where no figure is known."""
    sheet = datasheet(device_name)
    return None if sheet is None or sheet.bandwidth_gb_per_s is None else sheet.bandwidth_gb_per_s * 1e9
