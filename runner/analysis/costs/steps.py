"""Predicts what a step costs from the model's shape: parameters, matrix-product FLOPs, and bytes: those kept for the
backward pass, those that live only for a moment, and the peak.

    >>> step_flops(cell)                    # cell: runner.schema.StepCell
    >>> predict_peak(cell).total          # and its parts: parameters, gradients, optimizer state, activations, ...
    >>> saved_bytes(cell).total
    >>> retained_bytes(cell)                    # with the cell's checkpointing
    >>> block_tensors(cell)[0].formula
    'N × d × 4 bytes'

Letters: B batch, T context, d model width, f feed-forward width, L layers, H heads, V vocabulary, N = B T tokens.
FLOPs count matrix products only (a multiply and an add are two), so softmax, norms and the optimizer cost nothing here.
Bytes are those of runner/models/transformer.py run eagerly, operator by operator; a compiled model fuses, and keeps
less. Sources: the derivative formulas of PyTorch's operators, and Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models", section 4, for the way of counting. The peak is the greatest of the moments
at which memory can peak, each with its parts (`forward_moments`, `backward_moments`).

cuBLAS's workspaces are those of PyTorch's aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize);
CUBLAS_WORKSPACE_CONFIG is not read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal

from runner.schema import ModelCell

KIB, MIB = 2**10, 2**20
#: The size of cuBLAS's workspace: `:4096:2:16:8` in its notation, KiB and count; 32 MiB on compute capability 9.0.
WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * KIB
HOPPER_WORKSPACE_BYTES = 32 * MIB
_HOPPER = ("H100", "H200", "H800", "H20", "GH200")
#: The bytes that CUDA takes outside of the allocator, for its context and loaded kernels: the driver's count less the
#: reserved bytes, in a forward pass on an H200 (torch 2.11, CUDA 13.0).
CONTEXT_BYTES = 720_175_104


def workspace_bytes(gpu: str) -> int:
    """Returns the bytes of cuBLAS's workspace for one thread, by the device's name. Hopper's is larger."""
    return HOPPER_WORKSPACE_BYTES if set(_HOPPER) & set(gpu.split()) else WORKSPACE_BYTES


#: The name of autocast's copy of a weight.
_COPY = "weight copy"


@dataclass(frozen=True, kw_only=True)
class PredictedTensor:
    """A predicted tensor: its name, the module that keeps it, its size as a formula and in bytes."""

    tensor: str
    formula: str
    size: int
    module: str

    @property
    def is_weight_copy(self) -> bool:
        return self.tensor == _COPY


def size_of(formula: str, numbers: Mapping[str, int]) -> int:
    """Returns the value of a product as it is shown: letters, and numbers with or without commas, joined by ` × `."""
    size = 1
    for factor in formula.removesuffix("s").removesuffix(" byte").split(" × "):
        size *= numbers[factor] if factor in numbers else int(factor.replace(",", ""))
    return size


Device = Literal["cuda", "cpu", "mps"]

TOKEN_BYTES = 8
FLOAT_BYTES = 4


def is_autocast(cell: ModelCell) -> bool:
    """Returns whether autocast copies weights and inputs to a dtype of half the width before each product."""
    return cell.precision in ("bf16", "fp16") and cell.weights_dtype == "fp32"


#: The implementations of attention that write their B H T^2 scores to memory.
UNFUSED = ("naive", "sdpa-math")


def weight_bytes(cell: ModelCell) -> int:
    """Returns the bytes of one number of a parameter, its gradient, its moments, and of the residual stream."""
    return 2 if cell.weights_dtype == "bf16" else 4


def product_bytes(cell: ModelCell) -> int:
    """Returns the bytes of one number that goes into or comes out of a matrix product."""
    return 2 if is_autocast(cell) else weight_bytes(cell)


def residual_stream_bytes(cell: ModelCell) -> int:
    """Returns the bytes of one activation of the residual stream, which has N d numbers. It is float32 under autocast
    too, because the embedding is not cast."""
    return cell.batch * cell.context * cell.shape.d_model * weight_bytes(cell)


def logits_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the model's output, N V numbers, which are in half precision under autocast."""
    return cell.batch * cell.context * cell.shape.vocabulary * product_bytes(cell)


def softmax_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns the bytes of one attention weight as softmax returns it. CUDA's autocast computes softmax in float32, the
    CPU's does not; `sdpa-math` computes everything in float32."""
    wide = cell.attention == "sdpa-math" or (is_autocast(cell) and device == "cuda")
    return FLOAT_BYTES if wide else product_bytes(cell)


def scores_bytes(cell: ModelCell, *, number_bytes: int) -> int:
    """Returns the bytes of one tensor of attention scores of one layer, B H T^2 numbers."""
    return cell.batch * cell.shape.heads * cell.context**2 * number_bytes


@dataclass(frozen=True, kw_only=True)
class SavedBytes:
    """The bytes that a forward pass keeps for backward, without parameters. `block`, and of that `feed_forward` and
    `weight_copies`, are those of one block. `inputs` are tokens and rotary tables, which exist anyway."""

    block: int
    feed_forward: int
    weight_copies: int
    outside: int
    head_copy: int
    inputs: int
    layers: int

    @property
    def total(self) -> int:
        return self.layers * self.block + self.outside + self.head_copy + self.inputs


@lru_cache(maxsize=20_000)
def saved_bytes(cell: ModelCell, *, device: Device = "cuda") -> SavedBytes:
    """Returns what autograd saves when nothing is checkpointed, with each piece of memory counted once. `total` agrees
    with torch.autograd.graph.saved_tensors_hooks to the byte on CPU, in fp32 and bf16, naive, sdpa-math and fused.

    `block_tensors` lists the tensors of a block. Outside the blocks, autograd saves the final norm's tensors, the
    head's input, autocast's copy of the head, tokens and rotary tables."""
    tokens, narrow = cell.batch * cell.context, product_bytes(cell)
    stream = tokens * cell.shape.d_model
    tensors = block_tensors(cell, device=device)
    kept = [item for item in tensors if not item.is_weight_copy]
    return SavedBytes(
        block=sum(item.size for item in tensors),
        feed_forward=sum(item.size for item in kept if item.module.split(".")[0] == "feed_forward"),
        weight_copies=sum(item.size for item in tensors if item.is_weight_copy),
        outside=(2 * stream + tokens) * FLOAT_BYTES + stream * narrow,
        head_copy=cell.shape.vocabulary * cell.shape.d_model * narrow if is_autocast(cell) else 0,
        inputs=tokens * TOKEN_BYTES + rotary_bytes(cell),
        layers=cell.shape.layers,
    )


def rotary_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the cosine and sine of every position and channel of a head, in float32."""
    return 2 * cell.context * (cell.shape.d_model // cell.shape.heads) * FLOAT_BYTES


def block_tensors(cell: ModelCell, *, device: Device = "cuda") -> list[PredictedTensor]:
    """Returns every tensor that one block keeps for backward, in the order of saving.

    A norm keeps float32 for inputs of any dtype. Autocast adds a half-width copy of every matrix, and copies an input
    once for each product that reads it. On CUDA it computes softmax in float32 and casts the weights down again, so
    both are kept; on a CPU softmax stays in half precision. `sdpa-math` computes half precision in float32
    throughout."""
    narrow, copies, softmax = product_bytes(cell), is_autocast(cell), softmax_bytes(cell, device=device)
    numbers = {"N": cell.batch * cell.context, "B": cell.batch, "T": cell.context, "T²": cell.context**2,
               "d": cell.shape.d_model, "f": cell.shape.d_ff, "H": cell.shape.heads}  # fmt: skip

    def tensor(module: str, name: str, formula: str) -> PredictedTensor:
        return PredictedTensor(tensor=name, formula=formula, size=size_of(formula, numbers), module=module)

    def vector(name: str, number_bytes: int) -> PredictedTensor:
        return tensor("attention", name, f"N × d × {number_bytes} bytes")

    def square(name: str, number_bytes: int) -> PredictedTensor:
        return tensor("attention", name, f"B × H × T² × {number_bytes} bytes")

    def norm(module: str) -> list[PredictedTensor]:
        wide = f"N × d × {FLOAT_BYTES} bytes"
        inverse = tensor(module, "1 / rms", f"N × {FLOAT_BYTES} bytes")
        return [tensor(module, "input", wide), inverse, tensor(module, "normalized", wide)]

    def linear(module: str, weight: str, *, reads: bool = True, width: str = "d") -> list[PredictedTensor]:
        """Returns what a matrix product keeps: autocast's copy of its weight, and its input unless another one does."""
        made = [tensor(module, _COPY, f"{weight} × {narrow} bytes")] if copies else []
        return [*made, *([tensor(module, "input", f"N × {width} × {narrow} bytes")] if reads else [])]

    if cell.attention == "sdpa-math":
        inside = [vector("scaled keys", softmax), vector("scaled queries", softmax), square("probabilities", softmax),
                  vector("values", softmax)]  # fmt: skip
    elif cell.attention == "naive":
        cast_down = [square("probabilities in half precision", narrow)] if softmax != narrow else []
        mask = tensor("attention", "mask", "T² × 1 byte")
        inside = [vector("keys", narrow), vector("queries", narrow), mask, square("probabilities", softmax),
                  vector("values", narrow), *cast_down]  # fmt: skip
    else:
        # CUDA's only fused kernel in float32 writes its output token by token, as the next product reads it.
        wide = cell.attention == "sdpa" and device == "cuda" and narrow == FLOAT_BYTES
        is_read = wide or cell.attention == "sdpa-efficient"
        sums = tensor("attention", "log-sum-exp of each row", f"B × H × T × {FLOAT_BYTES} bytes")
        names = ("queries", "keys", "values", *(() if is_read else ("output",)))
        inside = [*(vector(name, narrow) for name in names), sums]
    return [
        *norm("attention_norm"),
        *linear("attention.query", "d × d"),
        *linear("attention.key", "d × d", reads=copies),
        *linear("attention.value", "d × d", reads=copies),
        *inside,
        *linear("attention.output", "d × d"),
        *norm("feed_forward_norm"),
        *linear("feed_forward.gate", "d × f"),
        tensor("feed_forward", "gate", f"N × f × {narrow} bytes"),
        *linear("feed_forward.up", "d × f", reads=copies),
        tensor("feed_forward", "silu(gate)", f"N × f × {narrow} bytes"),
        tensor("feed_forward", "up", f"N × f × {narrow} bytes"),
        *linear("feed_forward.down", "d × f", width="f"),
    ]


def checkpoint_groups(cell: ModelCell) -> int:
    """Returns the number of groups into which checkpointing divides the blocks; the last may be smaller. The cell must
    have checkpoint_blocks > 0."""
    return math.ceil(cell.shape.layers / cell.checkpoint_blocks)


def checkpointed_stream_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the residual stream at the start of each group of checkpointed blocks. The cell must have
    checkpoint_blocks > 0."""
    return checkpoint_groups(cell) * residual_stream_bytes(cell)


def retained_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns the bytes held for backward at the end of the forward pass: all that autograd saves or, with
    checkpointing, the residual stream at the start of each group of blocks and tensors outside the blocks. Autocast's
    copies of a checkpointed block's weights are freed when autocast ends; its rotary tables are not saved."""
    saved = saved_bytes(cell, device=device)
    if not cell.checkpoint_blocks:
        return saved.total
    return retained_activation_bytes(cell, device=device) + saved.head_copy + saved.inputs - rotary_bytes(cell)


def unsaved_attention_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns the most bytes that a block's attention holds when nothing is saved: its normalized input, q, k, v, q and
    k after RoPE, the output, and for `naive` a contiguous v, scores, weights and the mask. The residual stream is not
    counted."""
    stream, narrow = cell.batch * cell.context * cell.shape.d_model, product_bytes(cell)
    attention = residual_stream_bytes(cell) + 6 * stream * narrow
    if cell.attention in UNFUSED:
        softmax = softmax_bytes(cell, device=device)
        cast = softmax if softmax != narrow else 0
        attention += stream * narrow + scores_bytes(cell, number_bytes=narrow + softmax + cast) + cell.context**2
    return attention


#: The moments at which a step's memory can peak. `last block` and `first block` are moments of the backward pass, which
#: begins with the last block; `end` is the end of backward or, in train, the optimizer.
Moment = Literal["forward", "loss", "last block", "first block", "end"]


@dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """The bytes held at one moment, in the parts of a measured peak's breakdown. `temporaries` are logits, and what the
    loss, a block's backward pass or the optimizer needs for a moment."""

    moment: Moment
    parameters: int
    optimizer_state: int
    inputs: int
    workspace: int
    gradients: int = 0
    activations: int = 0
    autocast_copies: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "moment"}


def forward_moments(cell: ModelCell, device: Device, held: PeakBytes) -> list[PeakBytes]:
    """Returns the moments of the forward pass: the logits and, in the last block, the largest of attention and of
    SwiGLU. Autocast makes each copy of a weight when it is needed, and keeps all until the forward pass ends."""
    saved, stream = saved_bytes(cell, device=device), residual_stream_bytes(cell)
    logits, inference = logits_bytes(cell), cell.mode == "inference"
    copies = saved.layers * saved.weight_copies + saved.head_copy
    kept = 0 if inference else retained_activation_bytes(cell, device=device)
    # The head's product reads what nothing keeps: under autocast, the final norm's output before the cast.
    head = stream if is_autocast(cell) else 0
    if not inference and not cell.checkpoint_blocks:
        # `naive` holds masked scores while softmax reads them, when SwiGLU's activations do not exist yet.
        scores = scores_bytes(cell, number_bytes=softmax_bytes(cell, device=device)) if cell.attention in UNFUSED else 0
        temporaries = max(logits + head, scores - saved.feed_forward)
        return [replace(held, activations=kept, autocast_copies=copies, temporaries=temporaries)]
    d, inner, tokens, narrow = cell.shape.d_model, cell.shape.d_ff, cell.batch * cell.context, product_bytes(cell)
    if inference:  # the head reads the stream and its norm, under autocast in half precision, too
        head = 2 * stream + (tokens * d * narrow if copies else 0)
    # Streams that exist when the last block begins and its group saves nothing: the one at the start of each group and,
    # within the last group, the latest. In inference all blocks are one group.
    together = cell.checkpoint_blocks or cell.shape.layers
    groups = math.ceil(cell.shape.layers / together)
    streams, found = (groups + (cell.shape.layers - (groups - 1) * together > 1)) * stream, []
    for needed, to_come in (  # in the block, and the weights that are not multiplied yet
        (unsaved_attention_bytes(cell, device=device), d * d + 3 * d * inner),
        (2 * stream + 3 * tokens * inner * narrow, d * inner),  # stream, its normalized copy, three inner activations
    ):
        made = copies - saved.head_copy - to_come * narrow if copies else 0
        activations, temporaries = (0, needed + streams) if inference else (streams, needed)
        found.append(replace(held, autocast_copies=made, activations=activations, temporaries=temporaries))
    return [*found, replace(held, autocast_copies=copies, activations=kept, temporaries=logits + head)]


def retained_activation_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns `retained_bytes` without autocast's copies of weights and without the inputs."""
    saved = saved_bytes(cell, device=device)
    if cell.checkpoint_blocks:
        return checkpointed_stream_bytes(cell) + saved.outside
    return saved.layers * (saved.block - saved.weight_copies) + saved.outside


def backward_moments(cell: ModelCell, device: Device, held: PeakBytes, *, ending: int) -> list[PeakBytes]:
    """Returns the moments of backward: that of the loss, that of the last block, which comes first, that of the first
    block, and the end of the step, where the optimizer needs `ending` temporary bytes."""
    saved = saved_bytes(cell, device=device)
    kept, block = retained_activation_bytes(cell, device=device), saved.block - saved.weight_copies
    gradients, table = held.parameters, cell.shape.vocabulary * cell.shape.d_model * weight_bytes(cell)
    norm = cell.shape.d_model * weight_bytes(cell)
    in_block = (gradients - 2 * table - norm) // cell.shape.layers
    # Blocks whose tensors exist when the last block's backward begins, and when the first group's does.
    together, copied = min(cell.checkpoint_blocks or 1, cell.shape.layers), saved.layers * saved.weight_copies
    before_last, streams = cell.shape.layers - 1, 0
    if cell.checkpoint_blocks:
        copied = 0
        before_last = cell.shape.layers - (checkpoint_groups(cell) - 1) * together - 1
        streams = checkpointed_stream_bytes(cell) - residual_stream_bytes(cell)

    def within(moment: Moment, *, blocks: int, streams: int, gradients: int) -> list[PeakBytes]:
        beside = replace(held, moment=moment, gradients=gradients, activations=streams + blocks * block,
                         autocast_copies=blocks * saved.weight_copies)  # fmt: skip
        return _block_moments(cell, device, beside)

    # Cross-entropy holds log-softmax, its gradient and the logits' gradient (N V numbers each), in float32 under
    # autocast. On CUDA under autocast the logits and their gradient are kept in their own dtype (measured on an H200).
    number_bytes, logits = FLOAT_BYTES if is_autocast(cell) else product_bytes(cell), logits_bytes(cell)
    log_softmax = cell.batch * cell.context * cell.shape.vocabulary * number_bytes
    lasting, needed = log_softmax, logits + 2 * log_softmax
    if device == "cuda" and is_autocast(cell):
        lasting = needed = log_softmax + logits
    return [
        replace(held, moment="loss", activations=kept + lasting, autocast_copies=copied + saved.head_copy,
                temporaries=needed),
        *within("last block", blocks=before_last, streams=streams, gradients=table + norm),
        *within("first block", blocks=together - 1, streams=0, gradients=gradients - table - together * in_block),
        replace(held, moment="end", gradients=gradients, temporaries=logits + ending),
    ]  # fmt: skip


def _block_moments(cell: ModelCell, device: Device, beside: PeakBytes) -> list[PeakBytes]:
    """Returns the moments of a block's backward pass: SwiGLU's, when the gradient of one matrix exists, and an unfused
    softmax's, when those of four matrices and of a norm exist. `beside` has the parts outside of that block."""
    d, inner, width = cell.shape.d_model, cell.shape.d_ff, weight_bytes(cell)
    # Of one number of a token, as wide as it goes into a product.
    narrow, stream = cell.batch * cell.context * product_bytes(cell), residual_stream_bytes(cell)

    def moment(needing: tuple[str, str], *, gradients: int, temporaries: int) -> PeakBytes:
        # Backward goes from the last tensor to the first, so those saved no later than the needed one still exist.
        kept = block_tensors(cell, device=device)
        kept = kept[: 1 + next(place for place, item in enumerate(kept) if (item.module, item.tensor) == needing)]
        copies = sum(item.size for item in kept if item.is_weight_copy)
        return replace(
            beside,
            gradients=beside.gradients + gradients,
            activations=beside.activations + sum(item.size for item in kept) - copies,
            autocast_copies=beside.autocast_copies + copies,
            temporaries=logits_bytes(cell) + temporaries,
        )

    # The gradients of three inner activations, and that of the residual stream.
    temporaries = stream + 3 * inner * narrow
    found = [moment(("feed_forward", "up"), gradients=d * inner * width, temporaries=temporaries)]
    if cell.attention in UNFUSED:
        # Those of softmax's output and input, of the values and of the residual stream. CUDA also writes the product of
        # the output and its gradient to memory (softmax_backward_cuda_out).
        square = scores_bytes(cell, number_bytes=softmax_bytes(cell, device=device))
        temporaries = (3 if device == "cuda" else 2) * square + stream + d * narrow
        done = (3 * d * inner + d * d + d) * width
        found.append(moment(("attention", "probabilities"), gradients=done, temporaries=temporaries))
    return found


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
    """Returns the bytes of the parameters in their own dtype, which is that of their gradients, too. Autocast's copies
    count as activations."""
    return parameter_count(cell) * weight_bytes(cell)


def optimizer_state_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's two moments (Loshchilov and Hutter 2019) after its first step; 0 in other modes."""
    return ADAMW_MOMENTS * parameter_bytes(cell) if cell.mode == "train" else 0


def predict_peak(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> PeakBytes:
    """Returns the peak of a step that is not the first of its process, which is the greatest of a few moments. `gpu` is
    the device's name, which decides the size of cuBLAS's workspace.

    During backward, activations are freed as gradients appear, block by block, so their sum is greatest at the start or
    at the end. Logits live until the step ends; gradients are freed between steps. Left out are the allocator's
    rounding and fragmentation, scratch of oneDNN and of fused kernels, the CUDA context (hundreds of MB, outside the
    allocator), and all that a compiler saves."""
    # AdamW's step counters are on the CPU unless it is fused. cuBLAS has a workspace for each thread that runs
    # products, of which autograd has a second.
    counters = STEP_BYTES * (TENSORS_IN_BLOCK * cell.shape.layers + TENSORS_OUTSIDE) if cell.mode == "train" else 0
    workspaces = 0 if device != "cuda" else 1 if cell.mode in ("inference", "forward") else 2
    held = PeakBytes(
        moment="forward",
        parameters=parameter_bytes(cell),
        optimizer_state=optimizer_state_bytes(cell),
        inputs=2 * cell.batch * cell.context * TOKEN_BYTES + rotary_bytes(cell),
        workspace=counters * (device != "cuda" or cell.optimizer == "fused") + workspaces * workspace_bytes(gpu),
    )
    moments = forward_moments(cell, device, held)
    if cell.mode in ("backward", "train"):
        ending = optimizer_temporary_bytes(cell) if cell.mode == "train" else 0
        moments += backward_moments(cell, device, held, ending=ending)
    return max(moments, key=lambda moment: moment.total)


def optimizer_temporary_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's denominator: that of all parameters at once (foreach), none because it stays in
    registers (fused), or that of one parameter with its root, its quotient and the previous parameter's (for-loop)."""
    largest = max(cell.shape.vocabulary, cell.shape.d_ff, cell.shape.d_model) * cell.shape.d_model * weight_bytes(cell)
    return {"foreach": parameter_bytes(cell), "for-loop": 3 * largest, "fused": 0}.get(cell.optimizer, 0)


def best_checkpoint(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns how many blocks recomputed together need the least memory in forward and backward, the fewest of equal
    ones. L / k streams and k blocks' tensors are held, so that k is about √(L × stream / block), and at least 1."""
    plain, sizes = replace(cell, mode="backward"), range(1, cell.shape.layers + 1)
    return min(sizes, key=lambda k: predicted_peak_bytes(replace(plain, checkpoint_blocks=k), device=device))


def predicted_peak_bytes(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> int:
    """Returns `predict_peak(cell).total`, in bytes."""
    return predict_peak(cell, device=device, gpu=gpu).total
