"""The tables of data/reference, compared cell by cell with an independent reading of the same files."""

import csv
from pathlib import Path

import pytest

from runner.published.reading import read_file
from runner.results.published import PublishedTable

FOLDER = Path(__file__).parents[3] / "data/reference"
FILES = sorted(path for path in FOLDER.glob("*.csv") if path.name != "provenance.csv")
#: Headings that name what was measured and where, and have no figures.
_NO_FIGURES = (
    "seed_file table_name machine source_line warmup_steps measure_steps model_size context_length row_index d_model "
    "status device batch_size compile profile_memory command case d_head seq_len d_ff num_heads num_layers params "
    "component nvtx_range part context name problem pass params_m vocab_size warmup_steps_logged cmd_n_layers "
    "cmd_d_model cmd_n_heads cmd_d_ff cmd_batch_size cmd_vocab_size cmd_warmup_steps cmd_n_steps quantity"
)
NO_FIGURES = frozenset(_NO_FIGURES.split())
FACTORS = {"_ms": 1.0, "_s": 1e3, "_us": 1e-3, "_mib": 2.0**20, "_pct": 0.01, "speedup": 1.0, "ratio": 1.0,
           "instances": 1.0, "result": 1.0, "value": 1.0}  # fmt: skip
UNITS = {"ms": 1.0, "μs": 1e-3, "ns": 1e-6}


def read_one(name: str) -> PublishedTable:
    (table,) = read_file(FOLDER / name).tables
    return table


def expected_value(heading: str, text: str) -> float | None:
    """Returns the number in base units, by the suffix of its heading or by its own unit."""
    number, _, unit = text.replace(",", "").partition(" ")
    if text in ("OOM", "N/A") or "dtype" in heading:
        return None
    factor = UNITS.get(unit) or next(factor for ending, factor in FACTORS.items() if heading.endswith(ending))
    return float(number) * factor


def test_31_tables_and_their_rows_have_ids_of_their_own() -> None:
    tables = [read_one(path.name) for path in FILES]
    assert len({table.table_id for table in tables}) == len(FILES) == 31
    assert len({row.row_id for table in tables for row in table.rows}) == sum(len(table.rows) for table in tables)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_figure_is_there_and_traceable(path: Path) -> None:
    table = read_one(path.name)
    headings, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
    assert [row.line for row in table.rows] == list(range(2, len(lines) + 2))
    assert list(table.meanings) == headings
    for row, cells in zip(table.rows, lines, strict=True):
        told = dict(zip(headings, cells, strict=True))
        figures = {figure.heading: figure for figure in row.figures}
        none = NO_FIGURES | ({"dtype"} if "device" in headings else set())
        assert {*figures} == {heading for heading, text in told.items() if text and heading not in none}
        assert len(figures) == len(row.figures)
        assert dict(row.stated) == {h: text for h, text in told.items() if text and h not in figures}
        for heading, figure in figures.items():
            assert figure.text == told[heading]
            expected = expected_value(heading, figure.text)
            assert figure.value == (expected if expected is None else pytest.approx(expected, rel=1e-12))
        assert row.source == f"{told['seed_file']}:{told['source_line']}"


def test_a_row_that_ran_out_of_memory_has_that_status() -> None:
    out = {(path.name, row.line) for path in FILES for row in read_one(path.name).rows if row.status == "oom"}
    attention = {(f"003_{name}.csv", line) for name in ("attention", "attention_compiled") for line in range(18, 22)}
    assert out == attention | {("004_e2e.csv", 6)}
    lost = read_one("004_e2e.csv").rows[-1].setting
    assert (lost.name, lost.d_model, lost.layers) == ("2.7B", None, None)


def test_swapped_headings_are_read_literally() -> None:
    first = read_one("001_attention_rtxpro6000.csv").rows[0].setting
    assert (first.context, first.d_model, first.seq_len, first.batch) == (16, 256, None, 8)


def test_a_memory_column_names_the_kind_of_memory() -> None:
    row = read_one("001_attention_rtxpro6000.csv").rows[0]
    assert row.mean("memory", part="model") == 1.125 * 2**20
    assert row.mean("memory", part="model + forward + backward") == pytest.approx(18.3755 * 2**20)
    assert row.mean("peak_memory") is None
    assert read_one("002_attention_benchmarking.csv").rows[0].mean("peak_memory") == pytest.approx(44.8438 * 2**20)


def test_settings_from_a_title_or_a_row_alone() -> None:
    assert read_one("001_e2e_rtxpro6000_warmup0.csv").rows[0].setting.warmup_steps == 0
    assert read_one("001_e2e_rtxpro6000_warmup1.csv").rows[0].setting.warmup_steps == 1
    both = read_one("003_amp_forward_backward.csv").rows[0]
    assert both.mean("forward_backward", precision="bf16") == 56.47
    assert both.mean("speedup") == 1.92
    logs = read_one("003_run_logs.csv").rows
    assert [row.mean("forward") for row in logs[:2]] == [106.39, None]
    assert (logs[1].mean("forward_backward"), logs[-1].mean("step")) == (352.83, 867.7)
    assert logs[-2].mean("forward_backward") == 709.57, "“foward + backward”"
    prose = read_one("004_prose_numbers.csv").rows
    assert [row.mean("backward") for row in prose] == [None, None, 52.73, 36592.0, None]
    assert (prose[4].mean("forward", of=["std"]), prose[4].setting.warmup_steps) == (75.3, 0)


def test_provenance_comes_from_its_own_file() -> None:
    table = read_one("003_attention.csv")
    assert (table.report, table.machine) == ("003", "A10 24 GB")
    assert table.provenance["std_kind"] == "population (n)"
    assert read_one("001_e2e_mbair.csv").machine == "MBAir", "the table's own value takes precedence"
