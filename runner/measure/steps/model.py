"""One real step of a Transformer or of an own model, as a training loop runs it.

step = ModelStep(cell, device)
step(mark)      # forward in the cell's precision, loss, backward, optimizer and zero_grad, as far as its mode goes
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.errors import BadModel
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.steps.compiling import GRAPHED, compile_model, is_compiled
from runner.measure.steps.cuda_graphs import CapturedStep, require_capture
from runner.models.attention import require_available
from runner.models.own import own_workload
from runner.models.ranges import named_range
from runner.models.workload import Workload, first_tensor, transformer_workload
from runner.schema import ModelCell, NumericsCell, StepCell


def make_workload(cell: StepCell, device: Device) -> Workload:
    """Returns the model and data of a cell. Raises BadModel for an own model that cannot be built."""
    if cell.model_key is None:
        return transformer_workload(cell, device=device.torch)
    differentiated = cell.mode in ("backward", "train")
    keep = cell.backend == "cuda-graphs" or (differentiated and is_compiled(cell.backend))
    return own_workload(cell, device=device.torch, keep_weights=keep)


class ModelStep:
    """The model, optimizer and data of one cell; calling it runs one step and marks the end of each phase.

    `phase` is the running phase, for the row of a cell that fails; `loss` and `logits_dtype` are of the last step."""

    def __init__(self, cell: StepCell, device: Device) -> None:
        self.cell, self.device, self.phase = cell, device, ""
        if cell.backend == "cuda-graphs":
            require_capture(cell, device)
        self.workload = make_workload(cell, device)
        self.model = self.workload.model
        self.model.train(cell.mode != "inference")
        self.run = compile_model(self.workload, cell.backend, device, precision=cell.precision)
        self.autocast = precision.autocast(cell, device)
        self.optimizer = _adamw(self.model, cell) if cell.mode == "train" else None
        scaled = cell.precision == "fp16" and cell.mode in ("backward", "train")
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self.loss: Tensor | None = None
        self.output_shape: tuple[int, ...] | None = None
        self.logits_dtype = ""
        self.captured: CapturedStep | None = None
        if cell.backend == "cuda-graphs":
            self.captured = CapturedStep(self, device, mode=cell.mode, between=self.between, restart=self.restart)

    def __call__(self, mark: Callable[[], None]) -> None:
        if self.captured is not None:
            self.captured.replay(mark)
            return
        self.phase = "forward"
        if self.cell.mode == "inference":
            with named_range("forward"), torch.no_grad():
                output = self.forward()
            mark()
        else:
            with named_range("forward"):
                output = self.forward()
            mark()
            if self.cell.mode != "forward":
                self.backward(output, mark)
                self.update(mark)
        self._note_output(output)

    def _note_output(self, output: Any) -> None:
        """Notes the logits' dtype. Raises BadModel where their shape is not that of the steps before."""
        logits = first_tensor(output)
        if logits is None:
            return
        self.logits_dtype = precision.dtype_name(logits)
        shape = tuple(logits.shape)
        if self.output_shape not in (None, shape):
            raise BadModel(
                f"The model returned a tensor of {format_shape(shape)} after {format_shape(self.output_shape or ())}.",
                expected="the same work in every step, so that steps can be compared",
            )
        self.output_shape = shape

    def forward(self) -> Any:
        """Returns the model's output; of the Transformer, logits of shape (batch, context, vocabulary)."""
        with self.autocast:
            return self.workload.run(self.run)

    def backward(self, output: Any, mark: Callable[[], None]) -> None:
        """Computes the loss and its gradients."""
        self.phase = "loss"
        with named_range("loss"), self.autocast:
            self.loss = self.workload.loss(output)
            if not self.loss.requires_grad:
                raise BadModel("The loss depends on no parameter: there is nothing to differentiate.")
        mark()
        self.phase = "backward"
        with named_range("backward"):
            self.scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]
        mark()

    def update(self, mark: Callable[[], None]) -> None:
        """Runs the optimizer's step and zero_grad, in training."""
        if self.optimizer is not None:
            self.phase = "optimizer"
            with named_range("optimizer"):
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
            mark()

    def between(self) -> None:
        """Prepares a step without being part of it: drops the gradients of a mode without an optimizer."""
        if self.optimizer is None:
            self.model.zero_grad()
        if self.cell.backend in GRAPHED:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    def gradients(self) -> dict[str, Tensor]:
        """Returns the gradients of one pass by parameter, with fp16 scaled as in training; the model has none
        afterwards."""
        self.between()
        self.backward(self.forward(), lambda: None)
        return take_gradients(self.model)

    def restart(self) -> None:
        """Resets weights and optimizer, in the same memory, to what they were before the first step."""
        self.loss = None
        assert self.workload.restart is not None
        self.workload.restart()
        for state in self.optimizer.state.values() if self.optimizer is not None else ():
            for tensor in state.values():
                tensor.zero_()


def format_shape(shape: Sequence[int]) -> str:
    """Returns a shape as `4×128×768`."""
    return "×".join(map(str, shape)) or "1"


def require_attention(cell: ModelCell | NumericsCell, device: Device) -> None:
    """Raises Skipped where this device cannot run the cell's attention implementation, if it asks for one by name."""
    if cell.attention != "own":
        require_available(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))


def take_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Returns the gradients by parameter, zeros for one without; the model has none afterwards."""
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    model.zero_grad()
    return gradients


def _adamw(model: nn.Module, cell: StepCell) -> torch.optim.AdamW:
    """Returns AdamW with the cell's implementation; `foreach` is PyTorch's choice on CUDA."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        foreach=cell.optimizer == "foreach",
        fused=cell.optimizer == "fused",
        capturable=cell.backend == "cuda-graphs",
    )
