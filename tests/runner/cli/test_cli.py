"""What the commands print and their exit codes. `test_sweep` tests the sweep itself."""

import os
import platform
import pty
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runner.cli.doctor import checks
from runner.cli.main import OLD_NAMES, make_command
from runner.plan.planning import PRESETS, QUESTIONS
from runner.schema import RunRow
from runner.schema.sizes import SIZES
from tests.command import TINY, execute, received, run, run_apart, run_json, run_line, start
from tests.runner.answers.shipped import FOLDER, query
from tests.some import some
from tests.synthetic.rows import asked, failed, ok, store
from tests.synthetic.rows import run as a_run

COMMANDS = (
    "", "sweep", "show", "fit", "tune", "compare", "ab", "report", "import", "export", "doctor", "app", "note", "model",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(module_db: Path) -> Path:
    """Returns a file of two runs. The later one has a failed cell, and brackets wherever words are free."""
    first = a_run(label="first")
    store(module_db, first, [ok(first, asked(context=64))])
    later = a_run(label="odd [/name]", device_name="CPU [rev 2]")
    message = "RuntimeError: [enforce fail at alloc.cpp:1] [/no] you tried to allocate 12 bytes"
    cells = [ok(later, asked(mode=mode)) for mode in ("train", "inference")]
    return store(module_db, later, [*cells, failed(later, asked("toy-256"), message=message)])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_a_screen_and_has_an_example(command: str) -> None:
    done = run_line(*command.split(), "--help", code=0, columns=80)
    lines = done.stdout.splitlines()
    assert (max(map(len, lines)) <= 80, len(lines) <= 50) == (True, True), len(lines)
    example = " ".join(done.stdout.split()).rpartition("Example: ")[2]
    assert example.startswith(f"stepscope {command}".strip())


def test_the_whole_help_of_sweep_explains_every_option_and_the_short_one_names_it() -> None:
    names = [option for item in make_command("sweep").params for option in item.opts[:1]]
    assert len(names) > 35
    short, whole = (run_line("sweep", how).stdout for how in ("--help", "--help-all"))
    assert all(name in short and name in whole for name in names)
    assert "Warm-up steps" in whole
    assert "Warm-up steps" not in short


def test_the_program_alone_says_in_eight_lines_what_to_do_first() -> None:
    lines = run_line(code=0).stdout.splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (8, True)
    assert all(any(name in line for line in lines) for name in ("sweep", "app", "show", "report", "--help"))


def test_messages_name_the_program_as_it_was_started(filled: Path) -> None:
    started = "import sys; sys.argv[0] = '/usr/bin/stepscope'; from runner.__main__ import run; run()"
    done = execute(sys.executable, "-c", started, "list", "precision", "--db", str(filled), code=0)
    assert "list is now: stepscope show\n" in done.stderr
    assert f"stopped: stepscope sweep --db {filled}\n" in done.stdout
    assert "python -m runner" not in done.stdout


@pytest.mark.parametrize(("old", "new"), some(OLD_NAMES.items()))
def test_an_old_name_says_the_new_one_and_does_the_same(old: str, new: str, filled: Path) -> None:
    words = {"merge": [str(filled.parent)], "replay": ["ffff"], "frontier": ["--help"], "list": ["sizes"]}.get(old, [])
    said, now = (run(*name, *words, db=filled) for name in ([old], new.split()))
    assert f"{old} is now: python -m runner {new}" in said.stdout
    assert said.stdout.partition("\n")[2] == now.stdout
    assert said.returncode == now.returncode


def test_model_check_is_model_now() -> None:
    said = run_line("model", "check", "hf:nowhere")
    assert "model check is now: python -m runner model" in said.stdout
    assert "nowhere cannot be read" in said.stdout.partition("\n")[2]


def test_the_names_there_are(filled: Path) -> None:
    text = " ".join(run("show", "all", db=filled).stdout.split())
    for name, words in {**{preset.name: preset.doc for preset in PRESETS.values()}, **QUESTIONS}.items():
        assert name in text
        assert words in text
    assert all(name in text for name in SIZES)
    assert "128,625,408" in text, "the parameters of small"
    assert "12,832,823,808" in text, "the parameters of 10B"
    assert {one["size"]: one["parameters"] for one in run_json("show", "sizes", db=filled)}["small"] == 128_625_408


def test_the_runs_of_a_file(filled: Path) -> None:
    text = run("show", "runs", db=filled).stdout
    first = next(line.split() for line in text.splitlines() if " first " in line)
    assert first[4:6] == ["1", "0"], "one cell, with status ok"
    later = next(line for line in text.splitlines() if "odd [/name]" in line)
    assert re.search(r" 2 +1 ", later)


def test_every_command_but_app_prints_json() -> None:
    lacking = {name for name in COMMANDS if name and "--json" not in run_line(*name.split(), "--help").stdout}
    assert lacking == {"app"}


def test_what_prints_rows_prints_them_as_json(filled: Path, tmp_path: Path) -> None:
    shown = run_json("show", db=filled)
    assert shown["run"]["label"] == "odd [/name]"
    assert sorted(row["status"] for row in shown["steps"]) == ["ok", "ok", "oom"]
    assert {"title", "cell_id", "medians_ms", "findings"} <= {*shown["steps"][0]}
    assert any(row["findings"] for row in run_json("show", db=Path("data/reference/h200"))["steps"])
    findings = run_json("show", "--findings", db=filled)
    assert sum(findings["grades"]["steps"].values()) == 3
    assert all({"code", "severity", "remedy", "found"} == {*one} for one in findings["findings"])
    assert run_json("show", "step", db=filled)["question"] == "step"
    checked = run_json("doctor", db=filled)
    assert (checked["problems"], checked["rows"]["steps"]) == ([], 4)
    assert [answer["question"] for answer in run_json("report", "--question", "step", db=filled)["answers"]] == ["step"]


def test_what_writes_says_it_as_json(filled: Path, tmp_path: Path) -> None:
    db, copy, folder = (tmp_path / name for name in ("all.duckdb", "copy.duckdb", "folder"))
    exported = run_json("export", str(copy), db=filled)
    assert exported == {"out": str(copy), "bytes": copy.stat().st_size, "cells_from_spool": 0}
    packed = run_json("export", str(folder), "--parquet", db=filled)
    assert packed["bytes"] == sum(file.stat().st_size for file in folder.iterdir()) == sum(packed["tables"].values())
    (tmp_path / "broken.duckdb").write_text("not a results file")
    merged = run_json("import", str(folder), str(copy), str(tmp_path / "broken.duckdb"), db=db, code=1)
    assert [(one["source"], one["added"].get("steps"), bool(one["refused"])) for one in merged] == [
        (str(folder), 4, False), (str(copy), None, False), (str(tmp_path / "broken.duckdb"), None, True),
    ]  # fmt: skip
    table = tmp_path / "table.md"
    table.write_text("| model | forward (ms) |\n|---|---|\n| small | 12.3 |\n| large | 26. 4 |\n")
    imported = run_json("import", str(table), db=db)
    assert (len(imported["lines"]) > 1, imported["is_whole"]) == (True, True)
    assert run_json("note", db=db) == []
    assert [one["text"] for one in run_json("note", "first", "a draft", db=db)] == ["a draft"]
    assert run_json("note", "first", "--remove", db=db) == []


def test_what_measures_prints_its_rows_as_json(db: Path) -> None:
    (cell,) = run_json("sweep", *TINY, "--dry-run", db=db)
    assert (cell["experiment"], cell["done"]) == ("benchmark", None)
    words = ("sweep", *TINY, "--precisions", "fp32,bf16", "--no-ceilings")
    row, other = run_json(*words, db=db)
    assert (row["status"], other["status"], row["medians_ms"]["step"] > 0) == ("ok", "ok", True)
    assert run_json(*words, db=db) == [], "they are measured"
    compared = run_json("compare", "precision:fp32", "precision:bf16", "--fail-on-regression", "--threshold=999", db=db)
    assert [len(compared[name]) for name in ("rows", "left_out")] == [1, 0]
    again = run_json("sweep", "--again", row["cell_id"], db=db)
    assert (again["cell_key"], again["round"], again["medians_ms"]["step"] > 0) == (row["cell_key"], 1, True)


def test_show_has_a_line_for_each_cell_with_its_medians_or_its_error(filled: Path) -> None:
    text = run("show", db=filled).stdout
    lines = [line for line in text.splitlines() if line.startswith("toy-")]
    assert len([line for line in lines if " ok " in line]) == 2
    # In tests.synthetic.rows a toy-64 step takes 2 * 64**1.5 * 128 / 20,000 ms, all of it forward in inference.
    assert "6.55 ms" in next(line for line in lines if "inference" in line)
    assert "during backward: " in text
    assert "[enforce fail at alloc.cpp:1] [/no] you tried to allocate 12 bytes" in text
    assert "odd [/name]" in text


@pytest.mark.soak
def test_the_rows_of_a_shipped_run_fit_80_columns() -> None:
    runs = [str(run_id) for (run_id,) in query("SELECT run_id FROM runs WHERE run_id IN (SELECT run_id FROM steps)")]
    for run_id in (runs[0], runs[len(runs) // 2], runs[-1]):
        found = run_apart("show", run_id, db=FOLDER, env={"COLUMNS": "80"}).stdout.splitlines()
        assert max(map(len, found)) <= 80
        assert {"cell", "result", "grade"} <= {*"\n".join(found).split(" steps rows")[1].split()}, run_id


def test_show_finds_a_run_by_label_and_by_a_prefix_of_its_id(filled: Path) -> None:
    by_label = run("show", "first", db=filled).stdout
    assert by_label.count("toy-64 · 64") == 1
    run_id = next(word for word in by_label.split() if word.count("-") == 4)
    assert run("show", run_id[:20], db=filled).stdout == by_label
    missing = run("show", "nobody", db=filled, code=2)
    assert "No run is called 'nobody'" in missing.stdout
    assert "odd [/name]" in missing.stdout, "the message lists the runs"


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    words = ("--modes", "inference,train", "--precisions", "fp32,bf16", "--rounds", "3")
    done = run("sweep", *TINY, *words, "--dry-run", db=tmp_path / "folder" / "results.duckdb")
    assert (done.returncode, os.listdir(tmp_path)) == (0, [])
    assert "12 cells" in done.stdout
    assert "Nothing was measured." in done.stdout
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines() if "toy-64 ·" in line]
    assert [line[0] for line in lines] == ["benchmark"] * 12, "each names its experiment"
    cells = [f"toy-64 · 16 · {mode} · {how} · eager" for mode in ("inference", "train") for how in ("bf16", "fp32")]
    assert [(line[1].partition(" · exactly")[0], line[2]) for line in lines] == [
        (cell, str(number)) for cell in cells for number in range(3)
    ]


def test_show_without_a_file_says_what_to_do(tmp_path: Path) -> None:
    done = run("show", db=tmp_path / "none.duckdb")
    assert (done.returncode, os.listdir(tmp_path)) == (2, [])
    assert "python -m runner sweep" in done.stdout


def test_doctor_describes_this_machine() -> None:
    done = run_line("doctor", "--device", "cpu", code=0)
    assert all(words in done.stdout for words in (platform.node(), platform.python_version()))
    lines = {" ".join(line.split()) for line in done.stdout.splitlines()}
    assert any(line.startswith("yes fp32 IEEE") for line in lines)
    assert any(line.startswith("no tf32 needs an NVIDIA GPU") for line in lines)
    assert any(re.match(r"yes quiet CPU threads \d+ of \d+ CPUs compute", line) for line in lines)


def test_doctor_describes_other_machines() -> None:
    gpu = dict.fromkeys(RunRow.__dataclass_fields__) | {
        "device": "cuda", "device_name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "compiler": "g++ 12",
        "threads": 8, "cpu_cores": 8, "omp_wait_policy": "PASSIVE",
    }  # fmt: skip
    possible = {check.what: check.possible for check in checks(gpu)}
    assert all(possible[what] for what in ("tf32", "bf16 in hardware", "CUDA graphs", "device clock", "MFU"))
    assert not possible["quiet CPU threads"]
    old = {check.what: check.possible for check in checks({**gpu, "compute_capability": "7.5", "compiler": None})}
    assert not any(old[what] for what in ("tf32", "bf16 in hardware", "torch.compile"))
    mps = {check.what: check.possible for check in checks({**gpu, "device": "mps", "device_name": "Apple M4"})}
    assert not any(mps[what] for what in ("tf32", "CUDA graphs", "kernels of a step", "memory timelines", "float64"))
    assert all(check.reason for check in checks(gpu) if not check.possible), "every no has a reason"


@pytest.mark.parametrize(
    "line",
    ["sweep --sizes xl", "sweep --steps 0", "sweep --nonsense", "sweep --again ''", "sweep --again 0123 --dry-run",
     "sweep --experiment frontier --dry-run", "sweep --max-seconds x", "sweep --config /nonexistent.toml",
     "show --nonsense", "nonsense", "doctor --device tpu"],
)  # fmt: skip
def test_wrong_usage_is_exit_2_and_no_traceback(line: str) -> None:
    done = run_line(*shlex.split(line), code=2)
    assert "rror" in done.stderr
    assert done.stdout == done.stderr, "nothing goes to the standard output"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--shape d_model=64,d_ff=64,layers=1,heads=64", "an even head width"),
        ("--sizes toy-64 --checkpoint 3 --dry-run", "--checkpoint got 3, but toy-64 has 2 blocks. Expected 0 to 2."),
        ("--sizes toy-64 --contexts 0", "--contexts got 0. Expected at least 1."),
        ("--sizes toy-64 --batch 0", "--batch got 0. Expected at least 1."),
        ("--steps -1", "error: --steps got '-1'. Expected a whole number from 1."),
        ("--steps many", "error: --steps got 'many'. Expected a whole number from 1."),
        ("--max-seconds -1", "error: --max-seconds got '-1'. Expected a number from 0."),
    ],
)
def test_what_is_impossible_is_refused_before_anything_is_measured(tmp_path: Path, words: str, told: str) -> None:
    done = run("sweep", *words.split(), db=tmp_path / "r.duckdb")
    assert (done.returncode, os.listdir(tmp_path)) == (2, [])
    assert told in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("interrupt", [False, True])
def test_a_terminal_shows_a_bar_and_gets_its_cursor_back(tmp_path: Path, interrupt: bool) -> None:
    ours, theirs = pty.openpty()
    endless = ("--steps", "10000000", "--max-steps", "10000000", "--max-seconds", "500") if interrupt else ()
    env = {"TERM": "xterm-256color", "COLUMNS": "200"}
    ends: Any = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start("sweep", *TINY, *endless, db=tmp_path / "r.duckdb", env=env, **ends)
    os.close(theirs)
    written = b""
    try:
        for chunk in received(ours):
            written += chunk
            if interrupt and b"measure" in written:
                process.send_signal(signal.SIGINT)
                interrupt = False
                time.sleep(0.1)
    finally:
        process.kill()
        os.close(ours)
    text = written.decode()
    assert process.wait() == (130 if endless else 0), text
    assert "toy-64 · 16 · train" in text
    assert ("Measured: 1 ok" in text) != bool(endless)
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") > 0, "the cursor is hidden and then shown again"
