"""The output of `nsys stats`, imported to rows computed by hand."""

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.importers.files import import_file
from tests.command import rows
from tests.runner.published.test_reading import write
from tests.synthetic.nsys import GEMM, kernels
from tests.synthetic.nsys_statistics import API_SUM, KERN_SUM, MEM_SUM, NVTX


def sums(db: Path) -> dict[str, tuple[float, float]]:
    """Returns kernel -> calls and time of a trace without phases."""
    return {name: sums for (_, _, name), sums in kernels(db).items()}


def test_statistics(tmp_path: Path, db: Path) -> None:
    """The values are sums over the whole recording, without steps or phases. The host's calls are not kernels, and a
    table that counts the same again is not used."""
    report = import_file(write(tmp_path / "stats.csv", API_SUM + KERN_SUM + MEM_SUM + KERN_SUM), db=db)
    mul = "void at::native::vectorized_elementwise_kernel<(int)4, MulFunctor<float>>(int, T2, T3)"
    assert sums(db) == {GEMM: (96, 83.312), mul: (38, 4.968), "[CUDA memcpy Host-to-Device]": (3, 1.5005)}
    (trace,) = rows(db, "SELECT origin, steps, kernels FROM traces")
    assert trace == {"origin": "nsys", "steps": None, "kernels": 2}
    (line,) = report.lines
    assert line == "stats.csv: 2 different kernels, 88.280 ms, over all that was recorded; copies and sets 1.501 ms."


def test_statistics_of_everything_and_by_grid(tmp_path: Path, db: Path) -> None:
    """cuda_gpu_sum contains kernels and copies; one kernel with two grids is one kernel; times may have units."""
    text = (
        "Time (%),Total Time,Instances,Avg,Med,Min,Max,StdDev,Category,Operation\n"
        "50,83.312 ms,96,1,1,1,1,0,CUDA_KERNEL,ampere_sgemm_128x64_tn\n"
        "30,112 μs,1,1,1,1,1,0,CUDA_KERNEL,ampere_sgemm_128x64_tn\n"
        "20,640 ns,2,1,1,1,1,0,MEMORY_OPER,[CUDA memset]\n"
    )
    import_file(write(tmp_path / "stats.csv", text + KERN_SUM + MEM_SUM), db=db)
    assert sums(db) == {GEMM: (97, 83.424), "[CUDA memset]": (2, 0.00064)}


def test_statistics_by_range(tmp_path: Path, db: Path) -> None:
    """nvtx_kern_sum counts a kernel in every range around it: phases are taken as they are, and the rest of the steps
    is in no phase. Each of 4 steps has 5 products (3 in forward), which take 125 µs together, and 1 copy."""
    text = " ** NVTX Range Kernel Summary (nvtx_kern_sum):\n\n" + NVTX
    report = import_file(write(tmp_path / "nvtx.txt", text), db=db)
    assert kernels(db) == {
        ("forward", "", "gemm"): (3, 0.075), ("unknown", "", "gemm"): (2, 0.050),
        ("optimizer", "", "copy<int, 4>"): (1, 0.010),
    }  # fmt: skip
    assert report.lines == (
        "nvtx.txt: 3 different kernels, 0.135 ms a step, over 4 steps; 63% of it in a known phase.",
        "nvtx.txt: ranges that are no phase and no step were not read (“attention”).",
    )


def test_ranges_that_are_no_phases_are_named(tmp_path: Path, db: Path) -> None:
    ranges = "NVTX Range,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\n:a,1,4,400,gemm\n:b,1,3,300,gemm\n"
    with pytest.raises(UsageError, match="ranges that are no phase and no step"):
        import_file(write(tmp_path / "alone.csv", ranges), db=db)
    whole = "\nTime (%),Total Time (ns),Instances,Name\n100,1000,10,gemm\n"
    report = import_file(write(tmp_path / "both.csv", ranges + whole), db=db)
    assert kernels(db) == {("unknown", "", "gemm"): (10, 0.001)}
    assert report.lines[1] == "both.csv: ranges that are no phase and no step were not read (“a”, “b”)."
