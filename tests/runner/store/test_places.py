"""What stands where a file is expected: links, pipes, devices, closed folders, a full disk, a folder that is gone.

Every command ends at once in one sentence and a non-zero exit code, and leaves what is there as it is.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import StoreError
from runner.places import write_text
from runner.store.database import ingest, look_through
from runner.store.spool import Spool
from tests.command import ROOT, execute, run
from tests.some import some
from tests.synthetic import rows
from tests.synthetic.stored import read

#: Longer than any command takes on a busy machine, torch imported too; a pipe would be waited for without end.
QUICK_S = 100.0


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return rows.store(tmp_path / "stored.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])


Make = Callable[[Path], None]
#: How something else than a file is made, and what is said of it.
KINDS: dict[str, tuple[Make, str]] = {
    "pipe": (os.mkfifo, "it is a pipe"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "link to nowhere"),
    "circle": (lambda path: path.symlink_to(path.name), "in a circle"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
}
kinds = pytest.mark.parametrize(("make", "said"), some(KINDS.values(), [KINDS["pipe"]]), ids=[*KINDS])


def refused(*words: str, db: Path, said: str, code: int = 2) -> None:
    began = time.monotonic()
    done = run(*words, db=db)
    assert time.monotonic() - began < QUICK_S
    assert (done.returncode, said in " ".join(done.stdout.split())) == (code, True), done.stdout


@kinds
def test_no_command_opens_what_is_no_file(tmp_path: Path, stored: Path, make: Make, said: str) -> None:
    make(path := tmp_path / "odd.duckdb")
    for words in (["show"], ["doctor"], ["show", "runs"], ["report"], ["show", "--findings"], ["note", "one", "text"]):
        refused(*words, db=path, said=said)
    refused("export", str(tmp_path / "copy.duckdb"), db=path, said=said)
    refused("import", str(path), db=stored, said=said)
    refused("import", str(path), str(path), db=stored, said=said, code=1)
    refused("import", str(stored), str(stored), db=path, said=said)
    refused("sweep", "--sizes", "toy-64", "--contexts", "16", db=path, said=said)
    refused("report", "--question", "step", "--out", str(path), db=stored, said=said)
    assert path.is_symlink() or path.is_fifo(), "it is left as it is"


def test_a_file_that_says_that_it_is_empty_is_not_waited_for(tmp_path: Path, stored: Path) -> None:
    (tmp_path / "empty.md").touch()
    for path in (tmp_path / "empty.md", *filter(Path.exists, [Path("/proc/kmsg")])):
        refused("import", str(path), db=stored, said=f"{path} cannot be read: it is empty")


@kinds
def test_a_table_a_mapping_and_a_configuration_are_files(tmp_path: Path, stored: Path, make: Make, said: str) -> None:
    make(path := tmp_path / "odd.md")
    refused("import", str(path), db=stored, said=said)
    (table := tmp_path / "table.md").write_text("| size | forward (ms) |\n|---|---|\n| small | 3 |\n")
    refused("import", str(table), "--mapping", str(path), db=stored, said=said)
    refused("sweep", "--model", f"hf:{path}", "--contexts", "16", db=stored, said=said)
    refused("sweep", "--config", str(path), db=stored, said=said)


@kinds
def test_what_belongs_to_a_file_is_read_as_carefully(tmp_path: Path, stored: Path, make: Make, said: str) -> None:
    """DuckDB's log beside the file, tables of a packed folder, the spool of a file that is imported or copied."""
    for name, odd in (("log.duckdb", "log.duckdb.wal"), ("packed", "packed/runs.parquet")):
        (place := tmp_path / name).mkdir() if name == "packed" else shutil.copy(stored, place := tmp_path / name)
        make(tmp_path / odd)
        refused("show", db=place, said=said)
    for odd in ("spooled.duckdb.spool", "entry.duckdb.spool/0.json"):
        shutil.copy(stored, source := tmp_path / f"{odd.partition('.')[0]}.duckdb")
        (tmp_path / odd).parent.mkdir(exist_ok=True)
        make(tmp_path / odd)
        refused("export", str(tmp_path / "copy.duckdb"), db=source, said=said)
        refused("import", str(source), db=stored, said=said)
        assert not (tmp_path / "copy.duckdb").exists()
        assert run("doctor", db=source).returncode == 1
    make(tmp_path / "odd")
    refused("sweep", "--sizes", "toy-64", db=tmp_path / "spooled.duckdb", said="spooled.duckdb.spool is no folder")
    refused("sweep", "--sizes", "toy-64", db=tmp_path / "odd" / "new.duckdb", said="odd")


@kinds
def test_an_odd_entry_of_the_spool_is_named_and_set_aside(stored: Path, make: Make, said: str) -> None:
    rows.spooled(stored, of := rows.run(), rows.ok(of, rows.asked(context=32)))
    make(entry := Spool(stored).folder / "0.json")
    assert read(stored, "SELECT count(*) FROM steps") == [(2,)]
    assert list(look_through(stored).broken) == ["0.json"]
    assert "0.json" in run("show", db=stored).stdout
    assert run("doctor", db=stored).returncode == 1
    with pytest.warns(UserWarning, match=r"0\.json"):
        assert ingest(stored) == 1, "it does not block the others"
    assert not os.path.lexists(entry)
    assert os.path.lexists(entry.with_name("0.json.bad"))
    assert ingest(stored) == 0


def test_a_deleted_working_folder_is_one_sentence(tmp_path: Path, stored: Path) -> None:
    code = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(os.getcwd()); os.execv(sys.argv[2], sys.argv[2:])"
    for words in (["show", "runs", "--db", str(stored)], ["report"]):
        (folder := tmp_path / "gone").mkdir()
        done = execute(sys.executable, "-c", code, str(folder), sys.executable, "-m", "runner", *words, code=2)
        assert "The working folder cannot be used" in done.stderr
        assert "Traceback" not in done.stderr


def limited(size: int, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs code in a process in which no file can grow beyond `size`, as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    prelude = "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfrom pathlib import Path\n"
    command = [sys.executable, "-B", "-c", prelude + code, *map(str, arguments)]  # it would cache half a module
    return execute(*command, preexec_fn=limit)


@pytest.mark.soak
def test_an_earlier_report_survives_a_full_disk(tmp_path: Path, stored: Path) -> None:
    out = tmp_path / "report.md"
    assert run("report", "--out", str(out), db=stored).returncode == 0
    before = out.read_bytes()
    assert len(before) > 1000
    code = "from runner.cli.main import app; app(['report', '--out', sys.argv[1], '--db', sys.argv[2]])"
    done = limited(500, code, out, stored)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: File too large" in " ".join(done.stderr.split())
    assert out.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".part")] == []


def test_a_full_disk_is_not_called_a_foreign_file(tmp_path: Path, stored: Path) -> None:
    of = rows.run()
    for number in range(1, 40):
        rows.spooled(stored, of, rows.ok(of, rows.asked(context=number)))
    size = stored.stat().st_size
    code = "from runner.store.database import ingest; ingest(sys.argv[1], patience_s=5.0)"
    done = limited(size // 2, code, stored)
    assert done.returncode != 0
    assert "not a results file" not in done.stderr
    assert "StoreError" in done.stderr
    ingest(stored)
    assert read(stored, "SELECT count(*) FROM steps") == [(40,)], "nothing was lost"
    code = "from runner.store.packing import copy_file; copy_file(*map(Path, sys.argv[1:]))"
    done = limited(size // 2, code, stored, tmp_path / "copy.duckdb")
    assert "not a results file" not in done.stderr
    assert "StoreError" in done.stderr
    assert not (tmp_path / "copy.duckdb").exists()


#: What takes long to import, by the words of commands that end before they need it.
HEAVY = ("duckdb", "torch", "pandas", "numpy")
_LIGHT = (
    "show --db /dev/zero", "compare a b --db /dev/zero", "note a b --db /dev/zero", "app --db /dev/zero",
    "doctor --db /dev/zero", "report --out /dev/full", "export /dev/full/copy.duckdb", "import /dev/zero",
    "import table.md --db /dev/zero", "model hf:/dev/zero", "--help", "",
)  # fmt: skip
_PLANS = (
    "sweep --model hf:/dev/zero", "sweep --config /dev/zero", "sweep --db /dev/zero", "ab --db /dev/zero",
    "show --help", "sweep --help",
)  # fmt: skip
WAITS_FOR_NOTHING = {**dict.fromkeys(_LIGHT, (*HEAVY, "runner.schema")), **dict.fromkeys(_PLANS, HEAVY)}


@pytest.mark.parametrize("line", some(WAITS_FOR_NOTHING))
def test_a_place_is_looked_at_before_anything_is_imported_or_computed(stored: Path, line: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "runner", *line.split()]
    done = execute(*command, env={"COLUMNS": "300", "STEPSCOPE_DB": str(stored)})
    imported = {name.strip() for name in re.findall(r"^import time: .*\|(.*)$", done.stderr, re.MULTILINE)}
    assert "runner.places" in imported
    assert imported & {*WAITS_FOR_NOTHING[line]} == set()
    refused = "/dev/" in line
    assert (done.returncode, "error: /dev/" in done.stderr) == (2 if refused else 0, refused), done.stderr


def test_a_written_file_is_whole_or_the_earlier_one(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "page.html", "whole")
    assert (tmp_path / "new" / "page.html").read_text() == "whole"
    with pytest.raises(StoreError, match="it is a folder"):
        write_text(tmp_path / "new", "text")
    with pytest.raises(StoreError, match="Not a directory"):
        write_text(tmp_path / "new" / "page.html" / "below", "text")


# ------------------------------------------------------------------------------------------------- two users


NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs a second user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Returns a folder that everybody can enter, as far as the temporary folder can be entered."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o5 != 0o5:
            parent.chmod(parent.stat().st_mode | 0o5)
    return folder


def as_nobody(*words: str, cwd: str = "/", **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` as a user who owns nothing."""
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, *words]
    env |= {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "COLUMNS": "300", "PATH": os.environ["PATH"]}
    env |= {"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


@as_root
@pytest.mark.parametrize("closed", some(["a cell", "the plan", "the spool", "all but the file", "names alone"]))
def test_what_another_user_may_not_read_is_left_out_and_named(shared: Path, closed: str) -> None:
    path = rows.store(shared / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    rows.spooled(path, of, rows.ok(of, rows.asked(context=32)))
    rows.spooled(path, of, rows.ok(of, rows.asked(context=64)))
    spool = Spool(path)
    spool.write_plan([], of.run_id)
    path.chmod(0o644)
    spool.folder.chmod(0o755)
    for file in spool.folder.iterdir():
        file.chmod(0o600 if closed == "all but the file" else 0o644)
    place = {"a cell": spool.files()[0], "the plan": spool.plans()[0]}.get(closed, spool.folder)
    place.chmod({"a cell": 0o600, "the plan": 0o600, "names alone": 0o644}.get(closed, 0o700))
    done = as_nobody("-m", "runner", "show", "runs", "--db", str(path))
    text = done.stdout + done.stderr
    if "No module named" in text or "Permission denied: '/work" in text or "can't open" in text:
        pytest.skip("the other user cannot read the checkout")
    assert done.returncode == 0, text
    assert place.name in text
    assert "Permission denied" in text
    assert "chmod" in text
    done = as_nobody("-m", "runner", "doctor", "--db", str(path))
    assert done.returncode == 1
    assert f"{place.name} cannot be read: Permission denied. Let this user read it (chmod a+rX)" in done.stdout
    assert "set aside" not in done.stdout


@as_root
def test_a_file_or_a_folder_that_one_may_not_use_is_one_sentence(shared: Path) -> None:
    path = rows.store(shared / "in" / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    path.chmod(0o600)
    for place, command in ((path, "doctor"), (path.parent, "report")):
        place.chmod(0o600)
        done = as_nobody("-m", "runner", command, "--db", str(path))
        assert done.returncode == 2, done.stderr
        said = " ".join(done.stderr.replace("│", "").split())
        assert "Permission denied" in said or "is not readable" in said
        assert "Traceback" not in done.stderr
        assert "not a results file" not in done.stderr
    path.parent.chmod(0o555)
    path.chmod(0o644)
    new, copy, report = (path.parent / name for name in ("new.duckdb", "copy.duckdb", "r.md"))
    sweeps = f"sweep --sizes toy-64 --contexts 16 --db {new}"
    for line in (sweeps, f"export {copy} --db {path}", f"report --out {report} --db {path}"):
        done = as_nobody("-m", "runner", *line.split())
        assert (done.returncode, "cannot be written: Permission denied" in done.stderr) == (2, True), done.stderr


#: Asks the routes and draws the first page as whoever runs it, and prints what came.
_SERVER = """
import json
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from pages.api.routes import ROUTES
client = TestClient(Starlette(routes=ROUTES), raise_server_exceptions=False)
found = {name: client.get(name).status_code for name in ("/healthz", "/api/v1/state", "/api/v1/rows.json?table=steps")}
page = AppTest.from_file("pages/main.py", default_timeout=100).run()
print(json.dumps([found, [one.message for one in page.exception], [one.value for one in [*page.warning, *page.error]]]))
"""


def ask_server(path: Path) -> tuple[dict[str, int], list[str], str]:
    done = as_nobody("-c", _SERVER, cwd=str(ROOT), STEPSCOPE_REFERENCE="", STEPSCOPE_DB=str(path))
    assert done.returncode == 0, done.stderr
    statuses, exceptions, warnings = json.loads(done.stdout.splitlines()[-1])
    return statuses, exceptions, " ".join(warnings)


@pytest.mark.soak
@as_root
def test_the_server_of_another_user_names_what_it_leaves_out_or_says_503(shared: Path) -> None:
    path = rows.store(shared / "in" / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    rows.spooled(path, of, rows.ok(of, rows.asked(context=32)))
    path.chmod(0o644)
    (file,) = Spool(path).files()
    file.chmod(0o600)
    statuses, exceptions, warnings = ask_server(path)
    assert set(statuses.values()) == {200}, statuses
    assert exceptions == []
    assert file.name in warnings.replace("\\", "")
    for closed in (path, path.parent):
        closed.chmod(0o600)
        statuses, exceptions, _ = ask_server(path)
        assert (statuses["/healthz"], statuses["/api/v1/rows.json?table=steps"]) == (503, 503), statuses
        assert max(statuses.values()) == 503, statuses
        assert exceptions == []
