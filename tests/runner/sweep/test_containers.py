"""A sweep in a container that has less memory than the machine: a real control group, where one can be made."""

import shlex
import sys
from pathlib import Path

import pytest

from runner.store.checking import check_file
from tests import faulty
from tests.command import TINY, execute
from tests.synthetic.stored import read

pytestmark = pytest.mark.soak


def sweep_within(group_limit: Path, db: Path, *, gib: int, **env: str) -> str:
    """Sweeps a cell that needs 6 GiB, which the machine has free, between two small ones, in a group that may use this
    much. Returns what was said of the large one."""
    group_limit.write_text(str(gib * 2**30))
    procs = group_limit.parent / "cgroup.procs"
    words = ("sweep", *TINY, "--contexts", f"8,{faulty.LARGE},16", "--no-ceilings", "--db", str(db))
    line = f"echo $$ > {shlex.quote(str(procs))} && exec {shlex.join((sys.executable, '-m', 'tests.faulty', *words))}"
    done = execute("bash", "-c", line, env=env)
    found = sorted(read(db, "SELECT context, status FROM steps"))
    assert found == [(8, "ok"), (16, "ok"), (faulty.LARGE, "oom")], done.stdout + done.stderr
    assert check_file(db).problems == ()
    assert procs.read_text() == "", "no process may be left"
    ((message,),) = read(db, "SELECT message FROM steps WHERE status = 'oom'")
    return str(message)


def test_a_cell_too_large_for_its_container_says_what_it_asked_for(db: Path, group_limit: Path) -> None:
    message = sweep_within(group_limit, db, gib=2)
    assert f"you tried to allocate {faulty.LARGE**2 * 2 * 4} bytes" in message, "two heads of scores in fp32"


def test_the_out_of_memory_killer_ends_only_the_worker(db: Path, group_limit: Path) -> None:
    """The limit is lowered after the worker has read it."""
    assert "out-of-memory killer" in sweep_within(group_limit, db, gib=8, SQUEEZE=str(group_limit))
