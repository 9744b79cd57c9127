"""The meaning of a heading by its words alone, and of a mapping for headings that are not clear."""

from pathlib import Path

import pytest

from runner.published.drafts import draft_mapping
from runner.published.formats import parse_tables
from runner.published.headings import parse_heading
from runner.published.mapping import load_mapping
from runner.published.reading import read_published
from runner.published.titles import read_title
from runner.results import PublishedTable
from tests.runner.published.test_formats import FORMATS, read
from tests.runner.published.test_reference import FILES


@pytest.mark.parametrize(
    ("heading", "meaning"),
    [
        ("Forward (ms)", "forward in ms"),
        ("fwd time [s]", "forward in s"),
        ("Fwd mean ± std (ms)", "mean and std forward in ms"),
        ("fwd+bwd_avg_ms", "mean forward backward in ms"),
        ("Forward + Backward + Optimizer (ms)", "step in ms"),
        ("Step time (ms)", "step in ms"),
        ("optimizer_median_ms", "median optimizer in ms"),
        ("Std Dev (µs)", "std time in us"),
        ("bf16 backward (ms)", "backward in ms, bf16"),
        ("compiled forward (ms)", "forward in ms, compiled"),
        ("Peak memory allocated (GiB)", "peak memory in GiB"),
        ("reserved_mib", "reserved memory in MiB"),
        ("VRAM [GB]", "memory in GB"),
        ("Time (%)", "share in %"),
        ("Total Time (ns)", "total duration in ns"),
        ("Throughput (tok/s)", "tokens per s in tokens/s"),
        ("tokens per second", "tokens per s in tokens/s"),
        ("TFLOPs", "flops per s in tflop/s"),
        ("FLOPs", "not understood"),
        ("Softmax (µs)", "time in us, softmax"),
        ("attention forward (ms)", "forward in ms, attention"),
        ("Speedup", "speedup"),
        ("forwardMeanMs", "mean forward in ms"),
        ("d_model", "setting d_model"),
        ("Model Size", "setting name"),
        ("Seq. len", "setting seq_len"),
        ("#", "kept as text"),
        ("Memory before backward (MB)", "memory in MB, before + backward"),
        ("context 128 (ms)", "time in ms, 128"),
        ("warmup=0 forward (ms)", "forward in ms, 0"),
        ("Full training step (ms)", "step in ms"),
        ("Training peak memory (GiB)", "peak memory in GiB, train"),
        ("% of total", "share in %"),
        ("MFU (%)", "share in %"),
        ("Optimizer step (ms)", "optimizer in ms"),
        ("Forward pass only, time (ms)", "forward in ms"),
        ("Context", "setting context"),
        ("model (ms)", "not understood"),
        ("Score", "not understood"),
        ("forward color (ms)", "not understood"),
        ("forward_ms_s", "not understood"),
    ],
)
def test_the_meaning_of_words(heading: str, meaning: str) -> None:
    assert parse_heading(heading).describe() == meaning


@pytest.mark.parametrize(
    ("title", "settings", "timed"),
    [
        ("Forward only, batch size 4, ctx=128", {"batch": 4, "context": 128}, "forward"),
        ("No warm-up", {"warmup_steps": 0}, None),
        ("5 warm-up steps, fwd + bwd", {"warmup_steps": 5}, "forward_backward"),
        ("Compiled, bfloat16", {"precision": "bf16", "backend": "compiled"}, None),
        ("nsys: kernels", {"is_profiled": True}, None),
        ("Context length 128-1024, batch 2, 4", {}, None),
        ("Compiled vs vanilla, batch 4", {}, None),
        ("FP32 and BF16", {}, None),
        ("torch_compile attention", {}, None),
    ],
)
def test_the_settings_in_titles(title: str, settings: dict[str, object], timed: str | None) -> None:
    said = read_title(title)
    assert (said.settings, said.timed) == (settings, timed)


def test_cells_decide_between_meanings_of_a_heading(tmp_path: Path) -> None:
    (table,) = read(tmp_path, "size,eager,compiled\nsmall,12.5 ms,7.5 ms\nlarge,50.5 ms,OOM\n", ".csv")
    row, other = table.rows
    assert (row.mean("duration", backend="eager"), row.mean("duration", backend="compiled")) == (12.5, 7.5)
    ran_out = other.find("duration", "value", backend="compiled")
    assert (other.status, ran_out and ran_out.remark) == ("ok", "Out of memory."), "only one variant ran out of memory"
    (table,) = read(tmp_path, "compiled,forward (ms)\nTrue,12.5\nFalse,20.5\n", ".csv")
    assert [row.setting.backend for row in table.rows] == ["compiled", "eager"]


def test_a_unit_is_taken_from_the_mean_or_the_title_and_reported(tmp_path: Path) -> None:
    (table,) = read(tmp_path, "size,Fwd Mean (s),Fwd Std,Bwd Std\nsmall,1.5,0.25,0.5\n", ".csv")
    (row,) = table.rows
    assert (row.mean("forward"), row.std("forward"), row.std("backward")) == (1500.0, 250.0, None)
    assert table.remarks == ("“Fwd Std”: in s, as “Fwd Mean (s)” is.",)
    (table,) = read(tmp_path, "### Times (in ms), batch 4\n\n| size | Forward |\n|--|--|\n| small | 1.5 |\n", ".md")
    assert (table.rows[0].mean("forward"), table.rows[0].setting.batch) == (1.5, 4)
    (table,) = read(tmp_path, "### All times in ms\n\n| size | Forward |\n|--|--|\n| small | 1.5 |\n", ".md")
    assert table.rows[0].mean("forward") == 1.5
    assert table.remarks == ("“Forward”: in ms, as the title says.",)


def test_a_table_may_have_a_column_for_each_context(tmp_path: Path) -> None:
    text = "### Forward (ms)\n\n| size | context 128 | context 256 |\n|--|--|--|\n| small | 1.5 | 2.5 |\n"
    (table,) = read(tmp_path, text, ".md")
    (row,) = table.rows
    assert (row.mean("forward", context=128), row.mean("forward", context=256)) == (1.5, 2.5)


def test_a_number_that_is_not_understood_is_kept_without_a_value(tmp_path: Path) -> None:
    (table,) = read(tmp_path, "size,forward (ms),score\nsmall,12.5,99\n", ".csv")
    (_, score) = table.rows[0].figures
    assert (score.quantity, score.text, score.value, score.remark) == (
        "other", "99", None, "What the column means is not known.")  # fmt: skip
    assert table.remarks == ("“score”: not understood: a mapping can say what it is.",)


def test_a_comma_as_a_decimal_point_makes_every_comma_ambiguous(tmp_path: Path) -> None:
    text = "size;forward (ms)\nsmall;12,5\nlarge;1,234\nxl;125\n"
    (table,) = read(tmp_path, text, ".csv")
    assert [figure.value for row in table.rows for figure in row.figures] == [None, None, 125.0]
    assert table.remarks == ("Some numbers have a comma for a decimal point; none with a comma was read.",)
    assert '# decimal = ","' in draft_mapping("theirs.csv", parse_tables(text, ending=".csv"))
    mapping = tmp_path / "m.toml"
    mapping.write_text('[table]\ndecimal = ","\n')
    (table,) = read_published(tmp_path / "theirs.csv", mapping=load_mapping(mapping))
    assert [figure.value for row in table.rows for figure in row.figures] == [12.5, 1.234, 125.0]


def test_columns_that_contradict_each_other_are_reported(tmp_path: Path) -> None:
    (table,) = read(tmp_path, "model,config,forward (ms)\nsmall,small,1.5\nlarge,xl,2.5\n", ".csv")
    assert [row.setting.name for row in table.rows] == ["small", "large"]
    assert [row.remarks for row in table.rows] == [(), ("config: “xl” was left out: another column says large.",)]


def test_a_mapping_names_the_column_of_the_pass(tmp_path: Path) -> None:
    path, mapping = tmp_path / "theirs.csv", tmp_path / "m.toml"
    path.write_text("what,ms\nfwd,1.5\nfwd + bwd,4.5\n")
    mapping.write_text('[columns]\nwhat = { setting = "mode" }\n')
    (table,) = read_published(path, mapping=load_mapping(mapping))
    assert [(row.mean("forward"), row.mean("forward_backward")) for row in table.rows] == [(1.5, None), (None, 4.5)]


def test_nan_keys_are_unknown(tmp_path: Path) -> None:
    (table,) = read(tmp_path, "size,d_model,layers,forward (ms)\n2.7B,nan,,OOM\n", ".csv")
    (row,) = table.rows
    assert (row.setting.name, row.setting.d_model, row.setting.layers, row.status) == ("2.7B", None, None, "oom")
    assert row.stated == {"size": "2.7B", "d_model": "nan"}


def strip_ids(table: PublishedTable) -> list[object]:
    """Returns everything of a table except its ids, which follow from the mapping, and its notes on assumptions."""
    return [table.title, table.subject, [(row.line, row.setting, row.status, row.figures) for row in table.rows]]


@pytest.mark.parametrize("name", [*FORMATS, *(path.name for path in FILES)])
def test_a_draft_mapping_gives_the_same_tables(tmp_path: Path, name: str) -> None:
    if name in FORMATS:
        ending, text, *_ = FORMATS[name]
        path = tmp_path / f"theirs{ending}"
        path.write_text(text, encoding="utf-8")
    else:
        path = next(file for file in FILES if file.name == name)
    text = path.read_text(encoding="utf-8")
    draft = tmp_path / "draft.toml"
    draft.write_text(draft_mapping(path.name, parse_tables(text, ending=path.suffix)), encoding="utf-8")
    mapped = read_published(path, mapping=load_mapping(draft))
    assert [strip_ids(table) for table in mapped] == [strip_ids(table) for table in read_published(path)]


def test_a_mapping_adds_what_headings_leave_out(tmp_path: Path) -> None:
    path, mapping = tmp_path / "theirs.csv", tmp_path / "m.toml"
    path.write_text("small,12.5,0.5,fine\nlarge,50.5,1.5,\n")
    mapping.write_text(
        """
[table]
title = "Theirs"
machine = "H100 80GB"
batch = 4
backend = true
headings = false

[columns]
"column 1" = { setting = "name" }
"column 2" = { quantity = "forward", statistic = "mean", unit = "s", precision = "bf16" }
"column 3" = { quantity = "forward", statistic = "std", unit = "s", precision = "bf16" }
"column 4" = "keep"
"""
    )
    (table,) = read_published(path, mapping=load_mapping(mapping))
    assert (table.title, table.machine, table.subject) == ("Theirs", "H100 80GB", "steps")
    row = table.rows[1]
    assert (row.setting.name, row.setting.batch, row.setting.backend) == ("large", 4, "compiled")
    assert (row.mean("forward", precision="bf16"), row.std("forward", precision="bf16")) == (50_500.0, 1_500.0)
    assert table.rows[0].stated == {"column 1": "small", "column 4": "fine"}
    assert table.remarks == ()


def test_the_draft_lists_what_is_not_understood() -> None:
    text = draft_mapping("theirs.csv", parse_tables("small,12.5\nlarge,50.5\n", ending=".csv"))
    assert '# "column 1" = { setting = "name" }' in text
    assert '# "column 2" = { quantity = "forward", statistic = "mean", unit = "ms" }' in text
    assert "cells such as “12.5”, “50.5”" in text
    assert "# headings = true" in text
