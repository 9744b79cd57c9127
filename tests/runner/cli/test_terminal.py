"""Foreign text is never sent to a terminal as control codes: tables, errors and names are all printed as plain text."""

import re
import unicodedata
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rich.console import Console

from runner.cli.doctor import print_report
from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal
from runner.formats import visible
from runner.schema import TABLES, new_id, utc_now
from runner.sweep.loop import Spent, SweepEnd
from runner.sweep.prepare import Prepared
from tests.command import ROOT, run_line, tiny
from tests.synthetic import memory_rows, roofline_rows, rows, traces
from tests.synthetic.everything import store as store_everything
from tests.synthetic.stored import read

#: Clears the screen, sets the window's title, deletes a line, reverses the text direction, starts another line, sets
#: colors, and contains a picture.
ODD = "odd \x1b[2J\x1b]0;owned\x07\x9b2K \u202egnp\u2066 \x7f\r\nsecond line :x: [red]bold[/] \ud800"
SHOWN = "odd ␛[2J␛]0;owned␇�2K �gnp� ␡␍␊second line :x: [red]bold[/] �"
#: Columns of text by which other columns are joined or selected.
NEEDED = (
    "phase", "cell_key", "sweep_key", "name", "module", "statistic", "run_id", "cell_id", "limited", "kernel", "scope",
)  # fmt: skip


def test_invisible_characters_are_shown_and_others_unchanged() -> None:
    assert visible(ODD) == SHOWN
    assert len(visible(ODD)) == len(ODD)
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    for text in ("plain", "Größe 5 µs · ∝S² → 1×", "日本語", persian, "👩\u200d🔬"):
        assert visible(text) == text
    every = "".join(map(chr, range(0x11000)))
    assert not {one for one in visible(every) if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")}


@pytest.fixture(scope="module")
def file(module_db: Path) -> Path:
    """Returns a file with rows of every table, in which every text that a person or a program can write is `ODD`."""
    rows.store(module_db, of := rows.run(), [rows.ok(of, rows.asked()), rows.failed(of, rows.asked("toy-256"))])
    later = replace(of, run_id=new_id(), label="later")
    rows.store(module_db, later, [rows.ok(later, rows.asked()), rows.ok(later, rows.asked(context=64))])
    rows.store_tables(module_db, [memory_rows.memory(of, {"parameters": 2**20})])
    rows.store_tables(module_db, [traces.profiled(of, mode="train")])
    roofline_rows.store(store_everything(module_db))
    odd = ODD.encode("utf-8", "replace").decode()
    with duckdb.connect(str(module_db)) as writer:
        for table in TABLES.values():
            for column in table.columns if table.stored else ():
                if column.type is str and not column.choices and column.name not in NEEDED:
                    writer.execute(f"UPDATE {table.name} SET {column.name} = ?", [odd])
    return module_db


def run_ids(file: Path) -> list[str]:
    return [str(run_id) for (run_id,) in read(file, "SELECT run_id FROM runs ORDER BY run_id")]


def harmless(text: str) -> str:
    """Returns the text after checking that it contains only printable characters and line ends."""
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), repr(text)
    assert "❌" not in text
    assert all(line.find("second line") != 0 for line in text.splitlines())
    return text


def run_here(*words: str, file: Path, code: int = 0) -> str:
    """Returns what a command prints in this process."""
    return harmless(run_line(*words, "--db", str(file), code=code, columns=2000).stdout)


@pytest.mark.soak
def test_lists_and_the_tables_of_every_run(file: Path) -> None:
    assert "[red]bold[/]" in run_here("show", "runs", file=file)
    found = [run_here("show", run_id, file=file) for run_id in run_ids(file)]
    rows_of = ("profiles row", "accumulation row", "attention row")
    for words in ("[red]bold[/]", "oom", "ceiling", "largest seq_len", *rows_of):
        assert any(words in text for text in found), words


@pytest.mark.parametrize("form", ["text", pytest.param("markdown", marks=pytest.mark.soak)])
def test_comparisons_and_their_errors(file: Path, form: str) -> None:
    one, other = run_ids(file)[-2:]
    text = run_here("compare", f"run:{one}", f"run:{other}", "--format", form, file=file, code=0)
    assert "1 undecided" in text
    assert len(text.splitlines()) > 4, "one line a line"
    assert "[red]" in run_here("compare", "nobody", "none", "--format", form, file=file, code=2)
    assert "␛[2J" in run_here("show", "nobody \x1b[2J", file=file, code=2)


def test_files_with_odd_names(tmp_path: Path, file: Path) -> None:
    odd = tmp_path / "odd \x1b[2J\u202e:x:\nsecond line"
    odd.mkdir()
    assert "␛[2J" in run_here("show", "runs", file=odd / "none.duckdb", code=2)
    (odd / "x.bin").write_bytes(b"\x1b[2J")
    assert "␛[2J" in run_here("import", str(odd / "x.bin"), file=file, code=2)
    assert "␛[2J" in run_here("sweep", "--config", str(odd / "none.toml"), file=file, code=2)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_doctor_and_the_lines_of_a_sweep() -> None:
    machine: dict[str, Any] = {column.name: ODD for column in TABLES["runs"].columns if column.type is str}
    console = Terminal(file=StringIO(), width=2000)
    print_report(console, {**machine, "device": "cpu", "compute_capability": None, "threads": 1, "cpu_cores": 2})
    lines = SweepLines(console, db=Path(ODD), budget_s=30)
    lines.waiting(ODD)
    lines.began(Prepared(preset=ODD, machine=machine, cells=()), total=1, left_s=90.0)
    lines.finished(replace(rows.failed(rows.run(), tiny(), message=ODD).step, started_at=utc_now()), [], left_s=1.0)
    assert harmless(printed(console)).count("[red]bold[/]") >= 5
    assert "about 90 s, of it 30 s now (--budget)" in printed(console)


@pytest.mark.parametrize(
    ("fresh", "then"), [(False, "the same command goes on with them"), (True, "a longer --budget reaches further")]
)
def test_the_end_of_a_budget_says_what_goes_on(fresh: bool, then: str) -> None:
    console = Terminal(file=StringIO(), width=200)
    end = SweepEnd(statuses={"ok": 2}, out_of_budget=3, spent=Spent(), code=0)
    SweepLines(console, db=Path("x"), fresh=fresh).ended(end)
    assert f"The budget ran out with 3 cells to go; {then}." in printed(console)


def test_only_the_progress_bar_moves_the_cursor() -> None:
    console = Terminal(file=StringIO(), width=300, force_terminal=True)
    bar = SweepLines(console, db=Path("x"))
    bar.bar.start()
    bar.bar.update(bar.task, description=ODD)
    bar.bar.refresh()
    bar.close()
    text = printed(console)
    assert not re.search("owned\x07|\x1b\\[2J|\u202e", text)
    assert "␛]0;owned" in text


def test_all_output_goes_through_a_terminal() -> None:
    """Only the help of the commands has markup, and none of it is foreign."""
    sources = (ROOT / "runner").rglob("*.py")
    found = {path.name for path in sources if re.search(r"import Console\b|rich\.markup", path.read_text())}
    assert found - {"terminal.py"} == {"options.py", "text.py"}
