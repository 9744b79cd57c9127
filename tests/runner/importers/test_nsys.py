"""What Nsight Systems recorded: an export built here from its documented schema, imported to rows worked out by hand.

The export is of one process with two steps. Its kernels run when the host has long closed the range that launched them;
the backward is launched by a thread of autograd's, on which no range was pushed. Files that are none are refused.
"""

import csv
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UsageError
from runner.importers.files import import_file
from runner.importers.nsys import export, recordings, tables
from runner.importers.nsys.ranges import Place, ThreadRanges, phase_of
from tests.command import rows, run

#: As `.schema` prints it for an export, as far as it is read.
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
    """An export being made. Times are in µs, as the host's clock sees them."""

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

    def range(self, start: int, end: int | None, name: str, *, thread: int = MAIN, by_id: bool = False) -> None:
        text, text_id = (None, self.string(name)) if by_id else (name, None)
        ends = None if end is None else end * 1000
        self.add("NVTX_EVENTS", start * 1000, ends, 59, None, text, thread, None, text_id, 0)

    def call(self, at: int, *, thread: int = MAIN) -> int:
        """A runtime call of 5 µs."""
        self.correlation += 1
        name = self.string("cudaLaunchKernel_v7000")
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", at * 1000, (at + 5) * 1000, 0, thread, self.correlation, name, 0)
        return self.correlation

    def kernel(self, at: int, name: str, *, runs: int, takes: int, thread: int = MAIN) -> None:
        correlation, pid = self.call(at, thread=thread), thread & ~0xFFFFFF
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", runs * 1000, (runs + takes) * 1000, 0, 1, 7, correlation, pid,
                 self.string(name), self.string(name[:20]), None, None)  # fmt: skip

    def step(self, start: int) -> None:
        """One step of 1000 µs on the host: forward with two ranges, backward, optimizer, a copy between."""
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
        copied = self.call(start + 950)
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", (start + 960) * 1000, (start + 970) * 1000, 0, 1, 7, copied, PID, 4096, 8
        )

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path


def made(path: Path) -> Made:
    """The export of two steps, with all that a report says of its machine."""
    found = Made(path)
    for start in (1000, 3000):
        found.step(start)
    found.add("TARGET_INFO_GPU", 0, "NVIDIA Example 80GB", 80 * 2**30)
    found.add("TARGET_INFO_SYSTEM_ENV", 0, "", "Hostname", 1, SECRET)
    found.add("TARGET_INFO_SYSTEM_ENV", 0, "", "EnvironmentVariables", 2, f"TOKEN={SECRET}")
    found.add("META_DATA_CAPTURE", "command", f"python train.py --key {SECRET}")
    found.add("ProcessStreams", PID, found.string("stdout"), found.string(SECRET))  # as exports of 2022 have it
    found.string(f"/home/{SECRET}/train.py")
    return found


def kernels(db: Path) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(phase, range, kernel) -> calls and time a step, to the nanosecond."""
    found = rows(db, "SELECT phase, scope, kernel, calls, device_ms FROM kernels")
    return {(r["phase"], r["scope"], r["kernel"]): (r["calls"], round(r["device_ms"], 6)) for r in found}


def test_kernels_are_in_the_range_that_launched_them(tmp_path: Path) -> None:
    """Two equal steps: each number is one step's. No kernel runs while the range that launched it is open."""
    db = tmp_path / "results.duckdb"
    report = import_file(made(tmp_path / "report.sqlite").close(), db=db, label="theirs")
    assert kernels(db) == {
        ("forward", "", GEMM): (1, 0.030),
        ("forward", "computing attention scores", GEMM): (2, 0.120),
        ("forward", "computing softmax", SOFTMAX): (1, 0.020),
        ("backward", "", GEMM): (1, 0.090),
        ("optimizer", "", ADAM): (1, 0.040),
        ("unknown", "", "[CUDA memcpy Device-to-Device]"): (1, 0.010),
    }
    (trace,) = rows(db, "SELECT * FROM traces")
    assert (trace["origin"], trace["title"], trace["steps"], trace["kernels"]) == ("nsys", "report.sqlite", 2, 6)
    assert trace["kernel_ms"] == pytest.approx(0.310)
    classes = {row["kernel"]: row["kernel_class"] for row in rows(db, "SELECT kernel, kernel_class FROM kernels")}
    assert classes == {GEMM: "matmul", SOFTMAX: "softmax", ADAM: "optimizer",
                       "[CUDA memcpy Device-to-Device]": "copy or cast"}  # fmt: skip
    (copy,) = rows(db, "SELECT moved_bytes FROM kernels WHERE kernel_class = 'copy or cast'")
    assert copy["moved_bytes"] == 2 * 4096, "read and written"
    (origin,) = rows(db, "SELECT source, label, device, device_name, device_memory_bytes, host FROM runs")
    assert origin == {"source": "imported", "label": "theirs", "device": "cuda", "device_name": "NVIDIA Example 80GB",
                      "device_memory_bytes": 80 * 2**30, "host": None}  # fmt: skip
    assert report.lines == (
        "report.sqlite: 6 different kernels, 0.310 ms a step, over 2 steps; 97% of it in a known phase.",
    )


def test_nothing_private_is_imported_and_the_person_is_told(tmp_path: Path) -> None:
    """By the names of tables and columns, never by a value; a table that is empty says nothing."""
    db = tmp_path / "results.duckdb"
    done = run("import", str(made(tmp_path / "report.sqlite").close()), db=db)
    assert done.returncode == 0, done.stdout
    assert "0.310 ms a step, over 2 steps" in done.stdout
    assert "TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value); META_DATA_CAPTURE" in done.stdout
    assert "ProcessStreams (globalPid, filenameId, contentId)" in done.stdout
    assert "PROCESS_STREAMS" not in done.stdout
    assert "EXPORT_META_DATA" not in done.stdout
    assert "None of that was imported" in done.stdout
    assert SECRET not in done.stdout
    spilled = [path for path in (*tmp_path.rglob("*.duckdb*"), *tmp_path.rglob("*.json")) if path.is_file()]
    assert spilled
    assert not any(SECRET.encode() in path.read_bytes() for path in spilled)


def test_each_process_is_a_trace(tmp_path: Path) -> None:
    """Two processes whose correlation ids and thread ids are the same; the other one has no ranges and no steps."""
    export = made(tmp_path / "report.sqlite")
    other = PID + (1 << 24)
    export.correlation = 0
    export.kernel(1010, GEMM, runs=1450, takes=7, thread=other + 4242)
    db = tmp_path / "results.duckdb"
    lines = import_file(export.close(), db=db).lines
    found = rows(db, "SELECT title, steps, kernel_ms FROM traces ORDER BY title")
    assert [(row["title"], row["steps"]) for row in found] == [
        ("report.sqlite · process 1", 2),
        ("report.sqlite · process 2", None),
    ]
    assert [row["kernel_ms"] for row in found] == pytest.approx([0.310, 0.007])
    assert lines[1] == "report.sqlite · process 2: 1 different kernels, 0.007 ms, over all that was recorded."


def test_what_an_export_may_lack(tmp_path: Path) -> None:
    """Ranges, runtime calls, and the end of what still ran; a CUDA graph is one thing unless its nodes were traced."""
    export = Made(tmp_path / "report.sqlite")
    export.kernel(10, GEMM, runs=100, takes=20)
    export.kernel(20, GEMM, runs=130, takes=-130)  # an end of 0
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "TARGET_INFO_GPU"):
        export.connection.execute(f"DROP TABLE {table}")
    export.connection.executescript(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
    )
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 200_000, 260_000, 0, 3, PID, 1)
    db = tmp_path / "results.duckdb"
    report = import_file(export.close(), db=db)
    assert kernels(db) == {("unknown", "", GEMM): (1, 0.020), ("unknown", "", "[CUDA graph]"): (1, 0.060)}
    assert report.warning is None
    assert report.lines == ("report.sqlite: 2 different kernels, 0.080 ms, over all that was recorded.",)


@pytest.mark.parametrize(
    ("name", "phase"),
    [("forward", "forward"), ("Forward Pass", "forward"), ("fwd_3", "forward"), ("Backward pass", "backward"),
     ("optimizer step", "optimizer"), ("AdamW", "optimizer"), ("loss", "loss"), ("attention forward", None),
     ("forward_backward", None), ("computing softmax", None)],
)  # fmt: skip
def test_names_of_phases(name: str, phase: str | None) -> None:
    assert phase_of(name) == phase


def test_ranges_nest() -> None:
    """A step is no range of its own, an operator of `emit_nvtx` neither; the last range was never closed."""
    ranges = ThreadRanges(
        [(20, 30, "scores"), (0, 100, "iteration 4"), (10, 50, "forward"), (22, 25, "aten::mm, seq = 7, sizes = [[2]]"),
         (60, 90, "attention"), (70, 80, "backward"), (95, None, "open"), (120, None, "last")]
    )  # fmt: skip
    found = {moment: ranges.at(moment) for moment in (-1, 5, 10, 21, 23, 29, 30, 65, 75, 85, 92, 97, 110, 200)}
    assert found == {
        -1: Place(), 5: Place(), 10: Place("forward"), 21: Place("forward", "scores"),
        23: Place("forward", "scores", "aten::mm"), 29: Place("forward", "scores"), 30: Place("forward"),
        65: Place("", "attention"), 75: Place("backward"), 85: Place("", "attention"), 92: Place(),
        97: Place("", "open"), 110: Place(), 200: Place("", "last"),
    }  # fmt: skip
    assert (ranges.steps, ranges.phases) == (1, {"forward": [(10, 50)], "backward": [(70, 80)]})


# ----------------------------------------------------------------------------------------------- the CSV of nsys stats

KERN_SUM = """\
Processing [/home/somebody/report.sqlite] with [cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
70.9,83312000,96,867833.3,1056000.0,285984,1091000,304322.0,ampere_sgemm_128x64_tn
4.4,4968000,38,130736.8,130736.0,128896,134177,870.0,"void at::native::vectorized_elementwise_kernel<(int)4, MulFunctor<float>>(int, T2, T3)"
"""  # noqa: E501
MEM_SUM = """
Time (%),Total Time (us),Count,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Operation
100.0,"1,500.5",3,500.2,500.2,400,600,10.0,[CUDA memcpy Host-to-Device]
"""
API_SUM = """
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,999999999,12,1.0,1.0,1,1,0.0,cudaLaunchKernel
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def sums(db: Path) -> dict[str, tuple[float, float]]:
    """Of a trace without phases: kernel -> calls and time."""
    return {name: sums for (_, _, name), sums in kernels(db).items()}


def test_statistics(tmp_path: Path) -> None:
    """Sums over all that was recorded: no step, no phase. The host's calls are not kernels; a table that counts the
    same once more does not count."""
    db = tmp_path / "results.duckdb"
    text = API_SUM + KERN_SUM + MEM_SUM + KERN_SUM
    report = import_file(written(tmp_path / "stats.csv", text), db=db)
    mul = "void at::native::vectorized_elementwise_kernel<(int)4, MulFunctor<float>>(int, T2, T3)"
    assert sums(db) == {GEMM: (96, 83.312), mul: (38, 4.968), "[CUDA memcpy Host-to-Device]": (3, 1.5005)}
    (trace,) = rows(db, "SELECT origin, steps, kernels FROM traces")
    assert trace == {"origin": "nsys", "steps": None, "kernels": 3}
    assert report.lines == ("stats.csv: 3 different kernels, 89.781 ms, over all that was recorded.",)


def test_statistics_of_everything_and_by_grid(tmp_path: Path) -> None:
    """cuda_gpu_sum holds kernels and copies; the same kernel of two grids is one; times may bring their unit."""
    text = (
        "Time (%),Total Time,Instances,Avg,Med,Min,Max,StdDev,Category,Operation\n"
        "50,83.312 ms,96,1,1,1,1,0,CUDA_KERNEL,ampere_sgemm_128x64_tn\n"
        "30,112 μs,1,1,1,1,1,0,CUDA_KERNEL,ampere_sgemm_128x64_tn\n"
        "20,640 ns,2,1,1,1,1,0,MEMORY_OPER,[CUDA memset]\n"
    )
    db = tmp_path / "results.duckdb"
    import_file(written(tmp_path / "stats.csv", text + KERN_SUM + MEM_SUM), db=db)
    assert sums(db) == {GEMM: (97, 83.424), "[CUDA memset]": (2, 0.00064)}


#: The same as `nsys stats` prints it where no format is named: names are cut to 100 characters.
KERN_COLUMNS = """\
Processing [report.sqlite] with [/opt/nvidia/nsight-systems/2025.3.2/host-linux-x64/reports/cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)   Med (ns)   Min (ns)  Max (ns)   StdDev (ns)                  Name
 --------  ---------------  ---------  ---------  ---------  --------  ---------  -----------  ------------------------------------
     70.9       83,312,000         96  867,833.3  1,056,000    285,984  1,091,000    304,322.0  ampere_sgemm_128x64_tn
      4.4        4,968,000         38  130,736.8    130,736    128,896    134,177        870.0  void at::native::vectorized_elementw…

 ** CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):

 Time (%)  Total Time (us)  Count  Operation
 --------  ---------------  -----  ------------------------------
    100.0          1,500.5      3  [CUDA memcpy Host-to-Device]

"""  # noqa: E501
API_COLUMNS = """
 ** CUDA API Summary (cuda_api_sum):

 Time (%)  Total Time (ns)  Num Calls  Name
 --------  ---------------  ---------  ----------------
    100.0      999,999,999         12  cudaLaunchKernel
"""
NVTX = """\
NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Kernel Name
:step,PushPop,7,7,4,20,500000,1,1,1,1,0,gemm
:step,PushPop,7,7,4,4,40000,1,1,1,1,0,"copy<int, 4>"
:forward,PushPop,7,7,4,12,300000,1,1,1,1,0,gemm
:attention,PushPop,7,7,8,8,200000,1,1,1,1,0,gemm
optimizer step,PushPop,7,7,4,4,40000,1,1,1,1,0,"copy<int, 4>"
"""


def test_statistics_in_columns(tmp_path: Path) -> None:
    """Thousands have separators, names have spaces and no end, and the host's calls are no kernels."""
    db = tmp_path / "results.duckdb"
    report = import_file(written(tmp_path / "cuda_gpu_kern_sum.txt", API_COLUMNS + KERN_COLUMNS), db=db)
    cut = "void at::native::vectorized_elementw…"
    assert sums(db) == {GEMM: (96, 83.312), cut: (38, 4.968), "[CUDA memcpy Host-to-Device]": (3, 1.5005)}
    assert report.lines == (
        "cuda_gpu_kern_sum.txt: 3 different kernels, 89.781 ms, over all that was recorded.",
    )  # fmt: skip


def columns(table: str) -> str:
    """A table of CSV in columns."""
    rows = list(csv.reader(table.splitlines()))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in wide], *rows[1:]]
    return "\n".join(
        " " + "  ".join(text.rjust(width) for text, width in zip(line, wide, strict=True)) for line in lines
    )


@pytest.mark.parametrize("as_columns", [False, True])
def test_statistics_by_range(tmp_path: Path, as_columns: bool) -> None:
    """nvtx_kern_sum counts a kernel in every range around it: the phases are taken, the steps are the whole, of which
    the rest is in no phase. Of 4 steps each has 5 products (3 of them in forward), 125 µs together, and 1 copy."""
    db = tmp_path / "results.duckdb"
    text = " ** NVTX Range Kernel Summary (nvtx_kern_sum):\n\n" + (columns(NVTX) if as_columns else NVTX)
    report = import_file(written(tmp_path / "nvtx.txt", text), db=db)
    assert kernels(db) == {
        ("forward", "", "gemm"): (3, 0.075), ("unknown", "", "gemm"): (2, 0.050),
        ("optimizer", "", "copy<int, 4>"): (1, 0.010),
    }  # fmt: skip
    assert report.lines == (
        "nvtx.txt: 3 different kernels, 0.135 ms a step, over 4 steps; 63% of it in a known phase.",
    )


def test_statistics_by_ranges_that_are_no_phase(tmp_path: Path) -> None:
    """They are ranges of their own; beside the sum of all kernels only as far as they count none more often than it."""
    nested = "NVTX Range,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\n:a,1,4,400,gemm\n:b,1,{},300,gemm\n"
    whole = "\nTime (%),Total Time (ns),Instances,Name\n100,1000,10,gemm\n"
    expected = {
        nested.format(3): {("unknown", "a", "gemm"): (4, 0.0004), ("unknown", "b", "gemm"): (3, 0.0003)},
        nested.format(3) + whole: {
            ("unknown", "a", "gemm"): (4, 0.0004), ("unknown", "b", "gemm"): (3, 0.0003),
            ("unknown", "", "gemm"): (3, 0.0003),
        },
        nested.format(8) + whole: {("unknown", "", "gemm"): (10, 0.001)},
    }  # fmt: skip
    for number, (text, found) in enumerate(expected.items()):
        db = tmp_path / f"{number}.duckdb"
        report = import_file(written(tmp_path / f"{number}.csv", text), db=db)
        assert kernels(db) == found
        assert ("each range around it" in report.lines[0]) == (number == 0)


# -------------------------------------------------------------------------------------------------------- hostile files


def refused(path: Path, content: bytes, *, db: Path) -> str:
    """The message with which a file is refused; nothing must have been added."""
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        import_file(path, db=db)
    assert not db.exists()
    assert not db.with_name(db.name + ".spool").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.sqlite", b"SQLite format 3\0" + bytes(100), "got "),
        ("a.sqlite", b"SQLite format 3\0" + b"\xff" * 5000, "got "),
        ("a.nsys-rep", b"\x1f\x8b\x08" + bytes(50), "nsys export --type sqlite a.nsys-rep"),
        ("a.json", b'{"traceEvents": []}', "it begins with b'{\"traceEvents\": '"),
        ("a.csv", b"", "got no table"),
        ("a.csv", b"model,tokens/s\nsmall,2\n", "got a table with the headings “model”, “tokens/s”. Expected what"),
        ("a.csv", API_SUM.encode(), "headings “Time (%)”, “Total Time (ns)”, “Num Calls”"),
        ("a.txt", API_COLUMNS.encode(), "got cuda_api_sum with the headings “Time (%)”, “Total Time (ns)”, “Num"),
        ("a.csv", KERN_SUM.replace("83312000", "-5").encode(), "“-5” in line 6"),
        ("a.csv", KERN_SUM.replace(",96,", ",1e9,").encode(), "“1e9” in line 6"),
        ("a.csv", KERN_SUM[: KERN_SUM.index("304322")].encode(), "8 values in line 6"),
        ("a.csv", b'Total Time (ns),Instances,Name\n1,1,"' + b"x" * 200_000 + b'"\n', "100,000 characters in line 2"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    assert words in refused(tmp_path / name, content, db=tmp_path / "results.duckdb")


def test_databases_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tables; a view or a program in place of a table; half a file; more than anybody records."""
    db = tmp_path / "results.duckdb"

    def after(*statements: str) -> bytes:
        path = tmp_path / "made.sqlite"
        path.unlink(missing_ok=True)
        with closing(made(path)) as export:
            for statement in statements:
                export.connection.execute(statement)
        return path.read_bytes()

    target = tmp_path / "report.sqlite"
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE passwords (id INTEGER, value TEXT)")
    assert "a database of something else" in refused(target, other.read_bytes(), db=db)
    drop = "DROP TABLE {}".format
    assert "a database of something else" in refused(target, after(drop("StringIds")), db=db)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end, i AS "
    view = f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless} correlationId, i AS demangledName FROM n"
    dropped = [drop(f"CUPTI_ACTIVITY_KIND_{kind}") for kind in ("KERNEL", "MEMCPY", "MEMSET")]
    assert "nothing of CUDA was recorded" in refused(target, after(*dropped, view), db=db)
    whole = after()
    assert "got " in refused(target, whole[: len(whole) // 2], db=db)
    empty = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY")]
    assert "nothing ran on a GPU" in refused(target, after(*empty), db=db)
    for module, name in ((recordings, "LAUNCHES"), (recordings, "RANGES"), (recordings, "KERNELS")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 3)
            assert "more than 3 " in refused(target, whole, db=db)
    with monkeypatch.context() as patch:
        patch.setattr(export, "SECONDS", -1.0)
        many = (
            "INSERT INTO StringIds SELECT i + 100, 'x' FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        )
        slow = after(f"{many} FROM n LIMIT 300000) SELECT i FROM n)", "UPDATE TARGET_INFO_GPU SET name = 'x'",
                     "INSERT INTO TARGET_INFO_GPU SELECT id, 'x', 1 FROM StringIds")  # fmt: skip
        assert "s of reading" in refused(target, slow, db=db)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "LINES", 5)
        assert "more than 5 lines" in refused(tmp_path / "a.csv", KERN_SUM.encode(), db=db)
    long = after(f"UPDATE StringIds SET value = '{'x' * 1_100_000}' WHERE value = '{GEMM}'")
    assert "string or blob too big" in refused(target, long, db=db)


def test_hostile_values_are_only_text_and_numbers(tmp_path: Path) -> None:
    """Names with markup, control characters and bytes that are no text; times before time began, and for ever."""
    export = Made(tmp_path / "report.sqlite")
    export.range(0, 100, HTML)
    for name in (f"void {HTML}\n\x00\x1b[31m(int)", "y" * 9_000):
        export.kernel(10, name, runs=200, takes=10)
    export.connection.execute("UPDATE StringIds SET value = CAST(x'ff41ff' AS TEXT) WHERE value LIKE 'y%'")
    odd: Any = [(-(2**62), -(2**62) + 5000), (2**62, -(2**62)), (-(2**63), 2**63 - 1)]
    for start, end in odd:
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, 0, 1, 7, 999, PID, 77, 77, None, None)
    db = tmp_path / "results.duckdb"
    import_file(export.close(), db=db)
    found = kernels(db)
    assert {scope for _, scope, _ in found} == {HTML, ""}
    assert {name for _, _, name in found} == {f"void {HTML}   [31m(int)", "\ufffdA\ufffd", "unnamed kernel"}
    assert found["unknown", "", "unnamed kernel"] == (2, round((2**64 - 1 + 5000) / 1e6, 6))


@pytest.mark.parametrize("value", ["'abc'", "x'00ff'", "1e300", "'9" + "9" * 30 + "'"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"), ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
     ("CUPTI_ACTIVITY_KIND_MEMCPY", "end"), ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
     ("CUPTI_ACTIVITY_KIND_RUNTIME", "start"), ("NVTX_EVENTS", "start"), ("NVTX_EVENTS", "globalTid")],
)  # fmt: skip
def test_other_things_than_numbers_are_named(tmp_path: Path, table: str, column: str, value: str) -> None:
    """SQLite keeps whatever it is given in a column of whole numbers."""
    export = made(tmp_path / "made.sqlite")
    export.connection.execute(f"UPDATE {table} SET {column} = {value}")
    words = refused(tmp_path / "report.sqlite", export.close().read_bytes(), db=tmp_path / "results.duckdb")
    assert re.search(r"got (text|a blob|a fraction) in \w+\.", words)
    assert column in words
    assert "Expected whole numbers there" in words


def test_programs_in_place_of_tables_are_not_run(tmp_path: Path) -> None:
    """Columns that are worked out count as missing, whatever they would say; so does a view that never ends."""
    export = made(tmp_path / "made.sqlite")
    export.connection.executescript(
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE NVTX_EVENTS;"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (correlationId INTEGER, globalTid INTEGER, "
        "start INTEGER GENERATED ALWAYS AS ('at ' || correlationId) VIRTUAL);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (correlationId) VALUES (1);"
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS start, i AS end, i AS globalTid, 'forward' AS text FROM n;"
        "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE USING fts5(start, end, correlationId);"
    )
    db = tmp_path / "results.duckdb"
    import_file(export.close(), db=db)
    assert {phase for phase, _, _ in kernels(db)} == {"unknown"}
    assert sum(took for _, took in kernels(db).values()) == pytest.approx(0.620)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sqlite")
    with pytest.raises(UsageError, match="no file but a pipe"):
        import_file(tmp_path / "pipe.sqlite", db=tmp_path / "results.duckdb")


def test_names_and_processes_are_limited_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "report.sqlite")
    path.kernel(5010, GEMM, runs=5450, takes=7, thread=PID + (1 << 24))
    path.close()
    limits = {"PROCESSES": "1 processes", "RANGE_CHARACTERS": "1 characters in ranges", "KERNEL_CHARACTERS": "1 char"}
    for name, words in limits.items():
        with monkeypatch.context() as patch:
            patch.setattr(recordings, name, 1)
            with pytest.raises(UsageError, match=f"more than {words}"):
                import_file(path.path, db=tmp_path / "results.duckdb")
