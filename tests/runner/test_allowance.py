"""What a process may use in a container: control groups as files, and a real one where this machine lets us make it."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from runner import allowance
from tests.command import execute

GIB = 2**30
ALL = psutil.virtual_memory().total


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of this process's control groups, in which there are none yet."""
    monkeypatch.setattr(allowance, "_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(allowance, "_MEMBERSHIP", tmp_path / "membership")
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_without_groups_the_machine_is_the_limit(groups: Path) -> None:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert (allowance.count_cpus(), allowance.cpu_quota(), allowance.total_memory()) == (cpus, None, ALL)
    assert 0 < allowance.free_memory() <= ALL


def test_limits_of_version_2_are_the_tightest_of_all_groups_around(groups: Path) -> None:
    write(groups, membership="0::/pod/container")
    write(groups / "cgroup", cgroup__controllers="cpu memory")
    write(groups / "cgroup/pod", cpu__max="150000 100000", memory__max=str(GIB), memory__current=str(GIB // 2))
    write(groups / "cgroup/pod/container", cpu__max="max 100000", memory__max="max", memory__current="1")
    assert (allowance.cpu_quota(), allowance.count_cpus()) == (1.5, 1), "half a CPU's time pays for no core"
    assert (allowance.total_memory(), allowance.free_memory()) == (GIB, GIB // 2)
    write(groups / "cgroup/pod", memory__stat=f"anon 5\ninactive_file {GIB // 4}")
    assert allowance.free_memory() == GIB // 2 + GIB // 4, "file pages can be had"
    write(groups / "cgroup/pod/container", memory__max="4096", memory__current="5000")
    assert allowance.free_memory() == 0


def test_limits_of_version_1(groups: Path) -> None:
    """The container shows its own group as the root, and no limit is a large number or -1."""
    write(groups, membership="3:memory:/docker/1f\n2:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n0::/")
    write(groups / "cgroup/cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    unlimited = str(2**63 - 4096)
    write(groups / "cgroup/memory", memory__limit_in_bytes=unlimited, memory__usage_in_bytes=str(GIB))
    assert (allowance.cpu_quota(), allowance.total_memory()) == (None, ALL)
    write(groups / "cgroup/cpu", cpu__cfs_quota_us="50000")
    write(groups / "cgroup/memory", memory__limit_in_bytes=str(2 * GIB), memory__stat="total_inactive_file 1024")
    assert (allowance.cpu_quota(), allowance.count_cpus()) == (0.5, 1)
    assert (allowance.total_memory(), allowance.free_memory()) == (2 * GIB, GIB + 1024)


def test_a_process_in_a_real_group_may_take_what_the_kernel_would_give_it(group_limit: Path) -> None:
    group_limit.write_text(str(256 * 2**20))
    joined = f"import os; open({str(group_limit.parent / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    asked = "from runner.allowance import free_memory, total_memory; print(total_memory(), free_memory())"
    total, free = map(int, execute(sys.executable, "-c", f"{joined}; {asked}", code=0).stdout.split())
    assert total == 256 * 2**20
    assert 0 < free < total
