"""Shares of a plan: every cell is in exactly one, on every machine the same, and all take about equally long."""

import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.experiments import kind_of
from runner.experiments.experiment import On
from runner.plan.planning import Request, Shard, parse_shard, plan, take_shard
from runner.schema import Cell
from runner.store.merging import merge_files
from tests.command import ROOT, TINY, execute, planned, rows, run
from tests.some import some

WORDS = (*TINY, "--contexts", "8,16,32,64", "--precisions", "fp32,bf16", "--modes", "inference,train")


@pytest.mark.parametrize(("preset", "of"), some(product(("laptop", "standard", "cs336-2025"), (1, 2, 3))))
def test_every_cell_is_in_one_share(preset: str, of: int) -> None:
    items = plan(Request(preset=preset), device="cuda", device_memory_bytes=80 * 2**30)
    cells: list[Cell] = [item.cell for item in items]
    shares = [take_shard(cells, Shard(number, of), device="cuda") for number in range(1, of + 1)]
    assert Counter(cell.key for share in shares for cell in share) == Counter(cell.key for cell in cells)
    assert [take_shard(cells[::-1], Shard(number, of), device="cuda")[::-1] for number in range(1, of + 1)] == shares


def test_compared_cells_are_in_one_share() -> None:
    cells = [item.cell for item in planned(*WORDS)]
    for number in (1, 2, 3, 4):
        share = take_shard(cells, Shard(number, 4), device="cpu")
        (context,) = {getattr(cell, "context", 0) for cell in share}
        assert len(share) == 4, f"both precisions and modes of context {context} are in one share"


def test_shares_are_even_by_predicted_time() -> None:
    """A grid of many cells with three sizes at four contexts is divided among three machines."""
    request = Request(preset="cs336-2025", axes={"sizes": ("small", "medium", "large")})
    rounds = [plan(replace(request, shard=Shard(number, 3)), device="cuda", device_memory_bytes=None)
              for number in (1, 2, 3)]  # fmt: skip
    on = On(device="cuda", flops_per_s=1e14)
    loads = [sum(kind_of(item.cell).predict(item.cell, on).seconds for item in share) for share in rounds]
    assert max(loads) < 1.2 * min(loads)


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b", "1/0", "", "1/2/3", "-1/2"])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 1/8 to 8/8"):
        parse_shard(text)


def test_more_shares_than_sizes_are_refused(db: Path) -> None:
    assert "at most 1 shares" in run("sweep", *TINY, "--shard", "2/2", "--dry-run", db=db, code=2).stdout


@pytest.mark.soak
@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_the_examples_measure_every_cell_once(tmp_path: Path, db: Path, name: str) -> None:
    """Both tasks of an example run with the variables that its scheduler sets; those of Slurm start in the folder from
    which they were submitted."""
    words, known = [*WORDS, "--no-ceilings"], {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if name == "slurm":
        shutil.copytree(ROOT / "runner", tmp_path / "runner")
        known |= {"SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_SUBMIT_DIR": str(tmp_path)}
        command = ["bash", str(ROOT / "docs/fleet/slurm.sh"), *words]
    else:
        known |= {"SHARES": "2", "RESULTS": str(tmp_path / "results")}
        lines = (ROOT / "docs/fleet/kubernetes.yaml").read_text().split("args:\n")[1].split("- |\n")[1]
        script = lines.split("          resources:")[0].replace("--preset cs336-2025", " ".join(words))
        command = ["bash", "-c", script]
    for number in (0, 1):
        task = {"SLURM_ARRAY_TASK_ID": str(number + 10), "JOB_COMPLETION_INDEX": str(number)}
        execute(*command, env=known | task, code=0)
    files = sorted((tmp_path / "results").glob("*.duckdb"))
    assert [file.name for file in files] == ["share-1.duckdb", "share-2.duckdb"]
    assert not [merged for merged in merge_files(files, into=db) if merged.refused]
    found = Counter(row["cell_key"] for row in rows(db, "SELECT cell_key FROM steps WHERE status = 'ok'"))
    assert found == Counter(item.cell.key for item in planned(*WORDS))
    labels = [row["label"] for row in rows(db, "SELECT label FROM runs ORDER BY label")]
    assert labels == ["share 1 of 2", "share 2 of 2"]
