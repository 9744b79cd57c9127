"""Each format as it occurs in practice: small tables whose values can be checked by eye."""

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.published.formats import parse_tables
from runner.published.reading import read_published
from runner.results import PublishedTable

#: The same two rows in every format: forward 12.3 ± 0.4 ms and 0.25 s; peak 1,024 MiB and out of memory.
CSV = 'size,context,forward,peak (MiB)\nsmall,128,12.3 ± 0.4 ms,"1,024"\nlarge,256,0.25 s,OOM\n'
TSV = "size\tcontext\tforward\tpeak (MiB)\nsmall\t128\t12.3 ± 0.4 ms\t1,024\nlarge\t256\t0.25 s\tOOM\n"
MARKDOWN = """\
## End to end

| **size** | context | forward | peak (MiB) |
|:---------|--------:|--------:|-----------:|
| small | 128 | **12.3 ± 0.4 ms** | 1,024 |
| large | 256 | `0.25 s` | OOM |
"""
GRID = """\
End to end:
+-------+---------+---------------+------------+
| size  | context | forward       | peak (MiB) |
+=======+=========+===============+============+
| small | 128     | 12.3 ± 0.4 ms | 1,024      |
+-------+---------+---------------+------------+
| large | 256     | 0.25 s        | OOM        |
+-------+---------+---------------+------------+
"""
LATEX = r"""
\section{Elsewhere}
\begin{table}[h]
  \caption{End to \emph{end}}
  \begin{tabular}{l|rrr} \toprule
    \textbf{size} & context & forward & peak (MiB) \\ \midrule  % a & comment
    small & 128 & $12.3 \pm 0.4$~ms & 1{,}024 \\
    large & 256 & \num{0.25}\,s     & \textcolor{red}{OOM} \\[2pt] \bottomrule
  \end{tabular}
\end{table}
"""
TYPST = """\
= Elsewhere
#figure(
  table(
    columns: (auto, 1fr) * 2,  // four
    align: (left, right, right, right),
    table.header([*size*], [context], [forward], [peak (MiB)]),
    [small], [128], [$12.3 plus.minus 0.4$ ms], "1,024",
    [large], [256], [0.25 s], table.cell(fill: red)[OOM],
  ),
  caption: [End to end],
)
"""
ALIGNED = """\
End to end
size    context   forward          peak (MiB)
small   128       12.3 ± 0.4 ms    1,024
large   256       0.25 s           OOM
"""
DASHES = """\
# End to end
size      context  forward          peak (MiB)
------  ---------  -------------  ------------
small         128  12.3 ± 0.4 ms         1,024
large         256  0.25 s                  OOM
"""
JSON_LINES = """\
{"size": "small", "context": 128, "forward": "12.3 ± 0.4 ms", "peak": {"mib": 1024}}
{"size": "large", "context": 256, "forward": "0.25 s", "peak": {"mib": "OOM"}}
"""
FORMATS = {
    "csv": (".csv", CSV, None, (2, 3)),
    "csv with semicolons": (".csv", CSV.replace(",1", ";1").replace(",", ";").replace("1;024", "1,024"), None, (2, 3)),
    "csv under a title": (".csv", f"# End to end\n{CSV}", "End to end", (3, 4)),
    "tsv": (".tsv", TSV, None, (2, 3)),
    "tabs in text": (".txt", TSV, None, (2, 3)),
    "markdown": (".md", MARKDOWN, "End to end", (5, 6)),
    "grid": (".txt", GRID, "End to end", (5, 7)),
    "latex": (".tex", LATEX, "End to end", (7, 8)),
    "typst": (".typ", TYPST, "End to end", (7, 8)),
    "aligned": (".txt", ALIGNED, "End to end", (3, 4)),
    "aligned under dashes": (".txt", DASHES, "End to end", (4, 5)),
    "json lines": (".jsonl", JSON_LINES, None, (1, 2)),
}


def read(tmp_path: Path, text: str, ending: str = ".txt") -> list[PublishedTable]:
    path = tmp_path / f"theirs{ending}"
    path.write_text(text, encoding="utf-8")
    return read_published(path)


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_table_in_every_format(tmp_path: Path, name: str) -> None:
    ending, text, title, lines = FORMATS[name]
    (table,) = read(tmp_path, text, ending)
    assert table.title == (title or "theirs")
    first, second = table.rows
    assert (first.line, second.line) == lines
    assert (first.setting.name, first.setting.context) == ("small", 128)
    assert (second.setting.name, second.setting.context) == ("large", 256)
    assert (first.mean("forward"), first.std("forward"), second.mean("forward")) == (12.3, 0.4, 250.0)
    assert first.mean("peak_memory") == 2.0**30
    assert (first.status, second.status) == ("ok", "oom")


def test_a_table_printed_by_pandas(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        """\
Results on the A10:
  model_size  context_length  forward_mean_s  forward_std_s
0      small             128        0.010120       0.000044
1     medium             128             NaN            NaN
""",
    )
    assert table.title == "Results on the A10"
    assert [row.setting.name for row in table.rows] == ["small", "medium"]
    assert [row.line for row in table.rows] == [3, 4]
    assert table.rows[0].mean("forward") == 10.12
    assert table.rows[0].std("forward") == 0.044
    assert table.rows[1].mean("forward") is None
    assert table.rows[1].find("forward") is not None, "the text of the cell is kept"


def test_a_column_of_words_one_blank_after_the_previous_one(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        """\
   d_model  seq_len  fwd_mean(ms)  bwd_mean(ms) status
0       16      256          0.12          0.30     ok
1       16    16384           NaN           NaN    OOM

[2 rows x 5 columns]
""",
    )
    assert [(row.mean("forward"), row.mean("backward")) for row in table.rows] == [(0.12, 0.3), (None, None)]
    assert [row.status for row in table.rows] == ["ok", "oom"]


def test_a_table_with_printed_rules(tmp_path: Path) -> None:
    text = """\
Size      Fwd(ms)   Bwd(ms)
---------------------------
small       12.34     24.56
2.7B          OOM       OOM
---------------------------
"""
    (table,) = read(tmp_path, text)
    assert [row.mean("backward") for row in table.rows] == [24.56, None]
    assert [(row.line, row.status) for row in table.rows] == [(3, "ok"), (4, "oom")]


def test_a_table_of_rich(tmp_path: Path) -> None:
    text = (
        "┏━━━━━━━┳━━━━━━━━━━┓\n┃ Model ┃ Fwd (ms) ┃\n┡━━━━━━━╇━━━━━━━━━━┩\n│ small │ 12.34    │\n└───────┴──────────┘\n"
    )
    (table,) = read(tmp_path, text)
    assert [(row.line, row.setting.name, row.mean("forward")) for row in table.rows] == [(4, "small", 12.34)]


def test_nested_objects(tmp_path: Path) -> None:
    text = (
        '{"config": {"model": "small", "ctx": 128}, "forward_ms": {"mean": 12.5, "std": 0.5}, "oom": false}\n'
        '{"config": {"model": "2.7B", "ctx": 128}, "error": "CUDA out of memory. Tried to", "oom": true}\n'
        "no JSON\n"
    )
    (table,) = read(tmp_path, text, ".jsonl")
    first, second = table.rows
    assert (first.setting.name, first.setting.context, first.mean("forward"), first.std("forward")) == (
        "small", 128, 12.5, 0.5)  # fmt: skip
    assert (first.status, second.status, second.setting.name) == ("ok", "oom", "2.7B")
    assert table.remarks == ("Line 3 was refused: it is no JSON object.",)


def test_wrapped_columns_are_joined(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        """\
   d_model  d_ff  num_layers  \\
0      768  3072          12   
1     1024  4096          24   

   forward_mean_ms  backward_mean_ms  
0             10.5              20.5  
1             30.5              60.5  
""",  # noqa: W291
    )
    assert [row.setting.layers for row in table.rows] == [12, 24]
    assert [row.mean("forward") for row in table.rows] == [10.5, 30.5]
    assert [row.mean("backward") for row in table.rows] == [20.5, 60.5]
    assert [row.line for row in table.rows] == [2, 3]
    assert "printed in several pieces" in table.remarks[-1]


def test_the_name_of_an_index_is_a_heading(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        """\
            forward_ms  backward_ms
model_size
small             12.5         25.5
large             50.0        100.0
""",
    )
    assert [row.setting.name for row in table.rows] == ["small", "large"]
    assert [row.mean("backward") for row in table.rows] == [25.5, 100.0]


def test_an_empty_cell_keeps_its_place(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        """\
  size   forward (ms)   backward (ms)   status
 small           12.5            25.5       ok
 large                                     OOM
""",
    )
    assert [row.status for row in table.rows] == ["ok", "oom"]
    assert table.rows[1].figures == ()


def test_several_tables_in_one_file(tmp_path: Path) -> None:
    text = """\
# Report
Some words, and others.

## Batch 4

| size | forward (ms) |
|---|---|
| small | 1.5 |

```
size   backward (ms)
small  2.5
```

### Memory, bf16

size,peak memory (GiB)
small,1.5

| not | understood |
|---|---|
| a | b |
"""
    tables = read(tmp_path, text, ".md")
    assert [table.title for table in tables] == ["Batch 4", "Batch 4", "Memory, bf16"]
    assert [table.rows[0].line for table in tables] == [8, 12, 18]
    assert len({table.table_id for table in tables}) == 3
    first, second, third = (table.rows[0] for table in tables)
    assert (first.mean("forward"), second.mean("backward"), third.mean("peak_memory")) == (1.5, 2.5, 1.5 * 2**30)
    assert (first.setting.batch, third.setting.precision) == (4, "bf16"), "it is taken from the titles"
    assert tables[2].remarks == ("precision bf16 was taken from the title.",)


def test_captions_are_above_or_below_like_the_first(tmp_path: Path) -> None:
    one = "| size | forward (ms) |\n|---|---|\n| small | 1.5 |\n"
    above = f"Table 1: first\n\n{one}\n**Table 2: second**\n\n{one}\n{one}"
    below = f"# Heading\n\n{one}Table 1: first\n\n{one}\nTable 2: second\n\n{one}"
    later = f"# Heading\n\n{one}\nWords.\n\nTable 1: second\n\n{one}"
    assert [table.title for table in read(tmp_path, above, ".md")] == ["Table 1: first", "Table 2: second", "theirs"]
    assert [table.title for table in read(tmp_path, below, ".md")] == ["Table 1: first", "Table 2: second", "Heading"]
    assert [table.title for table in read(tmp_path, later, ".md")] == ["Heading", "Table 1: second"]


def test_several_tables_in_one_csv(tmp_path: Path) -> None:
    text = "First\nsize,forward (ms)\nsmall,1.5\n\nSecond:\nsize,forward (ms)\nsmall,2.5\nsmall,3,5\n"
    first, second = read(tmp_path, text, ".csv")
    assert (first.title, second.title) == ("First", "Second")
    assert [row.mean("forward") for row in (*first.rows, *second.rows)] == [1.5, 2.5]
    assert second.remarks == ("Line 8 was refused: 3 cells below 2 headings.",)


def test_latex_with_two_rows_of_headings_and_spans(tmp_path: Path) -> None:
    (table,) = read(
        tmp_path,
        r"""
\section{Timing (ms)}
\begin{tabular}{llrr}
\hline
      &         & \multicolumn{2}{c}{Forward (ms)} \\ \cline{3-4}
Size  & Context & Mean & Std \\ \hline
\multirow{2}{*}{small} & 128 & 1.5 & 0.25 \\
                       & 256 & 2.5 & 0.5  \\ \hline
\end{tabular}
""",
        ".tex",
    )
    assert table.title == "Timing (ms)"
    assert [(row.setting.name, row.setting.context) for row in table.rows] == [("small", 128), ("small", 256)]
    assert [(row.mean("forward"), row.std("forward")) for row in table.rows] == [(1.5, 0.25), (2.5, 0.5)]
    assert [row.line for row in table.rows] == [7, 8]


def test_rows_on_one_line_are_separate_rows(tmp_path: Path) -> None:
    text = r"\begin{tabular}{lr} Size & Fwd (ms) \\ \hline small & 1.5 \\ large & 2.5 \\ \end{tabular}"
    (table,) = read(tmp_path, text, ".tex")
    assert [(row.line, row.setting.name, row.mean("forward")) for row in table.rows] == [
        (1, "small", 1.5), (1, "large", 2.5)]  # fmt: skip
    assert len({row.row_id for row in table.rows}) == 2
    (table,) = read(tmp_path, "#table(columns: 2, [Size], [Fwd (ms)], [small], [1.5], [large], [2.5])", ".typ")
    assert [row.mean("forward") for row in table.rows] == [1.5, 2.5]
    assert len({row.row_id for row in table.rows}) == 2


def test_csv_without_headings_has_numbered_columns() -> None:
    (table,) = parse_tables("small,1.5\nlarge,2.5\n", ending=".csv")
    assert (table.headings, table.has_headings, len(table.rows)) == (("column 1", "column 2"), False, 2)
    (table,) = parse_tables("size,128,256\nsmall,1.5,2.5\n", ending=".csv", headings=True)
    assert (table.headings, len(table.rows)) == (("size", "128", "256"), 1)


def test_repeated_headings_elided_rows_and_duplicate_columns() -> None:
    (table,) = parse_tables("size,ms,ms\na,1,2\nsize,ms,ms\n...,...,...\nb,3,4\n", ending=".csv")
    assert table.headings == ("size", "ms", "ms (2)")
    assert [row.line for row in table.rows] == [2, 5]
    assert table.remarks == ("Line 3 repeats the headings.", "Rows are left out in line 4.")


@pytest.mark.parametrize(
    ("ending", "text", "words"),
    [
        (".md", "# Words\n\nNo table here.\n", "got no table"),
        (".csv", "a" * 11_000 + ",b\n1,2\n", "a cell of 11,000 characters"),
        (".csv", "a,b\n" * 60_000, "60,001 lines"),
        (".txt", "x" * 200_000, "a line of more than 100,000 characters"),
        (".csv", ",".join(["a"] * 600) + "\n" + ",".join(["1"] * 600), "600 columns"),
        (".csv", "small,1.5\nlarge,2.5\n", "no heading that says what it measures"),
        (".csv", "a\0b,c\n", "bytes that are no text"),
        (".jsonl", "[1, 2]\n", "got no table"),
    ],
)
def test_files_without_a_table(tmp_path: Path, ending: str, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text, ending)
    assert words in str(error.value)
    assert error.value.do
