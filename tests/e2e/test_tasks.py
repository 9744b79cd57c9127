"""Five questions are answered on the first screen, at most two clicks from the front page: `tests.bench.tasks`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from runner.schema import NumericsRow, new_id
from runner.schema.sizes import SIZES
from runner.store.spool import Spool
from tests.bench.tasks import HEIGHT, WIDTH, load_tasks, walk
from tests.browser import Site, opened
from tests.runner.measure.test_numerics import cell
from tests.synthetic import memory_rows, rows
from tests.synthetic.sides import run_named

SHAPES: dict[str, dict[str, Any]] = {name: dict(size.numbers) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with two runs of three sizes in three ways, of which compiled bf16 is the fastest; the memory of
    `large` and of a larger size; naive attention that runs out of memory at 8,192 tokens; and errors of bf16."""
    path = tmp_path_factory.mktemp("tasks") / "results.duckdb"
    ways: list[dict[str, Any]] = [{}, {"precision": "bf16"}, {"precision": "bf16", "backend": "compiled"}]
    runs = [run_named(label) for label in ("monday", "tuesday")]
    for of in runs:
        steps = [rows.asked(context=512, **SHAPES[size], **way)
                 for size in ("small", "medium", "large") for way in ways]  # fmt: skip
        rows.store(path, of, [rows.ok(of, step) for step in steps])
    of = runs[-1]
    parts = {"parameters": 4 * 2**30, "activations": 9 * 2**30, "optimizer_state": 8 * 2**30}
    peaks = [memory_rows.memory(of, {name: size * factor for name, size in parts.items()}, **shape, context=512)
             for shape, factor in ((SHAPES["large"], 1), (SHAPES["xl@2026"], 3))]  # fmt: skip
    lengths = [memory_rows.attention(of, seq_len=length, d_head=64) for length in (1024, 2048, 4096)]
    lost = memory_rows.attention(of, seq_len=8192, status="oom", values={"device_bytes": 2**33})
    memory_rows.store(path, [*peaks, *lengths, lost])
    for precision, error in (("fp32", 5e-7), ("bf16", 5e-3)):
        asked = cell(**SHAPES["medium"], context=512, batch=4, precision=precision)
        key = {name: getattr(asked, name) for name in type(asked).names()}
        row = NumericsRow(**key, run_id=of.run_id, cell_id=new_id(), cell_key=asked.key, status="ok", reference="fp64",
                          loss=7.6, loss_error=error / 100, logits_error=error / 2, gradient_error=error)  # fmt: skip
        Spool(path).write({"runs": [of], "numerics": [row]}, str(row.cell_id))
    return rows.store_tables(path, [])


@pytest.fixture(scope="module")
def address(path: Path, site: Site) -> Iterator[str]:
    with site.showing(path) as found:
        yield found


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, 5))])
def test_the_answer_is_on_the_first_screen(browser: Browser, address: str, path: Path, number: int) -> None:
    task = load_tasks(path)[number]
    assert task.answers, task.missing
    with opened(browser, address, width=WIDTH, height=HEIGHT) as visit:
        done = walk(visit.page, task)
    assert done.met, done
    words = (
        "with bf16, compiled",
        "gradients are off by 0.500%",
        "runs out at 8,192 tokens",
        "activations 43%",
        "as fast as",
    )
    assert words[number] in done.line


def test_a_file_without_rows_has_no_answer(tmp_path: Path) -> None:
    of = rows.run()
    path = rows.store(tmp_path / "toys.duckdb", of, [rows.ok(of, rows.asked())])
    assert not [task.question for task in load_tasks(path) if task.answers], (
        "toys have none of the sizes in the questions"
    )
