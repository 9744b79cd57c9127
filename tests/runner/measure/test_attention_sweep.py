"""Rows of a sweep of attention: one out of memory, one that works, and those that a CPU does not support."""

from pathlib import Path

import pytest

from runner.measure.limits import parse_refusal
from runner.schema import AttentionCell, AttentionRow, Cell
from tests.command import rows, run


def test_statistics_of_allocators_become_columns() -> None:
    cuda = (
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 4.50 GiB is "
        "free. Process 7 has 135.30 GiB memory in use. Of the allocated memory 130.25 GiB is allocated by PyTorch, and "
        "4.19 GiB is reserved by PyTorch but unallocated."
    )
    gib = 2**30
    assert parse_refusal(cuda) == {
        "asked_bytes": 8 * gib, "in_use_bytes": round(130.25 * gib), "device_bytes": round(139.80 * gib)
    }  # fmt: skip
    cpu = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 51200000000 bytes. Error code 12"
    assert parse_refusal(cpu) == {"asked_bytes": 51_200_000_000}
    assert parse_refusal("Something else.") == {}


@pytest.fixture(scope="module")
def db(module_db: Path) -> Path:
    """Returns the file of a sweep whose longest cell requests 8 x 120,000 x 120,000 x 4 bytes at once, which every
    machine refuses."""
    grid = "--seq-lens 128,120000 --d-heads 16 --batch 8 --precisions fp32 --backends eager --attention naive,flex"
    limits = "--cache hot,cold --causal false --rounds 1 --steps 3 --max-steps 3 --warmup 1 --device cpu"
    done = run("sweep", "--experiment", "attention", *grid.split(), *limits.split(), db=module_db, code=0)
    assert "forward asked for 429 GiB more than the 234 MiB in use" in done.stdout
    assert "oom" in run("show", db=module_db).stdout
    return module_db


def test_out_of_memory_is_a_row_with_its_whole_key_and_bytes(db: Path) -> None:
    (found,) = rows(db, "FROM attention WHERE status = 'oom'")
    asked = AttentionCell(**{name: found[name] for name in AttentionCell.names()})
    assert (asked.seq_len, asked.d_head, asked.batch, asked.causal) == (120_000, 16, 8, False)
    assert found["cell_key"] == asked.key
    assert found["failed_phase"] == "forward"
    assert found["asked_bytes"] == found["tensor_bytes"] == 8 * 120_000**2 * 4
    assert found["in_use_bytes"] == 4 * 8 * 120_000 * 16 * 4, "queries, keys, values, the output's gradient"
    assert found["asked_bytes"] > found["device_bytes"] > 2**28
    assert found["predicted_peak_bytes"] > 3 * found["tensor_bytes"]
    assert found["forward_flops"] == 4 * 8 * 120_000**2 * 16
    assert "tried to allocate 460800000000 bytes" in found["message"]
    assert found["steps"] is None


def test_the_next_cell_starts_clean_and_is_complete(db: Path) -> None:
    (found,) = rows(db, "FROM attention WHERE status = 'ok'")
    own = {column for column in AttentionRow.__dataclass_fields__ if column not in dir(Cell)}
    unknown = {name for name in own if found[name] is None}
    failures = {"failed_phase", "message", "asked_bytes", "in_use_bytes", "device_bytes"}
    only_on_cuda = {"peak_reserved_bytes", "bound", "device_share", "unwaited_seconds"}
    assert unknown == failures | only_on_cuda | {"compile_seconds", "compile_threads", "naive_error"}
    assert min(found["page_faults"], found["context_switches"]) >= 0
    timings = {row["phase"]: row for row in rows(db, "FROM timings")}
    assert set(timings) == {"forward", "backward", "forward_backward", "step"}
    assert {(row["loop_ms"], row["device_ms"]) for row in timings.values()} == {(None, None)}, "a CPU has neither"
    assert timings["forward"]["n"] == found["steps"] == 3
    seconds = timings["forward"]["median_ms"] / 1e3
    assert found["forward_flops_per_s"] == pytest.approx(found["forward_flops"] / seconds)
    assert found["forward_bytes_per_s"] == pytest.approx(4 * 8 * 128 * 16 * 4 / seconds)
    backward = timings["backward"]["median_ms"] / 1e3
    assert found["backward_flops_per_s"] == pytest.approx(2.5 * found["forward_flops"] / backward)


def test_implementations_that_a_cpu_lacks_are_skipped_with_the_reason(db: Path) -> None:
    found = rows(db, "FROM attention WHERE status = 'skipped'")
    assert len(found) == 6
    for row in found:
        reason = "no flex kernel for cpu" if row["implementation"] == "flex" else "Only on CUDA is the cache emptied"
        assert reason in row["message"]
