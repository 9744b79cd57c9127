"""The axes of plans: the flags that set columns, and the columns that several kinds of cells share.

    class MemoryCell(ModelCell): ...        # and what only the memory of a step has

`sweep --help` lists the flags in the order of this file. A flag that only one kind of cell uses may be defined beside
that cell. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from runner.schema.cells import Cell
from runner.schema.choices import Loss, Mode, ModelAttention, Optimizer, Precision, WeightsDtype
from runner.schema.columns import Flag, column, describe

CONTEXTS = Flag("contexts", "Tokens of each sequence.")
BATCHES = Flag("batch", "Sequences in one step.")
MODES = Flag("modes", "Of {choices}.")
PRECISIONS = Flag("precisions", "Of {choices}.")
BACKENDS = Flag("backends", "Of {choices}.")
SEQ_LENS = Flag("seq_lens", "Sequence lengths of single-head attention.")
D_HEADS = Flag("d_heads", "Head widths of single-head attention.")
CAUSAL = Flag("causal", "Of {choices}, for single-head attention.")
CACHE = Flag("cache", "Of {choices}: whether attention finds its tensors in the L2 cache.")
COMPILE_CACHE = Flag("compile_cache", "Of {choices}: whether the compiler finds earlier work.", effort="first")
ATTENTIONS = Flag("attention", "Of {choices}, or your own FILE.py:FUNCTION(q, k, v, *, causal).", open=True)
_OPTIMIZERS = "AdamW implementations, of {choices}, or your own optimizer, FILE.py:FUNCTION(parameters)."
OPTIMIZERS = Flag("optimizers", _OPTIMIZERS, open=True)
LOSSES = Flag("loss", "Of {choices}, or your own FILE.py:FUNCTION(logits, targets).", open=True)
WEIGHTS_DTYPES = Flag("weights", "Dtype the parameters are held in, of {choices}.")
CHECKPOINT = Flag("checkpoint", "Blocks recomputed together in the backward pass; 0 for none.")
WARMUP = Flag("warmup", "Warm-up steps; several, such as 0,1,2,5, make an ablation.", effort="most")
SUMS = Flag("sums", "Sums of {choices}, in experiment numerics.")
STEPS = Flag("steps", "Measured steps, at least.", kind="limit", least=1, effort="most")
MAX_STEPS = Flag("max_steps", "Measured steps, at most.", kind="limit", least=1, effort="most")
MAX_SECONDS = Flag("max_seconds", "Measuring time of a cell, at most.", kind="limit", effort="most")
_TIMELINE = "Record every allocation of the memory cells, with its Python stack."
TIMELINE = Flag("timeline", _TIMELINE, kind="switch", effort="least")

#: The settings of a plain training step, which save neither time nor memory.
PLAIN: Mapping[str, str | int] = {
    "precision": "fp32",
    "weights_dtype": "fp32",
    "attention": "naive",
    "optimizer": "foreach",
    "backend": "eager",
    "checkpoint_blocks": 0,
}

#: The columns that vary slowest in a plan of models.
_MODEL_AXES = "context mode precision backend attention optimizer weights_dtype checkpoint_blocks"


@dataclass(frozen=True, kw_only=True, order=True)
class Shape:
    """The numbers of the shape of Stepscope's own Transformer, which formulas rest on."""

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocabulary: int = 10_000


#: The names of a shape's columns.
SHAPE = tuple(item.name for item in fields(Shape))


@dataclass(frozen=True, kw_only=True)
class Model:
    """The columns that say which model was measured: the shape of Stepscope's Transformer, or a model of the user's
    own. They are the first columns of every cell of a model."""

    AXES = tuple[str, ...](_MODEL_AXES.split())

    d_model: int | None = field(metadata=describe("Model width", "", "Width of the residual stream, where known."))
    d_ff: int | None = field(metadata=describe("Feed-forward width", "", "Inner width of the feed-forward layer."))
    layers: int | None = field(metadata=describe("Layers", "", "Transformer blocks, or an own model's equal blocks."))
    heads: int | None = field(metadata=describe("Heads", "", "Attention heads; each is d_model / heads wide."))
    vocabulary: int | None = column("Vocabulary", "tokens", "Size of the token vocabulary.", default=10_000)
    model: str | None = column(
        "Own model", "", "Where an own model is, as `--model` names it; unknown for the Transformer."
    )
    model_key: str | None = column(
        "Own model's key", "", "Hash of an own model's source or configuration and of its options."
    )

    def unkeyed(self) -> frozenset[str]:
        """The fields that are no part of the key. An own model's key is the hash of its source, wherever that lies."""
        return frozenset((*SHAPE, "model")) if self.model_key else frozenset()

    @cached_property
    def shape(self) -> Shape:
        """The numbers of the Transformer's shape. An own model has none."""
        assert self.model_key is None, f"{self.model} has no shape of the Transformer's"
        return Shape(**{name: getattr(self, name) for name in SHAPE})

    @classmethod
    def of(cls, cell: "Model") -> "Model":
        """Returns the model's columns of a cell or of a row."""
        return Model(**{name: getattr(cell, name) for name in MODEL})

    @property
    def order(self) -> tuple[object, ...]:
        """A sort key that puts smaller Transformers first and own models, by name, behind them."""
        if self.model_key is not None:
            return 1, self.model or "", self.model_key
        shape = self.shape
        return 0, shape.layers * shape.d_model**2, *(getattr(shape, name) for name in SHAPE)


#: The names of the columns that say which model was measured.
MODEL = tuple(item.name for item in fields(Model))


@dataclass(frozen=True, kw_only=True)
class PassCell(Model, Cell):
    """A pass of a model over one batch."""

    batch: int = column("Batch", "sequences", "Sequences in one step.", flag=BATCHES, default=4)
    context: int = field(
        metadata=describe(
            "Context",
            "tokens",
            "Tokens of each sequence; 0 for an own model of samples without a length.",
            least=0,
            flag=CONTEXTS,
        )
    )
    precision: Precision = field(
        metadata=describe(
            "Precision",
            "",
            "fp32 is IEEE; tf32 rounds products' inputs to 10 bits; bf16 and fp16 are autocast over the weights.",
            flag=PRECISIONS,
        )
    )
    weights_dtype: WeightsDtype = column("Weights", "", "dtype of the parameters.", flag=WEIGHTS_DTYPES, default="fp32")
    attention: ModelAttention = column(
        "Attention", "", "Attention implementation, or an own one.", flag=ATTENTIONS, default="naive"
    )


@dataclass(frozen=True, kw_only=True)
class ModelCell(PassCell):
    """A step of a model: its time, its memory or its kernels are measured."""

    mode: Mode = field(
        metadata=describe(
            "Mode",
            "",
            "inference: forward under no_grad; forward: with its graph; backward: forward, loss and backward; train: "
            "and the optimizer step.",
            flag=MODES,
        )
    )
    optimizer: Optimizer = column(
        "Optimizer", "", "AdamW implementation, or an own optimizer.", flag=OPTIMIZERS, default="foreach"
    )
    loss_function: Loss = column(
        "Loss function", "", "PyTorch's cross-entropy, or an own loss.", flag=LOSSES, default="cross-entropy"
    )
    checkpoint_blocks: int = column(
        "Checkpointing",
        "blocks",
        "Blocks recomputed together in the backward pass; 0 keeps all activations.",
        least=0,
        flag=CHECKPOINT,
        default=0,
    )
