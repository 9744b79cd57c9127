"""Records what a step allocates for: every operator, every module that runs, and every tensor that autograd saves.

    with Observer(step.model) as observer: step(mark)
    observer.calls, observer.notes, observer.saved

An operator's call is recorded with its time, name, module and Python stack; backward's calls with those of the forward
operation that they differentiate. A note says that a storage at an address had a category at a time. Nothing observed
is kept alive, so that the peak of a step is the same with and without (a test checks that). Each thread numbers its
operations anew, and on CUDA backward runs in a thread of its own, as does a checkpointed block's second forward: so a
number goes with its thread. Limits: operators take about 20 µs longer; scratch that an operator allocates counts as its
own.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from runner.analysis.timeline.snapshot import MAX_FRAMES, Stacks
from runner.job import Job
from runner.measure.precision import dtype_name, format_shape
from runner.schema import Category, SavedTensorRow

#: The outermost frame of a stack, which is the step itself; and files whose frames are left out.
_OUTERMOST = "ModelStep.__call__"
_LEFT_OUT = ("/torch/nn/modules/module.py", "/torch/_dynamo/eval_frame.py", "/torch/_compile.py")


@dataclass(frozen=True, slots=True)
class AllocationPlace:
    operation: str
    module: str | None
    stack: int | None


@dataclass(frozen=True, slots=True)
class CategoryNote:
    """The storage at `address` was `category` at this time."""

    at_ns: int
    address: int
    category: Category


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that autograd saved for the backward pass of the operation of this thread and number."""

    at_ns: int
    sequence: tuple[int, int]
    module: str | None
    shape: str
    dtype: str
    address: int
    bytes: int

    @classmethod
    def of(cls, tensor: Tensor, *, module: str | None) -> Self:
        """Returns a tensor that autograd saves now."""
        return cls(
            at_ns=time.time_ns(),
            sequence=_sequence(),
            module=module,
            shape=format_shape(tensor.shape),
            dtype=dtype_name(tensor),
            address=address(tensor),
            bytes=tensor.untyped_storage().nbytes(),
        )


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Observes while it is entered. `calls` has the end of each (time.time_ns) with its place; `saved` is in order and
    includes parameters and inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[int, AllocationPlace]] = []
        self.notes: list[CategoryNote] = []
        self.saved: list[Saved] = []
        self.stacks = Stacks()
        self.forward_places: dict[tuple[int, int], AllocationPlace] = {}
        self._thread = threading.get_ident()
        self._deferred: dict[tuple[str | None, str, str], tuple[int, int]] = {}
        self._model, self._modules, self._open = model, list[str](), ExitStack()
        self._parameters = {address(parameter) for parameter in model.parameters()}

    def note(self, tensors: Iterable[Tensor], category: Category) -> None:
        now = time.time_ns()
        self.notes += [CategoryNote(now, address(tensor), category) for tensor in tensors]

    def operation_of(self, saved: Saved) -> str:
        """Returns the operation whose backward needs a saved tensor."""
        place = self.forward_places.get(saved.sequence)
        if place is None:  # a second forward pass ended before it
            deferred = self._deferred.get((saved.module, saved.shape, saved.dtype), saved.sequence)
            place = self.forward_places.get(deferred)
        return place.operation if place else "unknown"

    def __enter__(self) -> Self:
        self._open.enter_context(around_modules(self._model, self._run_module))
        self._open.enter_context(saved_tensors_hooks(_Packing(lambda one: one, self), lambda one: one))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._open.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "profiler":  # a named range begins or ends, which is no operation of the model
            return func(*args, **(kwargs or {}))
        place = self._place(func)
        result = func(*args, **(kwargs or {}))
        self.calls.append((time.time_ns(), place))
        if func is torch.ops.aten._to_copy.default and address(args[0]) in self._parameters:
            self.note([result], "autocast copy")
        return result

    def _place(self, func: Any) -> AllocationPlace:
        """Returns the place of an operation. A forward operation is recorded under autograd's newest number, by which
        the backward operations that belong to it find it."""
        name, node = func._schema.name, torch._C._current_autograd_node()
        if node is not None and not self._modules:
            forward = self.forward_places.get((self._thread, node._sequence_nr()))
            if forward is None:
                return AllocationPlace(name, None, self._stack())
            return AllocationPlace(name, forward.module, forward.stack)
        place = AllocationPlace(name, self._module, self._stack())
        if torch.is_grad_enabled():
            self.forward_places.setdefault(_sequence(), place)
        return place

    @property
    def _module(self) -> str | None:
        return self._modules[-1] if self._modules else None

    def _stack(self) -> int | None:
        frames = list(_frames(sys._getframe(3)))
        return self.stacks.remember(
            tuple(frames), lambda: tuple((code.co_filename, line, code.co_name) for code, line in frames)
        )

    @contextmanager
    def _run_module(self, name: str) -> Iterator[None]:
        self._modules.append(name)
        # Checkpointing has hooks of its own, which hide ours and which ours must not replace.
        outer = torch._C._autograd._top_saved_tensors_default_hooks(False)
        is_hidden = outer and not isinstance(outer[0], _Packing)
        with saved_tensors_hooks(_Packing(outer[0], self), outer[1]) if is_hidden else nullcontext():
            yield
        self._modules.pop()

    def defer(self, tensor: Tensor) -> None:
        """Records which operation needs a tensor that will be computed again."""
        self._deferred[self._module, format_shape(tensor.shape), dtype_name(tensor)] = _sequence()

    def record_saved(self, tensor: Tensor) -> None:
        saved = Saved.of(tensor, module=self._module)
        self.notes.append(CategoryNote(saved.at_ns, saved.address, "activation"))
        self.saved.append(saved)


@contextmanager
def around_modules(model: nn.Module, enter: Callable[[str], AbstractContextManager[object]]) -> Iterator[None]:
    """Runs every module below the model within `enter(path)`, in here."""
    with ExitStack() as hooks:
        for path, module in model.named_modules():
            if path:
                running = list[AbstractContextManager[object]]()

                def begin(module: nn.Module, args: Any, path: str = path, running: Any = running) -> None:
                    running.append(enter(path))
                    running[-1].__enter__()

                def end(module: nn.Module, args: Any, output: Any, running: Any = running) -> None:
                    running.pop().__exit__(None, None, None)

                hooks.callback(module.register_forward_pre_hook(begin).remove)
                hooks.callback(module.register_forward_hook(end, always_call=True).remove)
        yield


class _Packing:
    """A hook of saved tensors, which records a tensor unless the hook `outer` saves something else in its place.
    Checkpointing ends a second forward pass by raising at the last tensor, which it saves all the same."""

    def __init__(self, outer: Callable[[Tensor], Any], observer: Observer) -> None:
        self.outer, self.observer = outer, observer

    def __call__(self, tensor: Tensor) -> Any:
        try:
            packed = self.outer(tensor)
        except BaseException:
            self.observer.record_saved(tensor)
            raise
        if isinstance(packed, Tensor):
            self.observer.record_saved(tensor)
        else:
            self.observer.defer(tensor)
        return packed


def saved_rows(job: Job, found: Iterable[tuple[str, Saved, int]], names: Mapping[int, str]) -> list[SavedTensorRow]:
    """Returns a row for each saved tensor, given with the operation that needs it and the bytes that it counts.
    `names` are those of known tensors, by address."""
    return [
        SavedTensorRow(
            **job.ids,
            position=position,
            operation=operation,
            tensor=names.get(item.address),
            module=item.module,
            shape=item.shape,
            dtype=item.dtype,
            storage_bytes=size,
        )
        for position, (operation, item, size) in enumerate(found)
    ]


def address(tensor: Tensor) -> int:
    """Returns the address of the tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def _sequence() -> tuple[int, int]:
    """Returns this thread, and the number of its newest operation that autograd will differentiate."""
    return threading.get_ident(), torch._C._autograd._get_sequence_nr() - 1


def _frames(frame: FrameType | None) -> Iterable[tuple[CodeType, int]]:
    """Yields code and line of each frame from `frame` outwards, up to the step."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        if not frame.f_code.co_filename.endswith(_LEFT_OUT):
            yield frame.f_code, frame.f_lineno
        if frame.f_code.co_qualname == _OUTERMOST:
            return
        frame = frame.f_back
