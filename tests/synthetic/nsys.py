"""An export of Nsight Systems, built from its documented schema: one process with two steps.

    made(tmp_path / "report.sqlite").close()

Its kernels run long after the host has closed the range that launched them. The backward is launched by a thread of
autograd, on which no range was pushed.
"""

import sqlite3
from pathlib import Path

from tests.command import rows

#: The part of the schema that is read, as `.schema` prints it for an export.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, totalMemory INTEGER);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
    nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE PROCESS_STREAMS (globalPid INTEGER NOT NULL, filenameId INTEGER NOT NULL, contentId INTEGER NOT NULL);
CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
"""
PID = (1 << 24) * 4242
MAIN, AUTOGRAD = PID + 4242, PID + 4300
SECRET, HTML = "hunter2-secret", "<img src=x onerror=\"document.title='owned'\">"
GEMM = "ampere_sgemm_128x64_tn"
SOFTMAX = "void cunn_SoftMaxForward<4, float, float, float>(float *, const float *, int)"
ADAM = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float>>(T1)"


class Made:
    """An export under construction. Times are in µs, by the host's clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.connection, self.strings = path, sqlite3.connect(path), dict[str, int]()
        self.connection.executescript(SCHEMA)
        self.correlation = 0

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.add("StringIds", self.strings[text], text)
        return self.strings[text]

    def add(self, table: str, *values: object) -> None:
        self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def range(self, start: int, end: int | None, name: str, *, by_id: bool = False) -> None:
        text, text_id = (None, self.string(name)) if by_id else (name, None)
        ends = None if end is None else end * 1000
        self.add("NVTX_EVENTS", start * 1000, ends, 59, None, text, MAIN, None, text_id, 0)

    def call(self, at: int, *, thread: int = MAIN) -> int:
        """Adds a runtime call of 5 µs."""
        self.correlation += 1
        name = self.string("cudaLaunchKernel_v7000")
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", at * 1000, (at + 5) * 1000, 0, thread, self.correlation, name, 0)
        return self.correlation

    def kernel(self, at: int, name: str, *, runs: int, takes: int, thread: int = MAIN) -> None:
        correlation, pid = self.call(at, thread=thread), thread & ~0xFFFFFF
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", runs * 1000, (runs + takes) * 1000, 0, 1, 7, correlation, pid,
                 self.string(name), self.string(name[:20]), None, None)  # fmt: skip

    def step(self, start: int) -> None:
        """Adds one step of 1000 µs on the host: forward of two ranges, backward, optimizer, a copy between them."""
        self.range(start, start + 990, f"step {start // 1000}")
        self.range(start, start + 400, "forward", by_id=True)
        self.kernel(start + 10, GEMM, runs=start + 450, takes=30)
        self.range(start + 100, start + 200, "computing attention scores")
        self.kernel(start + 110, GEMM, runs=start + 500, takes=50)
        self.kernel(start + 120, GEMM, runs=start + 550, takes=70)
        self.range(start + 200, start + 300, "computing softmax")
        self.kernel(start + 210, SOFTMAX, runs=start + 650, takes=20)
        self.range(start + 500, start + 700, "backward")
        self.kernel(start + 550, GEMM, runs=start + 800, takes=90, thread=AUTOGRAD)
        self.range(start + 700, start + 900, "Optimizer Step")
        self.kernel(start + 710, ADAM, runs=start + 900, takes=40)
        by = self.call(start + 950)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", (start + 960) * 1000, (start + 970) * 1000, 0, 1, 7, by, PID, 4096, 8)

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path


def made(path: Path) -> Made:
    """Returns the export of two steps, with everything that a report says about its machine."""
    found = Made(path)
    for start in (1000, 3000):
        found.step(start)
    found.add("TARGET_INFO_GPU", 0, "NVIDIA Example 80GB", 80 * 2**30)
    found.add("TARGET_INFO_SYSTEM_ENV", 0, "", "Hostname", 1, SECRET)
    found.add("TARGET_INFO_SYSTEM_ENV", 0, "", "EnvironmentVariables", 2, f"TOKEN={SECRET}")
    found.add("META_DATA_CAPTURE", "command", f"python train.py --key {SECRET}")
    found.add("ProcessStreams", PID, found.string("stdout"), found.string(SECRET))  # as in exports of 2022
    found.string(f"/home/{SECRET}/train.py")
    return found


def kernels(db: Path) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Returns calls and time for each step, to the nanosecond, by (phase, range, kernel)."""
    found = rows(db, "SELECT phase, scope, kernel, calls, device_ms FROM kernels")
    return {(r["phase"], r["scope"], r["kernel"]): (r["calls"], round(r["device_ms"], 6)) for r in found}
