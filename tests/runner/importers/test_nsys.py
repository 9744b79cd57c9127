"""An export of Nsight Systems (`tests.synthetic.nsys`) becomes rows computed by hand."""

from pathlib import Path

import pytest

from runner.importers.files import import_file
from runner.importers.recordings import LaunchPlace, ThreadRanges, phase_of
from tests.command import rows, run
from tests.synthetic.nsys import ADAM, GEMM, PID, SECRET, SOFTMAX, Made, kernels, made


def test_kernels_are_in_the_range_that_launched_them(tmp_path: Path, db: Path) -> None:
    """There are two equal steps, and each number is for one of them. No kernel runs while the range that launched it is
    open."""
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
    assert (trace["origin"], trace["title"], trace["steps"], trace["kernels"]) == ("nsys", "report.sqlite", 2, 5)
    assert trace["kernel_ms"] == pytest.approx(0.30)
    classes = {row["kernel"]: row["kernel_class"] for row in rows(db, "SELECT kernel, kernel_class FROM kernels")}
    assert classes == {GEMM: "matmul", SOFTMAX: "softmax", ADAM: "optimizer",
                       "[CUDA memcpy Device-to-Device]": "copy or cast"}  # fmt: skip
    (copy,) = rows(db, "SELECT moved_bytes FROM kernels WHERE kernel_class = 'copy or cast'")
    assert copy["moved_bytes"] == 2 * 4096, "the bytes are read and written"
    (origin,) = rows(db, "SELECT source, label, device, device_name, device_memory_bytes, host FROM runs")
    assert origin == {"source": "imported", "label": "theirs", "device": "cuda", "device_name": "NVIDIA Example 80GB",
                      "device_memory_bytes": 80 * 2**30, "host": None}  # fmt: skip
    assert report.lines[:-1] == (
        "report.sqlite: 5 different kernels, 0.300 ms a step, over 2 steps; copies and sets 0.010 ms; "
        "100% of it in a known phase.",
    )


def test_nothing_private_is_imported_and_the_user_is_told(tmp_path: Path, db: Path) -> None:
    done = run("import", str(made(tmp_path / "report.sqlite").close()), db=db, code=0)
    assert "0.300 ms a step, over 2 steps" in done.stdout
    assert "None of that was imported" in done.stdout
    assert SECRET not in done.stdout
    spilled = [path for path in (*tmp_path.rglob("*.duckdb*"), *tmp_path.rglob("*.json")) if path.is_file()]
    assert spilled
    assert not any(SECRET.encode() in path.read_bytes() for path in spilled)


def test_each_process_is_a_trace(tmp_path: Path, db: Path) -> None:
    """Two processes have the same correlation ids and thread ids; the second has no ranges and no steps."""
    export = made(tmp_path / "report.sqlite")
    other = PID + (1 << 24)
    export.correlation = 0
    export.kernel(1010, GEMM, runs=1450, takes=7, thread=other + 4242)
    lines = import_file(export.close(), db=db).lines
    found = rows(db, "SELECT title, steps, kernel_ms FROM traces ORDER BY title")
    assert [(row["title"], row["steps"]) for row in found] == [
        ("report.sqlite · process 1", 2),
        ("report.sqlite · process 2", None),
    ]
    assert [row["kernel_ms"] for row in found] == pytest.approx([0.30, 0.007])
    assert lines[1] == "report.sqlite · process 2: 1 different kernels, 0.007 ms, over all that was recorded."


def test_what_an_export_may_lack(tmp_path: Path, db: Path) -> None:
    """Ranges, runtime calls and the ends of unfinished kernels may be missing. A CUDA graph is one kernel unless its
    nodes were traced."""
    export = Made(tmp_path / "report.sqlite")
    export.kernel(10, GEMM, runs=100, takes=20)
    export.kernel(20, GEMM, runs=130, takes=-130)  # the end is 0
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "TARGET_INFO_GPU"):
        export.connection.execute(f"DROP TABLE {table}")
    export.connection.executescript(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
    )
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 200_000, 260_000, 0, 3, PID, 1)
    report = import_file(export.close(), db=db)
    assert kernels(db) == {("unknown", "", GEMM): (1, 0.020), ("unknown", "", "[CUDA graph]"): (1, 0.060)}
    assert report.lines[:-1] == (
        "report.sqlite: 2 different kernels, 0.080 ms, over all that was recorded.",
        "report.sqlite: left out, without a start or with no end after it: 1 of CUPTI_ACTIVITY_KIND_KERNEL.",
    )


@pytest.mark.parametrize(
    ("name", "phase"),
    [("forward", "forward"), ("Forward Pass", "forward"), ("fwd_3", "forward"), ("Backward pass", "backward"),
     ("optimizer step", "optimizer"), ("AdamW", "optimizer"), ("loss", "loss"), ("attention forward", None),
     ("forward_backward", None), ("computing softmax", None)],
)  # fmt: skip
def test_names_of_phases(name: str, phase: str | None) -> None:
    assert phase_of(name) == phase


def test_ranges_nest() -> None:
    """Neither a step nor an operator of `emit_nvtx` is a range of its own; the last range was never closed."""
    ranges = ThreadRanges(
        [(20, 30, "scores"), (0, 100, "iteration 4"), (10, 50, "forward"), (22, 25, "aten::mm, seq = 7, sizes = [[2]]"),
         (60, 90, "attention"), (70, 80, "backward"), (95, None, "open"), (120, None, "last")]
    )  # fmt: skip
    found = {moment: ranges.at(moment) for moment in (-1, 5, 10, 21, 23, 29, 30, 65, 75, 85, 92, 97, 110, 200)}
    assert found == {
        -1: LaunchPlace(),
        5: LaunchPlace(),
        10: LaunchPlace("forward"),
        21: LaunchPlace("forward", "scores"),
        23: LaunchPlace("forward", "scores", "aten::mm"),
        29: LaunchPlace("forward", "scores"),
        30: LaunchPlace("forward"),
        65: LaunchPlace("", "attention"),
        75: LaunchPlace("backward"),
        85: LaunchPlace("", "attention"),
        92: LaunchPlace(),
        97: LaunchPlace("", "open"),
        110: LaunchPlace(),
        200: LaunchPlace("", "last"),
    }
    assert (ranges.steps, ranges.phases) == (1, {"forward": [(10, 50)], "backward": [(70, 80)]})
