"""A user's own model as a workload: `build(want)` returns a module and a batch, and, if wanted, a loss.

    def build(want):
        model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
        images, labels = torch.randn(want.batch, 64), torch.randint(10, (want.batch,))
        return model, images, lambda logits: F.cross_entropy(logits, labels)

The batch is a tensor, a tuple of arguments or a dictionary of keywords, and the module is called with it. Without a
loss, the module's own counts: a number that it returns, alone, in a tuple or as `loss`; else the cross-entropy of
logits of shape (batch, time, vocabulary) against the batch's own tokens, each predicting the next. Whatever `build` has
not put on the device or made in the dtype is moved and cast afterwards.

Its code is hashed, so that another version is another model (`runner.models.source` imports it). Limits: modules that
are imported only when the model is built are no part of the key.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from runner.errors import BadModel
from runner.models.hugging_face import load_configuration
from runner.models.source import SIGNATURE, as_a_program, import_file, import_package
from runner.models.transformer import WEIGHTS_DTYPES
from runner.models.workload import (
    SEED,
    Built,
    Wanted,
    Workload,
    checkpoint_each,
    default_loss,
    find_blocks,
    list_tensors,
    place_parameters,
)
from runner.schema import ModelCell
from runner.schema.own import OwnSpec, parse_spec


def own_workload(cell: ModelCell, *, device: torch.device, keep_weights: bool = False) -> Workload:
    """Returns the workload of an own model's cell, with its blocks checkpointed as the cell says.

    Raises BadModel where the source is no longer that of the cell, or cannot be built."""
    spec = parse_spec(cell.model or "")
    loaded = load(spec)
    if loaded.key != cell.model_key:
        raise BadModel(
            f"{spec.text} has changed: its key is {loaded.key}, and this cell is of {cell.model_key}.",
            do="Start the sweep again to measure the new version.",
        )
    weights, attention = cell.weights_dtype, cell.attention
    built = loaded.build(device, batch=cell.batch, context=cell.context, weights=weights, attention=attention)
    workload = built.workload
    if cell.checkpoint_blocks:
        checkpoint_each(workload.model, workload.blocks)
    if keep_weights:
        workload.restart = _keep_weights(workload.model)
    return workload


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An own model's code or configuration: its key, and the function that builds a workload of it."""

    spec: OwnSpec
    key: str
    make: Callable[[Wanted], Built]

    def build(
        self, device: torch.device, *, batch: int, context: int, weights: str = "fp32", attention: str = "sdpa"
    ) -> Built:
        """Builds it with the options of its spec."""
        dtype, options = WEIGHTS_DTYPES[weights], self.spec.options
        want = Wanted(device=device, batch=batch, _context=context, dtype=dtype, _attention=attention, _options=options)
        return self.make(want)


def load(spec: OwnSpec) -> Loaded:
    """Imports or reads what the spec names. Raises BadModel."""
    if spec.kind == "hf":
        key, make = load_configuration(spec)
        return Loaded(spec=spec, key=key, make=make)
    with as_a_program(spec):
        module, root = import_file(spec) if spec.kind == "file" else import_package(spec)
    function = getattr(module, spec.function, None)
    if not callable(function):
        known = sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        raise BadModel(
            f"{spec.where} has no function {spec.function!r}.",
            expected=SIGNATURE,
            do=f"It has {', '.join(known[:8]) or 'none'}.",
        )
    digest = hashlib.sha256(repr((spec.function, sorted(spec.options.items()))).encode())
    packages = ("site-packages", "dist-packages")
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    for path in sorted({Path(file) for file in files if file}):
        is_own = path.is_relative_to(root) and not any(part in packages for part in path.relative_to(root).parts)
        if is_own and path.suffix == ".py" and not path.is_relative_to(Path(__file__).parents[1]):  # not ours
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return Loaded(spec=spec, key=digest.hexdigest()[:16], make=lambda want: _call(function, spec, want))


def _call(function: Callable[[Wanted], Any], spec: OwnSpec, want: Wanted) -> Built:
    torch.manual_seed(SEED)
    with as_a_program(spec), torch.device(want.device):
        built = function(want)
    unread = [name for name in spec.options if f"option {name}" not in want.read]
    if unread:
        raise BadModel(
            f"{spec.text}: nothing read {', '.join(unread)}.",
            expected="options that the function asks for with want.option(name, default)",
        )
    parts = built if isinstance(built, tuple) else (built,)
    if not 2 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        got = ", ".join(type(part).__name__ for part in parts)
        raise BadModel(f"{spec.text} returned {got}.", expected=SIGNATURE)
    return Built(workload=_make_workload(spec, want, *parts), reads=frozenset(want.read))


def _make_workload(
    spec: OwnSpec, want: Wanted, model: nn.Module, batch: Any, loss: Callable[[Any], Tensor] | None = None
) -> Workload:
    place_parameters(model, want)
    batch = _move(batch, want)
    arguments = batch if isinstance(batch, tuple) else () if isinstance(batch, dict) else (batch,)
    keywords = batch if isinstance(batch, dict) else {}
    cells = getattr(loss, "__closure__", None) or ()
    inputs = [*list_tensors([*arguments, *keywords.values()]), *list_tensors([cell.cell_contents for cell in cells])]
    if not inputs:
        raise BadModel(f"{spec.text} returned a batch without a tensor.", expected="a tensor, a tuple or a dictionary")
    tokens = next((tensor for tensor in inputs if tensor.ndim == 2 and not tensor.is_floating_point()), None)
    return Workload(
        model=model,
        arguments=arguments,
        keywords=keywords,
        loss=loss or (lambda output: default_loss(output, tokens)),
        inputs=inputs,
        blocks=find_blocks(model),
    )


def _move(batch: Any, want: Wanted) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(want.device, want.dtype if batch.is_floating_point() else batch.dtype)
    if isinstance(batch, dict):
        return {name: _move(value, want) for name, value in batch.items()}
    return tuple(_move(value, want) for value in batch) if isinstance(batch, list | tuple) else batch


def _keep_weights(model: nn.Module) -> Callable[[], None]:
    """Copies the model's weights and buffers to the CPU, and returns what puts them back."""
    kept = {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict(keep_vars=True).items()}

    @torch.no_grad()
    def restart() -> None:
        torch.manual_seed(SEED)
        for name, tensor in model.state_dict(keep_vars=True).items():
            tensor.copy_(kept[name])

    return restart
