"""Published tables in a results file are stored as they were read, once, and never count as measured."""

import shutil
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.importers.files import import_file
from runner.published.reading import load_mapping, read_file
from runner.store.merging import merge
from runner.store.read.published import load_published
from runner.store.read.runs import load_contents, load_runs
from tests.runner.published.test_reading import write
from tests.runner.published.test_reference import FILES, FOLDER
from tests.synthetic import rows
from tests.synthetic.nsys_statistics import KERN_SUM
from tests.synthetic.stored import change, read

#: Some of the tables of data/reference.
NAMES = ("000_benchmarking_script.csv", "001_e2e_mbair.csv", "004_e2e.csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with these tables and where they are from."""
    found = tmp_path_factory.mktemp("published")
    for name in (*NAMES, "provenance.csv"):
        shutil.copy(FOLDER / name, found)
    return found


@pytest.fixture(scope="module")
def reference(folder: Path, module_db: Path) -> Path:
    """Returns a results file with them."""
    report = import_file(folder, db=module_db)
    assert len(report.lines) == len(NAMES)
    assert report.lines[0] == "000_benchmarking_script.csv: 1 table, 3 rows, 12 figures."
    return module_db


def count(db: Path) -> dict[str, int]:
    names = ("runs", "published_tables", "published_rows", "published_figures")
    return {name: read(db, f"SELECT count(*) FROM {name}")[0][0] for name in names}


def test_tables_are_stored_as_they_were_read(folder: Path, reference: Path) -> None:
    assert load_published(reference) == [table for name in NAMES for table in read_file(folder / name).tables]


@pytest.mark.soak
def test_all_31_tables_are_stored_as_they_were_read(tmp_path: Path) -> None:
    import_file(FOLDER, db=tmp_path / "results.duckdb")
    read = [table for path in FILES for table in read_file(path).tables]
    assert len(read) == 31
    assert load_published(tmp_path / "results.duckdb") == read


@pytest.mark.soak
def test_a_file_is_stored_once(folder: Path, reference: Path, tmp_path: Path) -> None:
    before = count(reference)
    assert before["runs"] == before["published_tables"] == len(NAMES)
    assert all("nothing new" in line for line in import_file(folder, db=reference).lines)
    again = import_file(folder / "004_e2e.csv", db=reference)
    assert again.lines == (f"004_e2e.csv: nothing new: {reference} has it already.",)
    assert count(reference) == before
    other = tmp_path / "other.duckdb"
    import_file(folder / "004_e2e.csv", db=other)
    merge(other, into=reference)
    assert count(reference) == before


def test_published_tables_are_neither_a_machine_nor_a_measured_run(reference: Path, db: Path) -> None:
    of = rows.run()
    rows.store(db, of, [rows.ok(of, rows.asked("toy-256"))])
    before = load_contents(db)
    assert f"{len(NAMES)} runs" in import_file(reference, db=db).lines[0]
    assert load_published(db) == load_published(reference)
    contents = load_contents(db)
    assert (contents.runs, contents.machines) == (before.runs, before.machines)
    assert (contents.shapes, contents.choices) == (before.shapes, before.choices)
    assert {run.source for run in contents.published} == {"published"}
    assert len(contents.published) == len(NAMES)
    assert ("End to End Benchmarks (MBAir)", "MBAir") in {(run.label, run.device_name) for run in contents.published}
    assert load_runs(db)[0].run_id == of.run_id, "the latest run is one that measured"


def test_another_mapping_is_another_import_and_the_latest_counts(tmp_path: Path) -> None:
    db, path = tmp_path / "results.duckdb", write(tmp_path / "theirs.csv", "size,forward\nsmall,2\n")
    with pytest.raises(UsageError, match="such as “2” below “forward”: Refused: “2” has no unit"):
        import_file(path, db=db)
    for unit, milliseconds in (("s", 2000.0), ("ms", 2.0)):
        text = f'[columns]\nforward = {{ quantity = "forward", unit = "{unit}" }}\n'
        import_file(path, db=db, mapping=write(tmp_path / f"{unit}.toml", text))
        (table,) = load_published(db)
        assert table.rows[0].mean("forward") == milliseconds
    again = import_file(path, db=db, mapping=tmp_path / "s.toml")
    assert "A later import of it with another mapping counts." in again.lines[0]


def test_a_deviation_is_of_the_time_before_it(tmp_path: Path) -> None:
    text = "size,forward (ms),std (ms),backward (ms),std (ms)\nsmall,12,0.2,24,0.5\n"
    ((row,),) = (table.rows for table in read_file(write(tmp_path / "theirs.csv", text)).tables)
    assert [row.mean(phase, of=["std"]) for phase in ("forward", "backward")] == [0.2, 0.5]
    with pytest.raises(UsageError, match="no heading says what it measures"):
        import_file(write(tmp_path / "alone.csv", "size,std (us)\nsmall,3\n"), db=tmp_path / "results.duckdb")


def test_the_import_of_a_folder_names_the_files_it_leaves_out(tmp_path: Path) -> None:
    folder, db = tmp_path / "theirs", tmp_path / "results.duckdb"
    folder.mkdir()
    write(folder / "a.csv", "size,forward (ms)\nsmall,2\n")
    write(folder / "b.csv", "words,more\nwithout,figures\n")
    write(folder / "c.bin", "of another kind")
    write(folder / "d.csv", KERN_SUM)
    report = import_file(folder, db=db)
    table, words, other, kernels = report.lines
    assert table == "a.csv: 1 table, 1 row, 1 figure."
    assert words.startswith("b.csv: left out: holds no table that can be imported")
    assert other.startswith("c.bin: left out: is no file that can be imported")
    assert kernels.startswith("d.csv: 2 different kernels")
    assert not report.is_whole
    assert len(load_published(db)) == 1
    for name in "ad":
        (folder / f"{name}.csv").unlink()
    with pytest.raises(UsageError, match="holds no file that can be imported"):
        import_file(folder, db=db)


def test_tables_changed_by_another_program_are_read_as_far_as_possible(db: Path) -> None:
    import_file(FOLDER / "004_nsys_forward.csv", db=db)
    change(
        db,
        """UPDATE published_tables SET remarks = '{"a": 1}', meanings = repeat('[', 99)""",
        "UPDATE published_rows SET stated = 'nan', remarks = '3'",
        """UPDATE published_figures SET variant = '{"precision": [1]}'""",
        "UPDATE published_figures SET quantity = 'banana' WHERE text = '57.5'",
    )
    (table,) = load_published(db)
    assert (table.remarks, table.meanings) == ((), {})
    assert [row.stated for row in table.rows] == [{}, {}, {}]
    assert [row.mean("forward") for row in table.rows] == [None, 19.3, 24.0], "the schema has no such quantity"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns", "text that is no TOML"),
        ("[other]\na = 1", "got “other”. Expected the sections"),
        ('[columns]\nF = "drop"', "'drop' for the column “F”"),
        ('[columns]\nF = { quantity = "speed" }', "“speed” for the column “F”. Expected one of"),
        ('[columns]\nF = { quantity = "forward", unit = "hours" }', "“hours” for the column “F”"),
        ('[columns]\nF = { quantity = "forward", setting = "name" }', "one of setting, quantity and origin"),
        ('[columns]\nF = { quantity = "forward", color = "red" }', "“color” for the column “F”"),
        ('[table]\nbatch = "many"', "batch = 'many' in [table]. Expected a whole number"),
        ("[table]\nsize = 3", "size = 3 in [table]"),
    ],
)
def test_invalid_mappings(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        load_mapping(write(tmp_path / "m.toml", text))
    assert words in str(error.value)
    assert "--propose" in str(error.value)


def test_a_mapping_must_name_an_existing_column(tmp_path: Path) -> None:
    mapping = write(tmp_path / "m.toml", '[columns]\nG = "keep"\n')
    path = write(tmp_path / "theirs.csv", "size,forward (ms)\nsmall,2\n")
    with pytest.raises(UsageError, match=r"names the column “G”, which no table of .* has. Expected one of forward"):
        import_file(path, db=tmp_path / "results.duckdb", mapping=mapping)
    with pytest.raises(UsageError, match="--mapping got"):
        import_file(write(tmp_path / "a.db", "x"), db=tmp_path / "results.duckdb", mapping=mapping)
