"""Who allocates, and what for: looks at every operator of a step, every module's turn and every tensor autograd keeps.

    with Observer(step.model) as observer: step(mark)
    observer.calls, observer.notes, observer.saved

An operator's call is kept with its time, name, module and Python stack; backward's calls with those of the forward
operation that they differentiate. A note says that at a time a storage at an address was of some category. Nothing that
is looked at is kept alive, and the peak of a step is the same with and without (a test holds that). Operations are
numbered in each thread anew, and on CUDA backward runs in one of its own, also a checkpointed block's second forward:
so a number is kept with its thread. Limits: operators take about 20 µs longer; scratch that an operator allocates
counts as its own.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from runner.analysis.timeline.stacks import MAX_FRAMES, Frame, Stacks
from runner.schema import Category

#: The outermost frame that a stack shows, the step itself; and files whose frames are only on the way.
_OUTERMOST = "ModelStep.__call__"
_ON_THE_WAY = ("/torch/nn/modules/module.py", "/torch/_dynamo/eval_frame.py", "/torch/_compile.py")


@dataclass(frozen=True, slots=True)
class AllocationPlace:
    """Where a piece of work was asked for."""

    operation: str
    module: str | None
    stack: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One operator's turn, from `at_ns` to `end_ns` (time.time_ns)."""

    at_ns: int
    end_ns: int
    place: AllocationPlace


@dataclass(frozen=True, slots=True)
class Note:
    """The storage at `address` was `category` at this time."""

    at_ns: int
    address: int
    category: Category


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that autograd kept for the backward pass of the operation of this thread and number."""

    at_ns: int
    sequence: tuple[int, int]
    module: str | None
    shape: tuple[int, ...]
    dtype: str
    address: int
    bytes: int


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks on while it is entered. `saved` are in order; what the model and its data hold anyway is among them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.notes: list[Note] = []
        self.saved: list[Saved] = []
        self.stacks = Stacks()
        self.asked: dict[tuple[int, int], AllocationPlace] = {}
        self._thread = threading.get_ident()
        self._deferred: dict[tuple[str | None, tuple[int, ...], str], tuple[int, int]] = {}
        self._model, self._modules, self._open = model, list[str](), ExitStack()
        self._parameters = {address(parameter) for parameter in model.parameters()}

    def note(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Says what these tensors are now."""
        now = time.time_ns()
        self.notes += [Note(now, address(tensor), category) for tensor in tensors]

    def operation_of(self, saved: Saved) -> str:
        """The operation whose backward needs a saved tensor."""
        place = self.asked.get(saved.sequence)
        if place is None:  # a second forward pass ended before it
            place = self.asked.get(self._deferred.get((saved.module, saved.shape, saved.dtype), saved.sequence))
        return place.operation if place else "unknown"

    def __enter__(self) -> Self:
        for name, module in self._model.named_modules():
            if name:
                self._watch(name, module)
        self._open.enter_context(saved_tensors_hooks(_Packing(_as_it_is, self), _as_it_is))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._open.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "profiler":  # a named range begins or ends: no operation of the model's
            return func(*args, **(kwargs or {}))
        began = time.time_ns()
        place = self._place(func)
        result = func(*args, **(kwargs or {}))
        self.calls.append(Call(began, time.time_ns(), place))
        if func is torch.ops.aten._to_copy.default and address(args[0]) in self._parameters:
            self.note([result], "autocast copy")
        return result

    def _place(self, func: Any) -> AllocationPlace:
        """Forward's operations are known by the number that autograd has just given away; backward's belong to one."""
        name, node = func._schema.name, torch._C._current_autograd_node()
        if node is not None and not self._modules:
            forward = self.asked.get((self._thread, node._sequence_nr()))
            return (
                AllocationPlace(name, forward.module, forward.stack)
                if forward
                else AllocationPlace(name, None, self._stack())
            )
        place = AllocationPlace(name, self._module, self._stack())
        if torch.is_grad_enabled():
            self.asked.setdefault(_sequence(), place)
        return place

    @property
    def _module(self) -> str | None:
        return self._modules[-1] if self._modules else None

    def _stack(self) -> int | None:
        frames = list(_frames(sys._getframe(3)))
        return self.stacks.remember(tuple(frames), lambda: tuple(_text(code, line) for code, line in frames))

    def _watch(self, name: str, module: nn.Module) -> None:
        """Knows when a module runs."""
        nested = list[ExitStack]()

        def enter(module: nn.Module, args: Any) -> None:
            self._modules.append(name)
            nested.append(ExitStack())
            # Checkpointing has hooks of its own, which hide ours and which ours must not replace.
            outer = torch._C._autograd._top_saved_tensors_default_hooks(False)
            if outer and not isinstance(outer[0], _Packing):
                nested[-1].enter_context(saved_tensors_hooks(_Packing(outer[0], self), outer[1]))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            nested.pop().close()
            self._modules.pop()

        self._open.callback(module.register_forward_pre_hook(enter).remove)
        self._open.callback(module.register_forward_hook(leave, always_call=True).remove)

    def defer(self, tensor: Tensor) -> None:
        """Remembers which operation needs a tensor that will be computed again."""
        self._deferred[self._module, tuple(tensor.shape), _dtype(tensor)] = _sequence()

    def keep(self, tensor: Tensor) -> None:
        """Notes a tensor that autograd keeps."""
        now, storage = time.time_ns(), tensor.untyped_storage()
        self.notes.append(Note(now, storage.data_ptr(), "activation"))
        self.saved.append(
            Saved(
                at_ns=now,
                sequence=_sequence(),
                module=self._module,
                shape=tuple(tensor.shape),
                dtype=_dtype(tensor),
                address=storage.data_ptr(),
                bytes=storage.nbytes(),
            )
        )


class _Packing:
    """A hook for what autograd keeps: notes it, unless the hook `outer` keeps something else in its place.
    Checkpointing ends a second forward pass by raising at the last tensor, which it keeps all the same."""

    def __init__(self, outer: Callable[[Tensor], Any], observer: Observer) -> None:
        self.outer, self.observer = outer, observer

    def __call__(self, tensor: Tensor) -> Any:
        try:
            kept = self.outer(tensor)
        except BaseException:
            self.observer.keep(tensor)
            raise
        if isinstance(kept, Tensor):
            self.observer.keep(tensor)
        else:
            self.observer.defer(tensor)
        return kept


def address(tensor: Tensor) -> int:
    """Where the tensor's storage begins."""
    return tensor.untyped_storage().data_ptr()


def _sequence() -> tuple[int, int]:
    """This thread, and the number of its newest operation that autograd will differentiate."""
    return threading.get_ident(), torch._C._autograd._get_sequence_nr() - 1


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _as_it_is(kept: Any) -> Any:
    return kept


def _frames(frame: FrameType | None) -> Iterable[tuple[CodeType, int]]:
    """Code and line of each frame from `frame` outwards, as far as the step."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        if not frame.f_code.co_filename.endswith(_ON_THE_WAY):
            yield frame.f_code, frame.f_lineno
        if frame.f_code.co_qualname == _OUTERMOST:
            return
        frame = frame.f_back


def _text(code: CodeType, line: int) -> Frame:
    return code.co_filename, line, code.co_name
