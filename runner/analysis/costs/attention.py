"""Predicts what single-head attention costs from its shape: FLOPs, and the bytes of its tensors.

    >>> forward_flops(cell)           # cell: runner.schema.AttentionCell
    >>> peak_breakdown(cell)              # the tensors alive at the peak, each with its formula and bytes

B problems of S queries, keys and values, d wide. FLOPs by FlashAttention's convention: 4 B S² d forward, 2.5 times that
backward, half of both if causal (Dao 2023, "FlashAttention-2", section 4.1: the forward pass is two matrix products of
2 B S² d each, the backward pass five). Bytes follow from the lifetime of each tensor (`tensors`).

The bytes of eager `naive` and `sdpa-math` equal the allocations of PyTorch 2.13 on a CPU, without the scratch of the
matrix-product library, and those of 2.11 on an H200. Fused cells agree on the H200 to a few KiB, because CUDA rounds
each tensor up to 512 bytes. Compiled cells are estimates (the compiler decides what to keep), and so is the peak of
fused ones on a CPU, whose scratch is left out.

On CUDA (`device`) the list also has cuBLAS's workspaces, whose size depends on the device's name (`gpu`); a product
that softmax's backward writes to memory; fused kernels' float32 sums of the queries' gradient; the mask of `flex` in
blocks.
"""

from dataclasses import dataclass

from runner.analysis.costs.steps import FLOAT_BYTES, UNFUSED, Device, size_of, workspace_bytes
from runner.schema import AttentionCell

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
#: The least number of queries and keys in one block of FlexAttention's mask, and the most blocks in a row of it.
FLEX_BLOCK, MAX_FLEX_BLOCKS = 128, 1024

#: `between` is after the forward pass and before the backward pass.
_NAIVE = (
    "scores", "scale", "mask", "masked", "softmax", "output", "between",
    "d probabilities", "d softmax", "d mask", "d scale", "d inputs", "d keys",
)  # fmt: skip
_MATH = (
    "inputs", "mask", "scores", "softmax", "rows", "halve", "output", "halve output", "between",
    "d output", "d probabilities", "d softmax", "d inputs",
)  # fmt: skip
_FEW = ("output", "between", "d probabilities", "d inputs")


@dataclass(frozen=True, kw_only=True)
class AttentionTensor:
    """One tensor of an iteration: its size, its first and its last moment, and whether it is saved."""

    tensor: str
    formula: str
    size: int
    first: int
    last: int
    is_saved: bool


def flex_block(seq_len: int) -> int:
    """Returns the number of queries and keys in one block of FlexAttention's mask: PyTorch's 128, doubled until a row
    has at most 1,024 blocks, because the lists of blocks grow with the square of their number."""
    block = FLEX_BLOCK
    while seq_len > block * MAX_FLEX_BLOCKS:
        block *= 2
    return block


def tensors(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> list[AttentionTensor]:
    """Returns every tensor of one iteration in the order of allocation. Which are saved follows PyTorch's derivative
    formulas: a product saves its factors, softmax its result, masked_fill its mask."""
    make, is_unfused = _TensorMaker(cell, device=device), cell.implementation in UNFUSED
    written_out = _naive if cell.implementation == "naive" else _math
    listed = (_fused if not is_unfused else _compiled if cell.backend == "compiled" else written_out)(make)
    both = f"2 × {workspace_bytes(gpu):,} bytes"  # of the main thread and of autograd's
    workspaces = make.tensor("workspaces of cuBLAS", both, make.start, when=make.on_cuda and is_unfused)
    return [item for item in (workspaces, *listed) if item]


def moments(cell: AttentionCell) -> tuple[str, ...]:
    """Returns the names of the moments of one iteration, in order."""
    if cell.implementation not in UNFUSED or cell.backend == "compiled":
        return _FEW
    return _NAIVE if cell.implementation == "naive" else _MATH


class _TensorMaker:
    """Makes the tensors of one cell, None where the cell has none such (`when`). Each is alive from one named moment to
    another, or to the end."""

    def __init__(self, cell: AttentionCell, *, device: Device) -> None:
        self.cell, self.moments, self.on_cuda = cell, moments(cell), device == "cuda"
        self.bytes, self.start = ELEMENT_BYTES[cell.precision], self.moments[0]
        self.block = flex_block(cell.seq_len)
        blocks = -(-cell.seq_len // self.block)
        self.numbers = {"B": cell.batch, "S": cell.seq_len, "S²": cell.seq_len**2, "d": cell.d_head,
                        f"S/{self.block}": blocks, f"(S/{self.block})²": blocks**2}  # fmt: skip

    def tensor(
        self, name: str, formula: str, *life: str, saved: bool = False, when: bool = True
    ) -> AttentionTensor | None:
        """Returns a tensor whose size is `formula`, a product of B, S, d and numbers as shown: `B × S² × 4 bytes`."""
        if not when:
            return None
        size = size_of(formula, self.numbers)
        first = self.moments.index(life[0])
        last = self.moments.index(life[1]) if len(life) > 1 else len(self.moments) - 1
        return AttentionTensor(tensor=name, formula=formula, size=size, first=first, last=last, is_saved=saved)

    def vector(self, name: str, *life: str, wide: bool = False, **how: bool) -> AttentionTensor | None:
        """Returns a tensor of the shape of the queries, in float32 if `wide`."""
        return self.tensor(name, f"B × S × d × {FLOAT_BYTES if wide else self.bytes} bytes", *life, **how)

    def square(self, name: str, *life: str, wide: bool = False, **how: bool) -> AttentionTensor | None:
        """Returns a tensor of the shape of the scores, in float32 if `wide`."""
        return self.tensor(name, f"B × S² × {FLOAT_BYTES if wide else self.bytes} bytes", *life, **how)

    def input_tensors(self, *saved: str) -> list[AttentionTensor | None]:
        """Returns the tensors that exist throughout the iteration."""
        return [
            *(self.vector(name, self.start, saved=name in saved) for name in ("queries", "keys", "values")),
            self.vector("gradient of the output", self.start),
        ]


#: What CUDA's softmax backward writes to memory: the product of the output and its gradient
#: (softmax_backward_cuda_out).
_PRODUCT = "probabilities × their gradient"


def _naive(make: _TensorMaker) -> list[AttentionTensor | None]:
    """Returns the tensors of `runner.models.attention.naive`, line by line, and of the backward pass of each line."""
    causal = make.cell.causal
    return [
        *make.input_tensors("queries", "keys", "values"),
        make.square("scores", "scores", "scale"),
        make.tensor("root of d", "8 bytes", "scale", "d scale", when=not make.on_cuda),
        make.square("scaled scores", "scale", "masked" if causal else "output"),
        make.tensor("mask", "S² × 1 byte", "mask", "output", when=causal),
        make.tensor("inverted mask", "S² × 1 byte", "mask", "d mask", saved=True, when=causal),
        make.square("masked scores", "masked", "output", when=causal),
        make.square("probabilities", "softmax", "d softmax", saved=True),
        make.vector("output", "output"),
        make.vector("gradient of the values", "d probabilities"),
        make.square("gradient of the probabilities", "d probabilities", "d softmax"),
        make.square("gradient of softmax's input", "d softmax", "d mask" if causal else "d scale"),
        make.square(_PRODUCT, "d softmax", "d softmax", when=make.on_cuda),
        make.square("gradient of the scaled scores", "d mask", "d scale", when=causal),
        make.square("gradient of the scores", "d scale", "d inputs"),
        make.vector("gradient of the queries", "d inputs"),
        make.vector("gradient of the keys, transposed", "d inputs"),
        make.vector("gradient of the keys", "d keys"),
    ]


def _math(make: _TensorMaker) -> list[AttentionTensor | None]:
    """Returns the tensors of _scaled_dot_product_attention_math. It computes half precision in float32, scales queries
    and keys by the root of the scale each, adds the causal mask as numbers, and looks for rows of -inf alone."""
    half, causal = make.bytes < FLOAT_BYTES, make.cell.causal
    return [
        *make.input_tensors(*(() if half else ("values",))),
        make.vector("queries in float32", "inputs", "halve output", wide=True, when=half),
        make.vector("keys in float32", "inputs", "halve output", wide=True, when=half),
        make.vector("values in float32", "inputs", "d probabilities", saved=True, wide=True, when=half),
        make.vector("scaled queries", "mask", "d inputs", saved=True, wide=True),
        make.tensor("mask", "S² × 1 byte", "mask", "mask", when=causal),
        make.tensor("mask as numbers", "S² × 4 bytes", "mask", "halve output", when=causal),
        make.vector("scaled keys", "scores", "d inputs", saved=True, wide=True),
        make.square("scores", "scores", "rows", wide=True),
        make.square("probabilities", "softmax", "d softmax", saved=True, wide=True),
        make.tensor("which scores are -inf", "B × S² × 1 byte", "rows", "rows"),
        make.tensor("which rows are all -inf", "B × S × 1 byte", "rows", "rows"),
        make.tensor("zero", "4 bytes", "rows", "rows"),
        make.square("probabilities in half precision", "halve", "halve output", when=half),
        make.vector("output in float32", "output", "halve output", wide=True, when=half),
        make.vector("gradient of the output in float32", "d output", "d probabilities", wide=True, when=half),
        make.vector("output", "halve output" if half else "output"),
        make.vector("gradient of the values", "d probabilities", wide=True),
        make.square("gradient of the probabilities", "d probabilities", "d softmax", wide=True),
        make.square("gradient of the scores", "d softmax", "d inputs", wide=True),
        make.square(_PRODUCT, "d softmax", "d softmax", wide=True, when=make.on_cuda),
        make.vector("gradient of the scaled queries", "d inputs", wide=True),
        make.vector("gradient of the scaled keys", "d inputs", wide=True),
    ]


def _compiled(make: _TensorMaker) -> list[AttentionTensor | None]:
    """Returns the tensors of compiled attention. The compiler keeps probabilities and mask, and overwrites squares."""
    has_mask = make.cell.causal and make.cell.implementation == "naive"
    return [
        *make.input_tensors("queries", "keys", "values"),
        make.tensor("mask", "S² × 1 byte", "output", "d probabilities", saved=True, when=has_mask),
        make.square("probabilities", "output", "d probabilities", saved=True),
        make.vector("output", "output"),
        make.vector("gradient of the values", "d probabilities"),
        make.square("gradient of the scores", "d probabilities", "d inputs"),
        make.vector("gradient of the queries", "d inputs"),
        make.vector("gradient of the keys", "d inputs"),
    ]


def _fused(make: _TensorMaker) -> list[AttentionTensor | None]:
    """Returns the tensors of fused attention. CUDA's kernels keep besides the state of dropout's random numbers, or for
    `flex` the blocks that the mask shows. Their backward pass has the product of output and gradient, one number a row,
    and the float32 sums of the queries' gradient, at least as wide as the kernel's tile; `flex` has no sums."""
    cell, block, cuda = make.cell, make.block, make.on_cuda
    flex, state = cell.implementation == "flex", 24 if cell.implementation == "sdpa-flash" else 16
    shown = cuda and flex and cell.causal
    tile = {"sdpa-flash": 32, "sdpa-efficient": 64}.get(cell.implementation, 0)
    sums = f"B × S × {'d' if cell.d_head >= tile else tile} × 4 bytes"
    return [
        *make.input_tensors("queries", "keys", "values"),
        make.tensor("random state", f"{state} bytes", "output", saved=True, when=cuda and not flex),
        make.tensor("block shown: all", "16 bytes", "output", saved=True, when=cuda and flex and not cell.causal),
        make.tensor("blocks shown: how many", f"4 × S/{block} × 4 bytes", make.start, saved=True, when=shown),
        make.tensor("blocks shown: which", f"4 × (S/{block})² × 4 bytes", make.start, saved=True, when=shown),
        make.vector("output", "output", saved=True),
        make.tensor("log-sum-exp of each row", "B × S × 4 bytes", "output", saved=True),
        make.tensor("output × its gradient, row by row", "B × S × 4 bytes", "d inputs", when=cuda),
        make.tensor("gradient of the queries in float32", sums, "d inputs", when=cuda and not flex),
        *(make.vector(f"gradient of the {name}", "d inputs") for name in ("queries", "keys", "values")),
    ]


def forward_flops(cell: AttentionCell) -> int:
    """Returns the FLOPs of the products of queries with keys and of probabilities with values."""
    return 4 * cell.batch * cell.seq_len**2 * cell.d_head // (2 if cell.causal else 1)


def backward_flops(cell: AttentionCell) -> int:
    """Returns the FLOPs of the backward pass, which has five products where forward has two."""
    return forward_flops(cell) * 5 // 2


def forward_bytes(cell: AttentionCell) -> int:
    """Returns the least bytes that any implementation moves: queries, keys, values and output pass once."""
    return 4 * cell.batch * cell.seq_len * cell.d_head * ELEMENT_BYTES[cell.precision]


def square_bytes(cell: AttentionCell) -> int:
    """Returns the bytes of one S×S tensor of all problems, in the cell's precision."""
    return cell.batch * cell.seq_len**2 * ELEMENT_BYTES[cell.precision]


def saved_bytes(cell: AttentionCell, *, device: Device = "cpu") -> int:
    """Returns the bytes that autograd keeps for the backward pass, each once, as saved_tensors_hooks sees them."""
    return sum(item.size for item in tensors(cell, device=device) if item.is_saved)


def predicted_peak_bytes(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> int:
    """Returns the most bytes alive at once in one iteration, after the gradients of the iteration before were freed."""
    return sum(size for _, _, size in peak_breakdown(cell, device=device, gpu=gpu))


def predicted_reserved_bytes(cell: AttentionCell, *, gpu: str = "") -> int:
    """Returns an estimate of the bytes that CUDA's caching allocator reserves for one iteration of a long sequence: the
    peak, and for unfused attention one square more than is ever alive, because a freed square in which a mask was
    placed no longer has room for another. Within 2% of an H200's count at 16,384 tokens, 12% in fp32 but for naive."""
    peak = predicted_peak_bytes(cell, device="cuda", gpu=gpu)
    return peak + (square_bytes(cell) if cell.implementation in UNFUSED else 0)


def peak_breakdown(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> list[tuple[str, str, int]]:
    """Returns (tensor, formula, bytes) of every tensor alive at the peak. Their sum is the predicted peak."""
    held = tensors(cell, device=device, gpu=gpu)
    alive = [[item for item in held if item.first <= at <= item.last] for at in range(len(moments(cell)))]
    return [(item.tensor, item.formula, item.size) for item in max(alive, key=lambda one: sum(it.size for it in one))]
