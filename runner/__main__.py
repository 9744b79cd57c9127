"""`python -m runner` and `stepscope`: the command line of `runner.cli.main`, with outputs that cannot break it.

An output that is closed takes nothing. One that ends, such as the pipe into `head`, or that is full does not stop the
command: a sweep keeps its rows. Of a full one it is said, and the exit code is then 74 instead of 0. A character that
the output's encoding lacks is replaced.
"""

import errno
import io
import os
import signal
import sys
from typing import Any, TextIO

from runner.errors import INTERRUPTED, INTERRUPTED_CODE

#: The exit code of a command that went well but for its output, as `sysexits.h` has it (EX_IOERR).
OUTPUT_FAILED = 74


class _Output(io.FileIO):
    """Writes to a file descriptor, and drops what it does not take; `failure` is its first error."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data) if self.failure is None else memoryview(data).nbytes
        except OSError as error:
            self.failure = error
            return memoryview(data).nbytes


def _open_output(stream: TextIO | None, descriptor: int) -> tuple[TextIO, _Output]:
    """Returns a stream in place of a standard one, and what it writes to. A closed descriptor is opened on nothing, so
    that no file that is opened later gets its number."""
    if stream is None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        if nothing != descriptor:
            os.dup2(nothing, descriptor)
            os.close(nothing)
    encoding = stream.encoding if stream else "utf-8"
    output = _Output(descriptor, "w", closefd=False)
    buffered = io.BufferedWriter(output)
    lines = output.isatty() or descriptor == 2
    return io.TextIOWrapper(buffered, encoding=encoding, errors="replace", line_buffering=lines), output


def _leave(number: int, frame: object) -> None:
    """Ends the process in the middle of an import, where an exception may be lost or come out as another."""
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(INTERRUPTED_CODE)


def run() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.stdout, written = _open_output(sys.stdout, 1)
    sys.stderr, _ = _open_output(sys.stderr, 2)
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not where the shell has us ignore it
        signal.signal(signal.SIGINT, _leave)
    from runner.cli.main import main

    signal.signal(signal.SIGINT, usual)
    try:
        main()
        code: str | int | None = 0
    except KeyboardInterrupt:  # before the command is known, none can handle it
        print(INTERRUPTED, file=sys.stderr)
        code = INTERRUPTED_CODE
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    if written.failure is not None and written.failure.errno != errno.EPIPE:
        print(f"error: The output cannot be written: {written.failure.strerror}.", file=sys.stderr)
        code = code or OUTPUT_FAILED
    sys.exit(code)


if __name__ == "__main__":  # a worker imports this module under another name and must not import the commands
    run()
