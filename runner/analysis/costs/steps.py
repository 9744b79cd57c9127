"""Predicts what a step costs from the model's shape: parameters, matrix-product FLOPs, bytes.

    >>> step_flops(cell)                    # cell: runner.schema.StepCell
    >>> predict_peak(cell).total          # and its parts: parameters, gradients, optimizer state, activations, ...

Letters: B batch, T context, d model width, f feed-forward width, L layers, H heads, V vocabulary, N = B T tokens.
FLOPs count matrix products only (a multiply and an add are two), so softmax, norms and the optimizer cost nothing here.
The model is runner/models/transformer.py, run eagerly; activations are in activations.py.
"""

from dataclasses import dataclass

from runner.analysis.costs.activations import TOKEN_BYTES, Device, checkpoint_groups, rotary_bytes, weight_bytes
from runner.analysis.costs.activations import logits_bytes as logits_bytes
from runner.analysis.costs.allocator import workspace_bytes
from runner.analysis.costs.moments import PeakBytes as PeakBytes
from runner.analysis.costs.moments import backward_moments, forward_moments
from runner.schema import ModelCell

#: AdamW keeps two moments of each parameter, in the parameter's dtype.
ADAMW_MOMENTS = 2
#: The bytes of AdamW's step counter, of which each parameter tensor has one, and the number of parameter tensors.
STEP_BYTES, TENSORS_IN_BLOCK, TENSORS_OUTSIDE = 4, 9, 3


def matrix_parameters(cell: ModelCell) -> int:
    """Returns the number of weights in matrix products: L (4 d^2 + 3 d f) + V d. The embedding is looked up, and the
    norms' gains scale, so neither counts."""
    d = cell.shape.d_model
    return cell.shape.layers * (4 * d * d + 3 * d * cell.shape.d_ff) + cell.shape.vocabulary * d


def parameter_count(cell: ModelCell) -> int:
    """Returns the number of trainable parameters: 2 V d + L (4 d^2 + 3 d f + 2 d) + d."""
    return (
        matrix_parameters(cell)
        + cell.shape.vocabulary * cell.shape.d_model
        + (2 * cell.shape.layers + 1) * cell.shape.d_model
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Matrix-product FLOPs of one forward pass by kind of layer, summed over all layers."""

    projections: int
    attention: int
    feed_forward: int
    head: int

    @property
    def total(self) -> int:
        return self.projections + self.attention + self.feed_forward + self.head


def forward_flops(cell: ModelCell) -> Flops:
    """Returns the FLOPs of one forward pass. A product of (m, k) and (k, n) takes 2 m n k; attention is two such
    products, 4 B H T^2 (d / H) in all.

    The whole square of scores counts, although half of it is masked: `naive` computes all of it, and a rate in FLOP/s
    means the same for every implementation. A fused causal kernel that skips the masked half may therefore exceed its
    peak. Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", appendix."""
    tokens, d = cell.batch * cell.context, cell.shape.d_model
    return Flops(
        projections=cell.shape.layers * 2 * tokens * 4 * d * d,
        attention=cell.shape.layers * 4 * tokens * cell.context * d,
        feed_forward=cell.shape.layers * 2 * tokens * 3 * d * cell.shape.d_ff,
        head=2 * tokens * d * cell.shape.vocabulary,
    )


def recomputed_flops(cell: ModelCell) -> int:
    """Returns the FLOPs that checkpointing adds: every block's forward pass once more, less one down projection for
    each group of blocks.

    PyTorch ends the second forward pass as soon as the last tensor that backward needs exists, which is before the
    group's last product."""
    if not cell.checkpoint_blocks:
        return 0
    forward = forward_flops(cell)
    down_projection = 2 * cell.batch * cell.context * cell.shape.d_model * cell.shape.d_ff
    return forward.total - forward.head - checkpoint_groups(cell) * down_projection


def step_flops(cell: ModelCell) -> int:
    """Returns the FLOPs of one step in the cell's mode. Backward takes twice as many as forward, because each product y
    = x w needs one for dx and one for dw.

    The scores that a fused attention backward computes again are not counted, nor is the optimizer."""
    forward = forward_flops(cell).total
    if cell.mode in ("inference", "forward"):
        return forward
    return 3 * forward + recomputed_flops(cell)


def parameter_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the parameters in their own dtype. Autocast's copies of them count as activations."""
    return parameter_count(cell) * weight_bytes(cell)


def gradient_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the gradients, which have the parameters' dtype."""
    return parameter_bytes(cell)


def optimizer_state_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's two moments (Loshchilov and Hutter 2019) from its first step on; 0 in modes without
    an optimizer."""
    return ADAMW_MOMENTS * parameter_bytes(cell) if cell.mode == "train" else 0


def predict_peak(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> PeakBytes:
    """Returns the peak of a step that is not the first of its process, which is the greatest of a few moments. `gpu` is
    the device's name, which decides the size of cuBLAS's workspace.

    During backward, activations are freed as gradients appear, block by block, so their sum is greatest at the start or
    at the end. Logits live until the step ends; gradients are freed between steps. Left out are the allocator's
    rounding and fragmentation, scratch of oneDNN and of fused kernels, the CUDA context (hundreds of MB, outside the
    allocator), and all that a compiler saves."""
    held = PeakBytes(
        moment="forward",
        parameters=parameter_bytes(cell),
        optimizer_state=optimizer_state_bytes(cell),
        inputs=2 * cell.batch * cell.context * TOKEN_BYTES + rotary_bytes(cell),
        workspace=_workspace_bytes(cell, device, gpu),
    )
    moments = forward_moments(cell, device, held)
    if cell.mode in ("backward", "train"):
        ending = optimizer_temporary_bytes(cell) if cell.mode == "train" else 0
        moments += backward_moments(cell, device, held, ending=ending)
    return max(moments, key=lambda moment: moment.total)


def _workspace_bytes(cell: ModelCell, device: Device, gpu: str) -> int:
    """Returns the bytes of cuBLAS's workspaces, one for each thread that runs products, of which autograd has a second.
    AdamW's step counters (4 bytes a parameter tensor) are on the CPU unless it is fused."""
    counters = STEP_BYTES * (TENSORS_IN_BLOCK * cell.shape.layers + TENSORS_OUTSIDE) if cell.mode == "train" else 0
    if device != "cuda":
        return counters
    threads = 1 if cell.mode in ("inference", "forward") else 2
    return threads * workspace_bytes(gpu) + (counters if cell.optimizer == "fused" else 0)


def optimizer_temporary_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's denominator: that of all parameters at once (foreach), none because it stays in
    registers (fused), or that of one parameter with its root, its quotient and the previous parameter's (for-loop)."""
    largest = max(cell.shape.vocabulary, cell.shape.d_ff, cell.shape.d_model) * cell.shape.d_model * weight_bytes(cell)
    return {"foreach": parameter_bytes(cell), "for-loop": 3 * largest, "fused": 0}[cell.optimizer]


def predicted_peak_bytes(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> int:
    """Returns `predict_peak(cell).total`, in bytes."""
    return predict_peak(cell, device=device, gpu=gpu).total
