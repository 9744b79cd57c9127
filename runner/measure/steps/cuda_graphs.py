"""A step captured once as CUDA graphs and replayed: the eager kernels without the time for Python to launch them.

    captured = CapturedStep(step, device, mode="train", between=step.between, restart=step.restart)
    captured.replay(mark)

Each phase is a graph of its own, so that phases are timed as in any other step. The limits are those of PyTorch's
documentation ("CUDA semantics", section "CUDA Graphs"): the same memory every time, and no decision of the host in
between. Inputs, weights and gradients stay in place.
"""

import gc
from collections.abc import Callable

import torch

from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.measure.steps.step import Step
from runner.models.ranges import named_range
from runner.schema import PHASES, Mode, Phase, StepCell

#: Steps on the capturing stream before the capture, in which libraries and the optimizer allocate what they keep.
WARMUP = 3


def require_capture(cell: StepCell, device: Device) -> None:
    """Raises Skipped where a step cannot be captured."""
    if device.type != "cuda":
        raise Skipped("CUDA graphs need an NVIDIA GPU.")
    if cell.precision == "fp16" and cell.mode in ("backward", "train"):
        raise Skipped("With fp16 the gradient scaler decides on the host whether to step, which no CUDA graph can.")


class CapturedStep:
    """The phases of `step`, which marks the end of each, as graphs that share one pool of memory.

    `between` prepares a step; `restart` undoes the steps that run here. Raises Skipped with CUDA's message for a step
    that it cannot capture."""

    def __init__(
        self, step: Step, device: Device, *, mode: Mode, between: Callable[[], None], restart: Callable[[], None]
    ) -> None:
        self.phases: tuple[Phase, ...] = PHASES[mode]
        self.graphs: list[torch.cuda.CUDAGraph] = []
        stream = torch.cuda.Stream(device.torch)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(device.torch)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARMUP):
                between()
                step(lambda: None)
            between()
            restart()
            torch.cuda.synchronize(device.torch)
            gc.collect()
            torch.cuda.empty_cache()
            try:
                self._capture(step)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise Skipped(f"CUDA could not capture this step: {str(error).splitlines()[0]}") from error
        current.wait_stream(stream)

    def _capture(self, step: Step) -> None:
        """Captures the step without computing it. Each mark ends one graph and begins the next."""
        pool = torch.cuda.graph_pool_handle()

        def begin() -> None:
            self.graphs.append(torch.cuda.CUDAGraph())
            self.graphs[-1].capture_begin(pool=pool)

        def mark() -> None:
            self.graphs[-1].capture_end()
            if len(self.graphs) < len(self.phases):
                begin()

        begin()
        step(mark)
        assert len(self.graphs) == len(self.phases), f"{len(self.graphs)} graphs for {len(self.phases)} phases"

    def replay(self, mark: Callable[[], None]) -> None:
        """Runs one step: the phases' graphs in the order of capture, because they share memory."""
        for phase, graph in zip(self.phases, self.graphs, strict=True):
            with named_range(phase):
                graph.replay()
            mark()
