"""Tables of every format are read with their lines, units and titles; what is not read is named."""

import json
from pathlib import Path

import pytest

from runner.analysis.audit.published import audit_published
from runner.errors import UsageError
from runner.published.headings import parse_heading, read_title
from runner.published.reading import load_mapping, propose_mapping, read_file
from tests.runner.published.test_reference import FILES

CSV = "size,context,forward (ms),peak memory (MiB)\nsmall,128,12.3,512\nlarge,128,OOM,OOM\n"
MARKDOWN = """\
## Their H100

Some text.

| size | context | forward (ms) |
|:-----|--------:|:------------:|
| small | 128 | **12.3 ± 0.4** |
| `large` | 128 | 26.5 |

| what | how |
|---|---|
| batch | small |
"""
HTML = """\
<h2>Passes, batch size 4</h2>
<table><thead><tr><th rowspan=2>size<th colspan=2>ms<tr><th>forward<th>backward</thead>
<tr><td colspan=3>precision bf16</td></tr>
<tr><td>small</td><td>12.3</td><td>24.1</td></tr>
<tr><td colspan=3>precision fp32</td></tr>
<tr><td>small</td><td>30.5</td><td>61.0</td></tr></table>
"""
RECORDS = [{"size": "small", "time": {"forward_ms": 12.3}}, {"size": "large", "time": {"forward_ms": 26.5}}]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.csv", "size,forward_ms\nsmall,12.3\nlarge,26.5\n", [2, 3]),
        ("a.csv", "Their steps\nsize;forward_ms\nsmall;12.3\nlarge;26.5\n", [3, 4]),
        ("a.tsv", "size\tforward_ms\nsmall\t12.3\nlarge\t26.5\n", [2, 3]),
        ("a.txt", "size,forward_ms\nsmall,12.3\nlarge,26.5\n", [2, 3]),
        ("a.md", "|size|forward_ms|\n|-|-|\n|small|12.3|\n|large|26.5|\n", [3, 4]),
        (
            "a.md",
            "<table>\n<tr><th>size<th>forward_ms\n<tr><td>small<td>12.3\n<tr><td>large<td>26.5\n</table>\n",
            [3, 4],
        ),
        ("a.jsonl", "\n".join(map(json.dumps, RECORDS)), [1, 2]),
        ("a.json", json.dumps(RECORDS, indent=1), [2, 8]),
        ("a.json", json.dumps({"steps": RECORDS}), [1, 2]),
        ("a.json", json.dumps({"size": ["small", "large"], "forward_ms": [12.3, 26.5]}), [1, 2]),
    ],
)
def test_formats(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    (table,) = read_file(write(tmp_path / name, text)).tables
    assert [(row.line, row.setting.name, row.mean("forward")) for row in table.rows] == [
        (lines[0], "small", 12.3),
        (lines[1], "large", 26.5),
    ]
    assert [row.figures[0].text for row in table.rows] == ["12.3", "26.5"], "as printed"


def test_markdown(tmp_path: Path) -> None:
    file = read_file(write(tmp_path / "a.md", MARKDOWN))
    (table,) = file.tables
    assert (table.title, table.rows[0].line, table.rows[1].setting.name) == ("Their H100", 7, "large")
    assert (table.rows[0].mean("forward"), table.rows[0].mean("forward", of=["std"])) == (12.3, 0.4)
    (said,) = file.remarks
    assert said == "“Their H100” (line 10) is not stored: no heading says what it measures (“what”, “how”): not known."


def test_what_stands_beside_the_tables_of_a_document_is_named(tmp_path: Path) -> None:
    (table,) = read_file(write(tmp_path / "a.json", json.dumps({"gpu": "H100", "steps": RECORDS}))).tables
    assert table.remarks[0] == "Beside its tables, the file holds “gpu”, which were not read."


def test_spans_and_groups_of_html(tmp_path: Path) -> None:
    (table,) = read_file(write(tmp_path / "a.html", HTML)).tables
    assert [(row.setting.precision, row.mean("forward"), row.mean("backward")) for row in table.rows] == [
        ("bf16", 12.3, 24.1),
        ("fp32", 30.5, 61.0),
    ]
    assert table.rows[0].setting.batch == 4
    broken = HTML.replace("<td>30.5</td>", "")
    with pytest.raises(UsageError, match=r"line 2.* was refused: its cells overlap or do not fill"):
        read_file(write(tmp_path / "b.html", broken))


def test_html_that_is_made_to_take_long(tmp_path: Path) -> None:
    for text, why in (
        ("<table><tr><td>" * 100_000, "not read to its end: Excessive depth"),
        (f"<table {' '.join(f'a{n}' for n in range(200_000))}>", "a thousand attributes"),
        ("<table>\n" * 100_000, "too many lines"),
        ("<table>" + "<tr><td colspan=1000 rowspan=1000>1" * 1_000, "overlap"),
    ):
        with pytest.raises(UsageError, match=why):
            read_file(write(tmp_path / "a.html", text))


def test_rows_that_do_not_fit_are_lost_and_said(tmp_path: Path) -> None:
    for name, text in (("a.csv", CSV + "huge,128,1\n"), ("a.md", MARKDOWN.replace("| 26.5 |", "| 26.5 | 3 |"))):
        file = read_file(write(tmp_path / name, text))
        assert len(file.lost) == 1
        assert "was refused" in file.lost[0]
        assert "headings" in file.lost[0]
    with pytest.raises(UsageError, match="its first row holds numbers"):
        read_file(write(tmp_path / "c.csv", "128,12.3\n256,24.6\n"))
    with pytest.raises(UsageError, match="columns that blanks align are not read"):
        read_file(write(tmp_path / "c.txt", "size   forward\nsmall  12.3\n"))


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("bf16_mean_ms", "mean time in ms, bf16"),
        ("forward_std_ms", "std forward in ms"),
        ("fwd + bwd (ms)", "forward backward in ms"),
        ("Peak mem (GiB)", "peak memory in GiB"),
        ("max_memory_mib", "peak memory in MiB"),
        ("model_plus_fwd_mem_mib", "memory in MiB, model + forward"),
        ("tokens/s", "tokens per s in tokens/s"),
        ("context length", "setting context"),
        ("batch size", "setting batch"),
        ("cmd_n_layers", "kept as text"),
        ("speedup", "speedup"),
        ("val loss", "not known, kept as text"),
        ("loss", "not known, kept as text"),
        ("forward quality (ms)", "not known, kept as text"),
    ],
)
def test_headings(heading: str, words: str) -> None:
    assert parse_heading(heading).describe() == words


def test_titles() -> None:
    said = read_title("Mixed precision (bfloat16), no warm-up, batch 4")
    assert said == {"precision": "bf16", "warmup_steps": 0, "batch": 4}
    assert read_title("forward, fp32 vs bf16") == {}


def test_a_proposal_gives_what_is_read_without_it(tmp_path: Path) -> None:
    for path in (*FILES, write(tmp_path / "a.md", MARKDOWN), write(tmp_path / "a.csv", CSV)):
        draft = propose_mapping(path)
        plain, mapped = (
            [[(row.setting, row.figures, row.status) for row in table.rows] for table in found.tables]
            for found in (read_file(path), read_file(path, mapping=load_mapping(write(tmp_path / "m.toml", draft))))
        )
        assert plain == mapped
    draft = propose_mapping(write(tmp_path / "a.csv", "size,F\nsmall,1.5\n"))
    assert "# Table 1, line 1: 1 rows." in draft


def found(tmp_path: Path, text: str, name: str = "a.csv") -> list[tuple[str, tuple[int, ...]]]:
    return [(one.finding.code, one.lines) for one in audit_published(read_file(write(tmp_path / name, text)).tables)]


def test_rules_beside_those_of_the_cases(tmp_path: Path) -> None:
    """2 × 0.75 × 2.7e9 × 512 FLOP in 0.36 ms are 5.8 PFLOP/s, and no H100 does 1."""
    h100 = "GPU,size,context,forward (ms)\nH100,2.7B,512,0.36\nH100,2.7B,1024,60.1\n"
    assert found(tmp_path, h100) == [("above_peak", (2,))]
    assert found(tmp_path, "size,forward (ms)\nmini,12.6\nmidi,2 5.4\n") == [("unreadable", (3,))]
    rest = "mini,10.0,20.0,30.0\nmidi,20.0,40.0,60.1\n"
    sums = f"size,forward (ms),backward (ms),fwd + bwd (ms)\n{rest}maxi,30.0,60.0,"
    assert found(tmp_path, sums + "90.0\n") == []
    assert found(tmp_path, sums + "99.0\n") == [("sum_off", (4,))]
    assert found(tmp_path, sums + "25.0\n") == [("sum_off", (4,))]
    whole = "size,forward_ms,backward_ms,total_ms\nmini,4.0,8.1,12.1\nmidi,11.9,23.8,35.7\nmaxi,25.1,51.0,86.1\n"
    assert found(tmp_path, whole) == [("sum_off", (4,))]
    slip = "context,peak (MiB)\n128,2210\n256,2890\n512,4.35\n1024,7420\n"
    assert found(tmp_path, slip) == [("wrong_unit", (4,))], "and no peak carried over from it"
    gain = "size,eager fwd (ms),compiled fwd (ms),speedup\nmini,14.0,12.5,+12%\n"
    assert found(tmp_path, gain) == [], "a speedup in percent is refused: 12 % more may be 1.12"
    two = "size,eager fwd (ms),eager bwd (ms),compiled fwd (ms),compiled bwd (ms),speedup\nmini,10.0,20.0,8.0,14.0,{}\n"
    assert found(tmp_path, two.format(1.36)) == [], "30.0 / 22.0, of both passes"
    assert found(tmp_path, two.format(1.63)) == [("ratio_off", (2,))]
    grown = "context,forward_mean_ms,forward_std_ms\n128,5.0,0.1\n256,10.0,0.1\n512,{},{}\n1024,40.0,0.1\n"
    assert found(tmp_path, grown.format("20.0", "0.1")) == []
    assert found(tmp_path, grown.format("8.0", "0.1")) == [("time_not_monotonic", (4,))]
    assert found(tmp_path, grown.format("8.0", "1.5")) == [], "within twice its own std"
    assert found(tmp_path, "size,forward_mean_ms,forward_std_ms,steps\ns,34.2,34.4,10\n") == [("cold_step", (2,))]
    assert found(tmp_path, "size,forward (ms),backward (ms)\ns,20.0,4.0\n") == [("impossible_ratio", (2,))]


def test_shapes_of_public_tables(tmp_path: Path) -> None:
    """Figures of public reports, in words of our own: a length called S, settings that say yes or no, PyTorch beside
    two others, a Triton forward pass of 10 µs whose backward is autograd's own 0.5 ms, a rule of a printed heading."""
    (lengths,) = read_file(write(tmp_path / "a.csv", "S,eager forward (ms)\n256,0.32\n512,0.35\n")).tables
    assert [row.stated["S"] for row in lengths.rows] == ["256", "512"]
    assert [row.mean("forward", backend="eager") for row in lengths.rows] == [0.32, 0.35]
    flags = "layers,only_forward,bfloat16,mean_s\n12,False,True,0.0214\n12,True,True,0.0090\n"
    (table,) = read_file(write(tmp_path / "b.csv", flags)).tables
    assert [(r.stated["only_forward"], r.mean("duration")) for r in table.rows] == [("False", 21.4), ("True", 9.0)]
    marks = "seq_len,Best,throughput,fwd (ms)\n128,✓,909939.4,0.42\n256,,655651.6,0.51\n"
    assert found(tmp_path, marks, "m.csv") == [], "a rate without a unit is refused, and no slip"
    assert [row.stated.get("Best") for row in read_file(tmp_path / "m.csv").tables[0].rows] == ["✓", None]
    sums = "### Forward\n\n| Time | Instances | Avg | StdDev | Name |\n|--|--|--|--|--|\n"
    sums += "| 43.0% | 153 | 488.742 μs | 363.704 μs | sgemm |\n"
    assert found(tmp_path, sums, "k.md") == [], "the spread of a kernel's calls is not that of steps"
    (kernel,) = read_file(tmp_path / "k.md").tables
    share = kernel.rows[0].figures[0]
    assert (kernel.subject, share.quantity, share.value) == ("kernels", "share", 0.43)
    ways = "seq_len,PyTorch (ms),Compiled (ms),Triton (ms)\n8192,52.46,28.18,7.70\n"
    (row,) = read_file(write(tmp_path / "attention_speed.csv", ways)).tables[0].rows
    assert [figure.value for figure in row.figures] == [52.46, 28.18, 7.70]
    assert read_file(tmp_path / "attention_speed.csv").tables[0].subject == "attention"
    short = "seq_len,flash_fwd_ms,flash_bwd_ms,torch_fwd_ms\n128,0.0101,0.527,0.157\n8192,1.9,2.5,9.1\n"
    assert found(tmp_path, short, "attention_flash.csv") == []
    setext = "===== Sums\n\n| size | fwd (ms) |\n|---|---|\n| small | 33.29 ± 0.71 |\n"
    assert read_file(write(tmp_path / "c.md", setext)).tables[0].rows[0].mean("forward", of=["std"]) == 0.71


#: What the shipped tables of five reports contradict: file, code, lines.
REFERENCE = {
    ("000_benchmarking_script", "cold_step"): {2, 3, 4},
    ("001_attention_m4", "cold_step"): {2, 5},
    ("001_attention_m4_compiled", "cold_step"): {5},
    ("001_attention_rtxpro6000_bf16_compiled", "cold_step"): {4},
    ("001_attention_rtxpro6000_bf16_compiled", "time_not_monotonic"): {3, 5},
    ("001_e2e_rtxpro6000_compiled", "impossible_ratio"): {3},
    ("001_e2e_rtxpro6000_compiled", "cold_step"): {3},
    ("001_e2e_rtxpro6000_warmup0", "negative_time"): {2},
    ("001_e2e_rtxpro6000_warmup0", "cold_step"): {3, 4},
    ("001_e2e_rtxpro6000_warmup1", "cold_step"): {3},
    ("002_attention_benchmarking", "cold_step"): {2, 5, 6, 9, 10, 11, 14, 17, 18, 20},
    ("002_attention_benchmarking", "peak_carried_over"): {7, 12, 17},
    ("002_simple_benchmarking", "cold_step"): {2, 3, 4, 7, 8, 12, 14},
    ("002_simple_benchmarking", "impossible_ratio"): {7},
    ("003_attention", "impossible_ratio"): {2},
    ("003_run_logs", "cold_step"): {14},
    ("004_e2e", "cold_step"): {2},
    ("004_e2e", "impossible_ratio"): {5},
}


def test_the_shipped_tables() -> None:
    places: dict[tuple[str, str], set[int]] = {}
    for path in FILES:
        for one in audit_published(read_file(path).tables):
            places.setdefault((path.stem, one.finding.code), set()).update(one.lines)
    assert places == REFERENCE
