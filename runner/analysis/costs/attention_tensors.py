"""Lists every tensor of one iteration of single-head attention: its formula, its bytes, and when it is alive.

    >>> tensors(cell, device="cuda", gpu="NVIDIA H200")       # cell: runner.schema.AttentionCell

The bytes of eager `naive` and `sdpa-math` equal the allocations of PyTorch 2.13 on a CPU, without the scratch of the
matrix-product library, and those of 2.11 on an H200. Fused cells agree on the H200 to a few KiB, because CUDA rounds
each tensor up to 512 bytes. Compiled cells are estimates (the compiler decides what to keep), and so is the peak of
fused ones on a CPU, whose scratch is left out.

On CUDA (`device`) the list also has cuBLAS's workspaces, whose size depends on the device's name (`gpu`); a product
that softmax's backward writes to memory; fused kernels' float32 sums of the queries' gradient; the mask of `flex` in
blocks.
"""

from dataclasses import dataclass

from runner.analysis.costs.activations import Device
from runner.analysis.costs.allocator import workspace_bytes
from runner.analysis.costs.tensors import size_of
from runner.schema import AttentionCell

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
FLOAT_BYTES = 4
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
    """One tensor of an iteration: its size, the first and the last moment in which it is alive, and whether it is
    saved."""

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


def is_unfused(cell: AttentionCell) -> bool:
    """Returns whether the S×S tensors are written to memory."""
    return cell.implementation in ("naive", "sdpa-math")


def tensors(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> list[AttentionTensor]:
    """Returns every tensor of one iteration in the order of allocation. Which are saved follows PyTorch's derivative
    formulas: a product saves its factors, softmax its result, masked_fill its mask."""
    life = _Life(cell, moments(cell), device=device)
    if not is_unfused(cell):
        return _fused(life)
    written_out = _naive if cell.implementation == "naive" else _math
    held = _compiled(life) if cell.backend == "compiled" else written_out(life)
    if device != "cuda":
        return held
    workspaces = f"2 × {workspace_bytes(gpu):,} bytes"  # of the main thread and of autograd's
    return [life.one("workspaces of cuBLAS", workspaces, life=(life.moments[0],)), *held]


def moments(cell: AttentionCell) -> tuple[str, ...]:
    """Returns the names of the moments of one iteration, in order."""
    if not is_unfused(cell) or cell.backend == "compiled":
        return _FEW
    return _NAIVE if cell.implementation == "naive" else _MATH


class _Life:
    """Makes the tensors of one cell. Each is alive from one named moment to another, or to the end."""

    def __init__(self, cell: AttentionCell, moments: tuple[str, ...], *, device: Device) -> None:
        self.cell, self.moments, self.on_cuda = cell, moments, device == "cuda"
        self.bytes = ELEMENT_BYTES[cell.precision]
        block = flex_block(cell.seq_len)
        blocks = -(-cell.seq_len // block)
        self.numbers = {"B": cell.batch, "S": cell.seq_len, "S²": cell.seq_len**2, "d": cell.d_head,
                        f"S/{block}": blocks, f"(S/{block})²": blocks**2}  # fmt: skip

    def one(self, tensor: str, formula: str, *, life: tuple[str, ...], saved: bool = False) -> AttentionTensor:
        """Returns a tensor whose size is `formula`, a product of B, S, d and numbers as it is shown: `B × S² × 4
        bytes`."""
        size = size_of(formula, self.numbers)
        first = self.moments.index(life[0])
        last = self.moments.index(life[1]) if len(life) > 1 else len(self.moments) - 1
        return AttentionTensor(tensor=tensor, formula=formula, size=size, first=first, last=last, is_saved=saved)

    def vector(self, tensor: str, *life: str, saved: bool = False, wide: bool = False) -> AttentionTensor:
        """Returns a tensor of the shape of the queries, in float32 if `wide`."""
        number = FLOAT_BYTES if wide else self.bytes
        return self.one(tensor, f"B × S × d × {number} bytes", life=life, saved=saved)

    def square(self, tensor: str, *life: str, saved: bool = False, wide: bool = False) -> AttentionTensor:
        """Returns a tensor of the shape of the scores, in float32 if `wide`."""
        number = FLOAT_BYTES if wide else self.bytes
        return self.one(tensor, f"B × S² × {number} bytes", life=life, saved=saved)

    def softmax_product(self, *, wide: bool = False) -> list[AttentionTensor]:
        """Returns the product of the output and its gradient, which CUDA's softmax backward writes to memory
        (softmax_backward_cuda_out)."""
        name = "probabilities × their gradient"
        return [self.square(name, "d softmax", "d softmax", wide=wide)] if self.on_cuda else []

    def input_tensors(self, *saved: str) -> list[AttentionTensor]:
        """Returns the tensors that exist throughout the iteration."""
        start = self.moments[0]
        return [
            *(self.vector(name, start, saved=name in saved) for name in ("queries", "keys", "values")),
            self.vector("gradient of the output", start),
        ]


def _naive(life: _Life) -> list[AttentionTensor]:
    """Returns the tensors of `runner.models.attention.naive`, line by line, and of the backward pass of each line."""
    causal = life.cell.causal
    masks = [
        life.one("mask", "S² × 1 byte", life=("mask", "output")),
        life.one("inverted mask", "S² × 1 byte", life=("mask", "d mask"), saved=True),
        life.square("masked scores", "masked", "output"),
    ]
    masks_backward = [life.square("gradient of the scaled scores", "d mask", "d scale")]
    return [
        *life.input_tensors("queries", "keys", "values"),
        life.square("scores", "scores", "scale"),
        *(() if life.on_cuda else (life.one("root of d", "8 bytes", life=("scale", "d scale")),)),
        life.square("scaled scores", "scale", "masked" if causal else "output"),
        *(masks if causal else ()),
        life.square("probabilities", "softmax", "d softmax", saved=True),
        life.vector("output", "output"),
        life.vector("gradient of the values", "d probabilities"),
        life.square("gradient of the probabilities", "d probabilities", "d softmax"),
        life.square("gradient of softmax's input", "d softmax", "d mask" if causal else "d scale"),
        *life.softmax_product(),
        *(masks_backward if causal else ()),
        life.square("gradient of the scores", "d scale", "d inputs"),
        life.vector("gradient of the queries", "d inputs"),
        life.vector("gradient of the keys, transposed", "d inputs"),
        life.vector("gradient of the keys", "d keys"),
    ]


def _math(life: _Life) -> list[AttentionTensor]:
    """Returns the tensors of PyTorch's _scaled_dot_product_attention_math. It computes half precision in float32,
    scales queries and keys by the root of the scale each, adds the causal mask as numbers, and looks for rows of -inf
    alone."""
    half = life.bytes < FLOAT_BYTES
    copies = [
        life.vector("queries in float32", "inputs", "halve output", wide=True),
        life.vector("keys in float32", "inputs", "halve output", wide=True),
        life.vector("values in float32", "inputs", "d probabilities", saved=True, wide=True),
    ]
    masks = [
        life.one("mask", "S² × 1 byte", life=("mask", "mask")),
        life.one("mask as numbers", "S² × 4 bytes", life=("mask", "halve output")),
    ]
    halves = [
        life.square("probabilities in half precision", "halve", "halve output"),
        life.vector("output in float32", "output", "halve output", wide=True),
        life.vector("gradient of the output in float32", "d output", "d probabilities", wide=True),
    ]
    return [
        *life.input_tensors(*(() if half else ("values",))),
        *(copies if half else ()),
        life.vector("scaled queries", "mask", "d inputs", saved=True, wide=True),
        *(masks if life.cell.causal else ()),
        life.vector("scaled keys", "scores", "d inputs", saved=True, wide=True),
        life.square("scores", "scores", "rows", wide=True),
        life.square("probabilities", "softmax", "d softmax", saved=True, wide=True),
        life.one("which scores are -inf", "B × S² × 1 byte", life=("rows", "rows")),
        life.one("which rows are all -inf", "B × S × 1 byte", life=("rows", "rows")),
        life.one("zero", "4 bytes", life=("rows", "rows")),
        *(halves if half else ()),
        life.vector("output", "halve output" if half else "output"),
        life.vector("gradient of the values", "d probabilities", wide=True),
        life.square("gradient of the probabilities", "d probabilities", "d softmax", wide=True),
        life.square("gradient of the scores", "d softmax", "d inputs", wide=True),
        *life.softmax_product(wide=True),
        life.vector("gradient of the scaled queries", "d inputs", wide=True),
        life.vector("gradient of the scaled keys", "d inputs", wide=True),
    ]


def _compiled(life: _Life) -> list[AttentionTensor]:
    """Returns the tensors of compiled attention. The compiler keeps the probabilities and the mask, and overwrites
    squares in place."""
    mask = [life.one("mask", "S² × 1 byte", life=("output", "d probabilities"), saved=True)]
    return [
        *life.input_tensors("queries", "keys", "values"),
        *(mask if life.cell.causal and life.cell.implementation == "naive" else ()),
        life.square("probabilities", "output", "d probabilities", saved=True),
        life.vector("output", "output"),
        life.vector("gradient of the values", "d probabilities"),
        life.square("gradient of the scores", "d probabilities", "d inputs"),
        life.vector("gradient of the queries", "d inputs"),
        life.vector("gradient of the keys", "d inputs"),
    ]


def _fused(life: _Life) -> list[AttentionTensor]:
    """Returns the tensors of FlashAttention and its kind, which keep the output and one number a row, and compute the
    squares again in tiles."""
    return [
        *life.input_tensors("queries", "keys", "values"),
        *(_fused_forward(life) if life.on_cuda else ()),
        life.vector("output", "output", saved=True),
        life.one("log-sum-exp of each row", "B × S × 4 bytes", life=("output",), saved=True),
        *(_fused_backward(life) if life.on_cuda else ()),
        *(life.vector(f"gradient of the {name}", "d inputs") for name in ("queries", "keys", "values")),
    ]


def _fused_forward(life: _Life) -> list[AttentionTensor]:
    """Returns what CUDA's kernels keep besides: the state of dropout's random numbers, or for `flex` the blocks that
    the mask shows."""
    if life.cell.implementation != "flex":
        state = "24 bytes" if life.cell.implementation == "sdpa-flash" else "16 bytes"
        return [life.one("random state", state, life=("output",), saved=True)]
    if not life.cell.causal:
        return [life.one("block shown: all", "16 bytes", life=("output",), saved=True)]
    block = flex_block(life.cell.seq_len)
    counts, indices = f"4 × S/{block} × 4 bytes", f"4 × (S/{block})² × 4 bytes"
    return [life.one("blocks shown: how many", counts, life=(life.moments[0],), saved=True),
            life.one("blocks shown: which", indices, life=(life.moments[0],), saved=True)]  # fmt: skip


def _fused_backward(life: _Life) -> list[AttentionTensor]:
    """Returns the temporary tensors of the fused backward pass: the product of output and gradient, one number a row,
    and the float32 sums of the queries' gradient. Those are at least as wide as the kernel's tile, and `flex` has
    none."""
    sums = life.one("output × its gradient, row by row", "B × S × 4 bytes", life=("d inputs",))
    if life.cell.implementation == "flex":
        return [sums]
    tile = {"sdpa-flash": 32, "sdpa-efficient": 64}.get(life.cell.implementation, 0)
    width = "d" if life.cell.d_head >= tile else str(tile)
    return [sums, life.one("gradient of the queries in float32", f"B × S × {width} × 4 bytes", life=("d inputs",))]
