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


@dataclass(frozen=True)
class Datasheet:
    """One GPU's figures, in the units of its document; `source` is the document's title."""

    fp32_tflops: float | None
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    bandwidth_gb_per_s: float | None
    source: str


_V100 = "NVIDIA V100 Tensor Core GPU datasheet"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_BLACKWELL_PRO = "NVIDIA RTX Blackwell PRO GPU Architecture whitepaper"
#: By torch's device name, without the leading "NVIDIA": TFLOP/s in fp32, TF32, bf16 and fp16, and GB/s.
DATASHEETS: Mapping[str, Datasheet] = {
    "Tesla V100-SXM2-16GB": Datasheet(15.7, None, None, 125, 900, _V100),
    "Tesla V100-SXM2-32GB": Datasheet(15.7, None, None, 125, 900, _V100),
    "Tesla V100-PCIE-16GB": Datasheet(14, None, None, 112, 900, _V100),
    "Tesla V100-PCIE-32GB": Datasheet(14, None, None, 112, 900, _V100),
    # NVIDIA's documents disagree on the bandwidth of the T4 (300 and 320 GB/s).
    "Tesla T4": Datasheet(8.1, None, None, 65, None, "NVIDIA T4 Tensor Core GPU datasheet"),
    "A10": Datasheet(31.2, 62.5, 125, 125, 600, "NVIDIA A10 Tensor Core GPU datasheet"),
    "A100-PCIE-40GB": Datasheet(19.5, 156, 312, 312, 1555, _A100),
    "A100-SXM4-40GB": Datasheet(19.5, 156, 312, 312, 1555, _A100),
    "A100 80GB PCIe": Datasheet(19.5, 156, 312, 312, 1935, _A100),
    "A100-SXM4-80GB": Datasheet(19.5, 156, 312, 312, 2039, _A100),
    "L4": Datasheet(30.3, 60, 121, 121, 300, "NVIDIA L4 Tensor Core GPU datasheet"),
    "L40S": Datasheet(91.6, 183, 362.05, 362.05, 864, "NVIDIA L40S GPU datasheet"),
    "H100 PCIe": Datasheet(51, 378, 756.5, 756.5, 2000, _H100),
    "H100 80GB HBM3": Datasheet(67, 494.5, 989.5, 989.5, 3350, _H100),
    "H200": Datasheet(67, 494.5, 989.5, 989.5, 4800, "NVIDIA H200 Tensor Core GPU datasheet"),
    # Its fp32 and TF32 rates are printed for systems of eight only, rounded in different ways.
    "B200": Datasheet(None, None, 2250, 2250, 8000, "NVIDIA DGX B200 datasheet, an eighth of the system"),
    "GeForce RTX 3090": Datasheet(35.6, 35.6, 71, 71, 936, "NVIDIA Ampere GA102 GPU Architecture whitepaper"),
    "GeForce RTX 4090": Datasheet(82.6, 82.6, 165.2, 165.2, 1008, "NVIDIA Ada GPU Architecture whitepaper"),
    "GeForce RTX 5090": Datasheet(104.8, 104.8, 209.5, 209.5, 1792, "NVIDIA RTX Blackwell GPU Architecture whitepaper"),
    "RTX PRO 6000 Blackwell Workstation Edition": Datasheet(126, 251.9, 503.8, 503.8, 1792, _BLACKWELL_PRO),
}


def datasheet(device_name: str) -> Datasheet | None:
    """Returns the figures of the GPU of this name, None for one that is not listed. An A10G is not an A10."""
    return DATASHEETS.get(device_name.strip().removeprefix("NVIDIA "))


@lru_cache(maxsize=1024)
def peak_flops(device_name: str, precision: str) -> float | None:
    """Returns the dense peak of matrix products in FLOP/s, None where it is unknown or the GPU lacks the precision."""
    tflops: float | None = getattr(datasheet(device_name), f"{precision}_tflops", None)
    return None if tflops is None else tflops * 1e12


def peak_bandwidth(device_name: str) -> float | None:
    """Returns the datasheet's bandwidth of the device memory in bytes/s, None where no figure is known."""
    sheet = datasheet(device_name)
    return None if sheet is None or sheet.bandwidth_gb_per_s is None else sheet.bandwidth_gb_per_s * 1e9
