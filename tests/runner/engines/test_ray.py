"""A Ray cluster of two nodes on this machine: every cell of a plan gets one row, whichever process dies."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

pytest.importorskip("ray")

from runner.engines.ray import list_spots
from runner.errors import UsageError
from runner.store.spool import Spool
from tests.command import ROOT, TINY, ended, planned, rows, start
from tests.synthetic.stored import read

#: 60 cells of 15 sizes.
WORDS = (*TINY, "--contexts", ",".join(str(4 * number) for number in range(2, 17)), "--precisions", "fp32,bf16",
         "--modes", "inference,train")  # fmt: skip
CELLS = 60

#: Two nodes with one `TOY` each. Prints their address and process ids, and waits until its input ends.
CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
cluster = Cluster()
nodes = [cluster.add_node(num_cpus=1, num_gpus=0, resources={"TOY": 1, f"NODE{i}": 1}, object_store_memory=80_000_000)
         for i in range(2)]
print(json.dumps(cluster.address), flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes[int(line)], allow_graceful=False)
    print("removed", flush=True)
cluster.shutdown()
"""


def node(name: str, resources: Mapping[str, float] = MappingProxyType({}), *, alive: bool = True) -> dict[str, object]:
    known = {"CPU": 8.0, "memory": 1e9, f"node:{name}": 1.0}
    return {"Alive": alive, "NodeID": name, "NodeManagerHostname": name, "Resources": {**known, **resources}}


def test_a_place_is_a_gpu_or_a_node() -> None:
    h200 = node("a", {"GPU": 2.0, "accelerator_type:H200": 1.0})
    a100 = node("b", {"GPU": 4.0, "accelerator_type:A100": 1.0})
    off = node("c", {"GPU": 8.0}, alive=False)
    toys, plain = node("d", {"TOY": 3.0}), node("e")
    assert Counter(spot.name for spot in list_spots([h200, a100, off, plain], ())) == {"a": 2, "b": 4}
    assert Counter(spot.name for spot in list_spots([h200, a100, off], ("H200",))) == {"a": 2}
    assert Counter(spot.name for spot in list_spots([h200, a100, toys], ("A100", "TOY"))) == {"b": 4, "d": 3}
    assert Counter(spot.name for spot in list_spots([plain, toys], ())) == {"d": 1, "e": 1}
    with pytest.raises(UsageError, match=r"No node of the cluster has B200.*one of A100, H200"):
        list_spots([h200, a100], ("B200",))
    with pytest.raises(UsageError, match="no node that could measure"):
        list_spots([off], ())


class Cluster:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )  # fmt: skip
        self.address: str = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith(('"', "removed")):
                return line
        raise AssertionError(f"the cluster ended with {self.process.wait()}")

    def remove(self, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self._line()

    def start(self, *words: str, db: Path) -> "subprocess.Popen[str]":
        return start("sweep", *words, "--engine", "ray", db=db, env={"RAY_ADDRESS": self.address})

    def places(self) -> list[psutil.Process]:
        """Returns the processes of the cluster that occupy a place."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if "ray::Actor" in " ".join(process.cmdline())]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    everyone = psutil.Process(found.process.pid).children(recursive=True)
    try:
        found.process.communicate(timeout=60)  # closing its input ends it
    except subprocess.TimeoutExpired:
        for process in everyone:
            process.kill()
        found.process.kill()
        found.process.communicate()


def lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    """Returns the output of the sweep up to the line where so many cells were ok."""
    assert process.stdout is not None
    said: list[str] = []
    while sum(" ok " in line for line in said) < count:
        said.append(process.stdout.readline())
        assert said[-1], said
    return said


def outcomes(db: Path) -> Counter[tuple[str, str]]:
    return Counter(read(db, "SELECT cell_key, status FROM steps"))


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_sixty_cells_on_two_nodes_where_every_process_dies_once(db: Path, cluster: Cluster) -> None:
    keys = {item.cell.key for item in planned(*WORDS)}
    assert len(keys) == CELLS
    process = cluster.start(*WORDS, "--on", "TOY", db=db)
    said = lines(process, 5)
    assert any("2 places" in line for line in said), said
    assert any(f"{CELLS} cells\n" in line for line in said), "those of both places, none of them measured before"
    cluster.places()[0].kill()
    lines(process, 10)
    process.kill()  # the driver
    process.communicate()
    kept = outcomes(db)
    assert len(kept) >= 15
    assert {status for _, status in kept} <= {"ok", "crashed"}
    process = cluster.start(*WORDS, "--on", "TOY", db=db)
    lines(process, 10)
    cluster.remove(1)
    output = ended(process)
    assert process.returncode == 0, output
    assert "has left the cluster" in output
    found = outcomes(db)
    assert {key for key, _ in found} == keys
    assert all(found[key, "ok"] == 1 for key in keys), "every cell is measured once"
    assert sum(count for (_, status), count in found.items() if status != "ok") <= 1, "the cell whose worker was killed"
    assert Spool(db).files() == []
    (run,) = rows(db, "SELECT DISTINCT omp_wait_policy, places FROM runs")
    assert run == {"omp_wait_policy": "PASSIVE", "places": 2}, "the same as in a local run, on two places of this host"


@pytest.mark.soak
def test_missing_resources_are_reported_and_an_interrupt_leaves_no_process(db: Path, cluster: Cluster) -> None:
    process = cluster.start(*TINY, "--on", "B200", db=db)
    output = ended(process)
    assert (process.returncode, "No node of the cluster has B200" in output) == (2, True), output
    process = cluster.start(*WORDS, "--on", "TOY", db=db)
    lines(process, 2)
    places = cluster.places()
    assert len(places) == 2
    process.send_signal(signal.SIGINT)
    output = ended(process)
    assert (process.returncode, "Interrupted" in output, "Traceback" in output) == (130, True, False), output
    assert "has left" not in output
    psutil.wait_procs(places, timeout=60)
    assert not [place for place in places if place.is_running()]
    assert len(outcomes(db)) >= 2
