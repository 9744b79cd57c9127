"""The command line with workers that fail: `python -m tests.faulty sweep … --contexts 16,101,102`.

The context of a cell decides what happens to its worker; any other context is measured as usual. The fork server
imports this file too, so the changes apply in its workers.
"""

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from runner.job import Job, Measurement

KILLED, HUNG, NOT_IMPORTED, STICKY = 101, 102, 103, 104
#: The context of a cell whose scores take 6 GiB. If `SQUEEZE` names the limit of a control group, that is lowered to
#: 2 GiB first, which the worker does not know.
LARGE = 20_000
_real: list[Callable[[Job, Callable[[str], None]], Measurement]] = []


def measure_step(job: Job, report: Callable[[str], None]) -> Measurement:
    """Replaces the real function in the worker, and calls it for all other cells."""
    context = getattr(job.cell, "context", 0)
    report("build")
    if context == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if context == HUNG:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        while True:
            time.sleep(1)
    if context == NOT_IMPORTED:
        importlib.import_module("a_package_that_nobody_has")
    if context == STICKY:
        import torch

        values = torch.zeros(1, device="cuda")  # every later call of CUDA in this process returns the error, too
        values[torch.tensor([1 << 20], device="cuda")] = 1.0
        torch.cuda.synchronize()
    if context == LARGE and "SQUEEZE" in os.environ:
        Path(os.environ["SQUEEZE"]).write_text(str(2 * 2**30))
    return _real[0](job, report)


def change_clock(after: int) -> None:
    """Sets the clock of the sweep's own process back by an hour after it has made this many ids."""
    from runner.schema import cells

    asked, real = [0], time.time_ns

    def back() -> int:
        asked[0] += 1
        return real() - (3_600_000_000_000 if asked[0] > after else 0)

    patch.object(cells, "time", SimpleNamespace(time_ns=back)).start()


def _patch() -> None:
    from runner.measure import step

    if step.measure_step.__module__ == step.__name__:  # a worker imports this file again as its main module
        _real.append(step.measure_step)
        patch.object(step, "measure_step", measure_step).start()


def main() -> None:
    preload = ForkServerContext.set_forkserver_preload

    def with_this(self: ForkServerContext, modules: list[str]) -> None:
        preload(self, [*modules, "tests.faulty"])

    patch.object(ForkServerContext, "set_forkserver_preload", with_this).start()
    if os.environ.get("CLOCK"):
        change_clock(int(os.environ["CLOCK"]))
    from runner.cli.main import main as command

    sys.argv[0] = "runner"
    command()


if __name__ == "__main__":
    main()
elif "torch" in sys.modules:
    _patch()
