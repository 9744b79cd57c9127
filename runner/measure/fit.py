"""The bytes of an own model's training step, without a GPU and without data: on fake tensors, which have a shape and a
dtype and take no memory.

step = count_step(FitJob(spec="nano.py:build", context=1024, attention="sdpa", optimizer="fused"))
step.parts_at("bf16", False, batch=4, context=1024)

Forward, loss and backward run once for each way of holding numbers, without and with each block recomputed. The tensors
are the CPU's, whose fused attention keeps what CUDA's does; what autocast on CUDA computes in float32 is made so here
too. AdamW's state and temporary bytes are those of its formula. Batch and context are primes, so that the bytes of a
storage say how it grows, being a multiple of one, the other or its square: each moment is a polynomial in both, and the
peak at any batch and context is the largest of them, without a second run. Limits: a length that is rounded up to a
multiple counts as fixed; the allocator's rounding, cuBLAS's workspace and scratch inside of kernels are left out.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import isqrt
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from runner.errors import BadModel
from runner.job import FitJob
from runner.measure.step import reason_of
from runner.models.given import Loaded, load
from runner.models.workload import Built, checkpoint_each, wrong_batch
from runner.schema.own import WAYS, CountedStep, Held, parse_spec

#: The batch of the fake step: a prime of which a model's own numbers are hardly ever a multiple.
BATCH = 61
#: What autocast computes in float32 on CUDA and not on a CPU (aten/src/ATen/autocast_mode.h).
_WIDE = {"layer_norm", "group_norm", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "norm", "pow",
         "exp", "log", "rsqrt", "reciprocal", "softplus", "sum", "prod", "cumsum", "logsumexp", "cosine_similarity",
         "binary_cross_entropy_with_logits", "softmax", "log_softmax", "cross_entropy"}  # fmt: skip


def count_step(job: FitJob) -> CountedStep:
    """Counts the step of an own model. Raises BadModel for one that cannot be built, that cannot run without data, or
    that is shorter than the context."""
    spec = parse_spec(job.spec)
    loaded = load(spec)
    moments = {}
    for way in WAYS:
        for is_checkpointed in (False, True):
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    built, held = _count(loaded, job, way, is_checkpointed=is_checkpointed)
            except BadModel:
                raise
            except Exception as error:
                raise BadModel(
                    f"{spec.text} cannot be counted on fake tensors: {reason_of(error)}.",
                    do="Measure it on a GPU: python -m runner sweep --experiment memory --model …",
                ) from error
            moments[way, is_checkpointed] = _choose_peaks(held)
    return CountedStep(
        key=loaded.key,
        longest=_longest(built),
        has_context="context" in built.reads,
        has_attention="attention" in built.reads,
        has_blocks=bool(built.workload.blocks),
        moments=moments,
    )


def _longest(built: Built) -> int | None:
    config = getattr(built.workload.model, "config", None)
    longest = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
    return longest if isinstance(longest, int) else None


def _count(loaded: Loaded, job: FitJob, way: str, *, is_checkpointed: bool) -> tuple[Built, Sequence[Held]]:
    """Returns what is held after each operation that allocates."""
    context = next(
        number
        for number in range(job.context, 1, -1)
        if number != BATCH and all(number % factor for factor in range(2, isqrt(number) + 1))
    )
    device, weights = torch.device("cpu"), WAYS[way][1]
    with patch.object(nn.Module, "_apply", _apply), _ReadZeros():  # type: ignore[no-untyped-call]
        built = loaded.build(device, batch=BATCH, context=context, weights=weights, attention=job.attention)
    name, workload = loaded.spec.text, built.workload
    if (longest := _longest(built)) and job.context > longest:
        raise BadModel(f"{name} takes at most {longest:,} tokens, and {job.context:,} were asked for.")
    if not any(size and size % BATCH == 0 for tensor in workload.inputs for size in tensor.shape):
        raise wrong_batch(name, workload.inputs, BATCH)
    workload.model.train()
    if is_checkpointed:
        checkpoint_each(workload.model, workload.blocks)
    live = _LiveBytes(context=context if "context" in built.reads else 0)
    parameters = list(workload.model.parameters())
    for part, tensors in (("parameters", parameters), ("inputs", [*workload.model.buffers(), *workload.inputs])):
        for tensor in tensors:
            live.hold(tensor, part)
    for parameter in (one for one in parameters if one.requires_grad):
        parameter.register_post_accumulate_grad_hook(lambda one: live.hold(one.grad, "gradients"))  # type: ignore[no-untyped-call]
    with live:
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "bf16"), _AsOnCuda():
            output = workload.run()
            loss = workload.loss(output)
        with _AsOnCuda():
            # What recomputes a block is called by the engine, and functions above it hide the mode from that.
            ones = (torch.ones_like(loss),)
            _engine_run_backward((loss,), ones, False, False, (), allow_unreachable=True, accumulate_grad=True)
    state: dict[tuple[str, int, int], int] = {}
    ending = Counter(live.held)
    for part, of_batch, of_context in [key for key in live.held if key[0] == "gradients"]:
        gradients = live.held[part, of_batch, of_context]
        state["optimizer state", of_batch, of_context] = 2 * gradients
        if job.optimizer == "foreach":
            ending["temporaries", of_batch, of_context] += gradients
    return built, [{**held, **state} for held in (*live.moments, ending)]


def _apply(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Moves or casts a module's tensors, for which PyTorch swaps fake ones and fails."""
    for child in module.children() if recurse else ():
        _apply(child, change)
    for tensors in (cast(dict[str, Any], module._parameters), module._buffers):
        for name, tensor in [(name, one) for name, one in tensors.items() if one is not None]:
            changed = change(tensor.data)
            if changed.device == tensor.device:
                tensor.data = changed
            else:  # built on the meta device
                is_parameter = isinstance(tensor, nn.Parameter)
                tensors[name] = nn.Parameter(changed, tensor.requires_grad) if is_parameter else changed
    return module


def _choose_peaks(moments: Sequence[Held]) -> list[Held]:
    """Returns those of the moments that are the largest at some batch and context, both powers of two."""
    powers = sorted({key[1:] for held in moments for key in held})
    sizes = [[sum(size for key, size in held.items() if key[1:] == power) for power in powers] for held in moments]
    points = [[2.0 ** (batch * i + context * j) for batch in range(21) for context in range(21)] for i, j in powers]
    largest = (torch.tensor(sizes, dtype=torch.float64) @ torch.tensor(points, dtype=torch.float64)).argmax(0)
    return [moments[place] for place in sorted({*largest.tolist()})]


class _ReadZeros(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives 0 for every number that is read from a fake tensor, such as by initializations that draw until all fit."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0.0 if args[0].is_floating_point() else args[0].dtype != torch.bool and 0  # False, or 0
        return func(*args, **(kwargs or {}))


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of living storages while it is entered: those made by forward, loss and recomputing are
    activations, those that backward makes are temporaries."""

    def __init__(self, *, context: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.context = context
        self.held: Counter[tuple[str, int, int]] = Counter()
        self.moments: list[Held] = []
        self._known: dict[int, tuple[tuple[str, int, int], int, Any]] = {}

    def hold(self, tensor: Tensor, part: str) -> None:
        """Counts the tensor's storage as `part` from now on, until it is freed."""
        storage = tensor.untyped_storage()
        place, size, of_batch, of_context = id(storage), storage.nbytes(), 0, 0
        self._free(place)
        if size % BATCH == 0:
            size, of_batch = size // BATCH, 1
        while self.context and of_context < 2 and size and size % self.context == 0:
            size, of_context = size // self.context, of_context + 1
        if self.context and of_batch and not of_context and size % (self.context - 1) == 0:  # tokens but the last
            size, of_context = size // (self.context - 1), 1
        key = (part, of_batch, of_context)
        self._known[place] = (key, size, weakref.ref(storage, lambda _: self._free(place)))
        self.held[key] += size

    def _free(self, place: int) -> None:
        key, size, _ = self._known.pop(place, (None, 0, None))
        if key is not None:
            self.held[key] -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _INSTEAD.get(func, func)(*args, **(kwargs or {}))
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if func is torch.ops.aten._softmax_backward_data.default:  # on CUDA it writes a product for a moment
            made.append(torch.empty_like(args[1]))
        new = [one for one in made if id(one.untyped_storage()) not in self._known]
        for tensor in new:
            copied = self._known.get(id(args[0].untyped_storage())) if func is torch.ops.aten._to_copy.default else None
            part = "activations" if torch.is_grad_enabled() else "temporaries"
            self.hold(tensor, "autocast copies" if copied and copied[0][0] == "parameters" else part)
        if new:
            self.moments.append(+self.held)
        return result


def _grouped_product(a: Tensor, b: Tensor, offsets: Tensor, *_: Any, **__: Any) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[-1]) if b.ndim == 3 else (len(offsets), a.shape[0], b.shape[1]))


def _log_softmax(x: Tensor, _: int, is_wide: bool) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32 if is_wide else x.dtype)


def _attention(query: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    output, sums = _FLASH(query, *args, **kwargs)
    by_token = output.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)
    return output if _is_narrow(query) else by_token, sums


_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
#: Fake operators that take less than the real ones on CUDA: two refuse dtypes; in float32 attention's output is laid
#: out token by token there.
_INSTEAD = {torch.ops.aten._grouped_mm.default: _grouped_product, torch.ops.aten._log_softmax.default: _log_softmax,
            _FLASH: _attention}  # fmt: skip


class _AsOnCuda(TorchFunctionMode):
    """Makes functions keep what they keep on CUDA: autocast computes some in float32, fused attention keeps no mask of
    its dropout, and there is none in float32 for queries that share keys."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = {**dict(zip(names, args, strict=False)), **kwargs, "dropout_p": 0.0}
            is_wide = not torch.is_autocast_enabled("cpu") and not _is_narrow(given["query"])
            with sdpa_kernel(SDPBackend.MATH) if is_wide and given.get("enable_gqa") else nullcontext():
                return func(**given)
        if not torch.is_autocast_enabled("cpu") or not args or not _is_narrow(args[0]):
            return func(*args, **kwargs)
        if name == "cross_entropy" and not args[1].is_floating_point():
            given = {key: value for key, value in kwargs.items() if key != "label_smoothing"}
            return functional.nll_loss(torch._log_softmax(args[0], 1, True), *args[1:], **given)
        if name in _WIDE:
            args, kwargs = tree_map(lambda one: one.float() if _is_narrow(one) else one, (args, kwargs))
        return func(*args, **kwargs)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bfloat16
