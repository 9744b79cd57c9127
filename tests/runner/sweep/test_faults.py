"""Everything that can go wrong while a sweep runs, once each. It ends in a status or a message, no finished cell is
lost or doubled, and the next sweep continues. `test_kills` tests kills of the runner.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psutil
import pytest

from runner.errors import INTERRUPTED
from runner.store.checking import check_file
from runner.store.spool import Spool
from tests import faulty
from tests.command import TINY, awaited, ended, family, gone, planned, rows, run_apart, start, workers
from tests.synthetic.stored import read

pytestmark = pytest.mark.soak
CONTEXTS = ("8", "12", "16", "20", "24", "28")
WORDS = (*TINY, "--contexts", ",".join(CONTEXTS))


def outcomes(db: Path) -> Counter[tuple[int, str]]:
    return Counter(read(db, "SELECT context, status FROM steps"))


def check_continues(db: Path, kept: int) -> None:
    """Asserts that the same command measures the missing cells, then every cell is there once and nothing is wrong."""
    done = run_apart("sweep", *WORDS, db=db, code=0)
    assert f"{kept} of them measured before" in done.stdout if kept else True, done.stdout
    found = Counter(read(db, "SELECT cell_key FROM steps WHERE status = 'ok'"))
    assert found == Counter((item.cell.key,) for item in planned(*WORDS))
    assert check_file(db).problems == ()
    assert Spool(db).files() == Spool(db).plans() == []


def test_a_worker_that_dies_hangs_or_cannot_import_is_a_row_and_affects_no_other(db: Path) -> None:
    contexts = f"8,{faulty.KILLED},12,{faulty.HUNG},16,{faulty.NOT_IMPORTED},20"
    process = start("sweep", *TINY, "--contexts", contexts, "--timeout", "20s", db=db, module="tests.faulty")
    output = ended(process)
    assert process.returncode == 1, output
    assert outcomes(db) == Counter(
        [(8, "ok"), (12, "ok"), (16, "ok"), (20, "ok"),
         (faulty.KILLED, "crashed"), (faulty.HUNG, "timeout"), (faulty.NOT_IMPORTED, "error")]
    )  # fmt: skip
    said = dict(read(db, "SELECT context, message FROM steps"))
    assert "SIGKILL" in said[faulty.KILLED]
    assert "a_package_that_nobody_has" in said[faulty.NOT_IMPORTED]
    assert check_file(db).problems == ()


@pytest.mark.gpu
def test_after_a_sticky_error_of_cuda_the_next_cell_is_clean(db: Path) -> None:
    process = start(
        "sweep", *TINY, "--contexts", f"{faulty.STICKY},16,20", "--device", "cuda", db=db, module="tests.faulty"
    )
    output = ended(process)
    assert process.returncode == 1, output
    assert outcomes(db) == Counter([(faulty.STICKY, "error"), (16, "ok"), (20, "ok")]), output


def test_a_fork_server_that_is_killed_is_started_again(db: Path) -> None:
    process = start("sweep", *WORDS, db=db)
    awaited(process, lambda: Spool(db).plans() and workers(process))  # the machine has been described
    for server in {child.parent() for child in workers(process)}:
        if server is not None:
            server.kill()
    output = ended(process)
    assert process.returncode in (0, 1), output
    statuses = [status for _, status in outcomes(db)]
    assert len(statuses) == len(CONTEXTS), output
    assert statuses.count("crashed") <= 1, output
    check_continues(db, kept=statuses.count("ok"))


def test_a_clock_that_is_set_back_changes_nothing(db: Path) -> None:
    """The clock is set back by an hour after the run and two cells have their ids."""
    process = start("sweep", *WORDS, db=db, env={"CLOCK": "3"}, module="tests.faulty")
    output = ended(process)
    assert process.returncode == 0, output
    cells = rows(db, "SELECT context, cell_id, started_at, cell_seconds FROM steps ORDER BY cell_id")
    assert len(cells) == len({cell["cell_id"] for cell in cells}) == len(CONTEXTS)
    printed = [line.split("ctx ")[-1] for line in output.splitlines() if " ok " in line]
    assert len(printed) == len(CONTEXTS)
    assert all(0 < cell["cell_seconds"] < 300 for cell in cells)
    check_continues(db, kept=len(CONTEXTS))


def test_ctrl_c_twice_is_one_message_and_leaves_no_process(db: Path) -> None:
    process = start("sweep", *WORDS, db=db, stderr=subprocess.PIPE, start_new_session=True)
    while not workers(process):
        assert process.poll() is None
    everyone = family(process)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=200)[1]
    assert process.returncode in (130, -signal.SIGINT), said
    # If the sweep had parsed its command before the second interrupt, the command to continue follows the message.
    command = f"  {shlex.join(['python', '-m', 'runner', 'sweep', *WORDS, '--no-ceilings', '--db', str(db)])}"
    assert said.splitlines() in ([], [INTERRUPTED], [INTERRUPTED] * 2, [INTERRUPTED, command]), said
    assert gone(everyone)
    kept = sum(outcomes(db).values()) if db.exists() or Spool(db).files() else 0
    check_continues(db, kept=kept)


def test_two_sweeps_of_one_file_measure_every_cell_once(db: Path) -> None:
    both = [start("sweep", *WORDS, db=db) for _ in range(2)]
    outputs = [ended(process) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("waiting for it to end" in output for output in outputs) == 1
    assert sum("Nothing to measure" in output for output in outputs) == 1
    check_continues(db, kept=len(CONTEXTS))


def test_a_machine_that_is_suspended_goes_on(db: Path) -> None:
    process = start("sweep", *WORDS, db=db)
    awaited(process, lambda: workers(process))
    stopped = [psutil.Process(process.pid), *family(process)]
    for one in stopped:
        _signal(one, signal.SIGSTOP)
    states = (psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP)  # the signal arrives when the system delivers it
    awaited(process, lambda: psutil.Process(process.pid).status() in states)
    for one in reversed(stopped):
        _signal(one, signal.SIGCONT)
    output = ended(process)
    assert process.returncode == 0, output
    check_continues(db, kept=len(CONTEXTS))


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    if process.is_running():
        process.send_signal(number)


def test_a_file_that_another_program_keeps_open_during_a_sweep(db: Path) -> None:
    """A notebook has the file open for writing: every cell waits in the spool, and the sweep reports it."""
    assert run_apart("sweep", *TINY, "--contexts", CONTEXTS[0], db=db).returncode == 0
    process = start("sweep", *WORDS, db=db)
    awaited(process, lambda: Spool(db).plans())
    with duckdb.connect(str(db)) as notebook:
        output = ended(process)
        assert notebook.execute("SELECT count(*) FROM steps").fetchone()
    assert process.returncode == 0, output
    assert f"Another program holds {db}" in output
    spooled = [file for file in Spool(db).files() if not file.name.startswith(("run-", "ceilings-"))]
    assert len(spooled) >= len(CONTEXTS) - 2, "only cells from before the file was opened are in it"
    check_continues(db, kept=len(CONTEXTS))


def test_a_folder_that_disappears_during_a_sweep(tmp_path: Path) -> None:
    db, elsewhere = tmp_path / "results" / "results.duckdb", tmp_path / "elsewhere"
    process = start("sweep", *WORDS, db=db)
    awaited(process, lambda: db.exists() and Spool(db).plans())
    db.parent.rename(elsewhere)
    output = ended(process)
    assert process.returncode == 2, output
    assert f"{db.parent} is gone" in output
    assert "Traceback" not in output
    assert not db.parent.exists(), "the sweep must not create it again"
    elsewhere.rename(db.parent)
    check_continues(db, kept=sum(outcomes(db).values()))


# ------------------------------------------------------------------------------------------------- full and read-only


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yields a disk of 24 MiB. Creating one requires root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Uses all the space that is left on the disk."""
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        return ballast


@pytest.mark.parametrize("what", ["database", "spool", "temporary folder"])
def test_a_full_disk(db: Path, disk: Path, what: str) -> None:
    """The disk with the database, its spool or the temporary folder is full from before the second cell."""
    assert run_apart("sweep", *TINY, "--contexts", CONTEXTS[0], db=db).returncode == 0
    env = {}
    if what == "database":
        shutil.move(db, disk / db.name)
        db.symlink_to(disk / db.name)
    elif what == "spool":
        shutil.move(Spool(db).folder, disk / "spool")
        Spool(db).folder.symlink_to(disk / "spool")
    else:
        env = {"TMPDIR": str(disk)}
    ballast = fill(disk)
    done = run_apart("sweep", *WORDS, db=db, env=env)
    assert "Traceback" not in done.stdout, done.stdout
    if what != "temporary folder" or done.returncode:
        assert (done.returncode, "No space left" in done.stdout) == (2, True), done.stdout
    kept = sum(outcomes(db).values())
    assert kept >= 1
    assert not [file for file in Spool(db).folder.iterdir() if file.name.endswith(".tmp")]
    ballast.unlink()
    check_continues(db, kept=kept)


def test_a_read_only_folder_is_an_error_before_anything_is_measured(disk: Path) -> None:
    db = disk / "results.duckdb"
    assert run_apart("sweep", *TINY, "--contexts", CONTEXTS[0], db=db).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert "cannot be written: Read-only file system" in run_apart("sweep", *WORDS, db=db, code=2).stdout
    assert outcomes(db) == Counter([(8, "ok")]), "the file can still be read"
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    check_continues(db, kept=1)


def test_temporary_files_of_a_killed_sweep_are_removed(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="killed-"))  # not tmp_path, because a socket's path must be short
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start("sweep", *WORDS, db=db)
    awaited(process, lambda: workers(process))
    everyone = family(process)
    process.kill()
    process.communicate()
    assert gone(everyone)
    assert [name for name in os.listdir(temporary) if name.startswith("pymp-")]
    check_continues(db, kept=0)
    left = [name for name in os.listdir(temporary) if name.startswith(("stepscope-", "pymp-"))]
    assert left == [f"stepscope-{os.getuid()}.lock"]
    shutil.rmtree(temporary)
