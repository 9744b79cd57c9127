"""The answers for rows with known numbers: every question, failures, and no claim beyond the intervals."""

import re
from pathlib import Path
from uuid import UUID

import duckdb
import pytest

from pages.navigation import PAGES
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.speedups import Speedups
from runner.report.document import Answered, Report
from runner.report.questions import QUESTIONS
from runner.report.report import load_report
from runner.report.rows import Rows, Scope
from runner.report.speedups import describe_speedups, describe_trend
from runner.report.text import format_estimate, format_spread, shorten_reason
from runner.results import StepResult
from runner.schema import StepCell, new_id
from tests.synthetic import memory_rows, rows, timelines, traces
from tests.synthetic.everything import store as store_everything

MIB = 2**20
#: The questions of the assignment.
IDS = [
    "B1",
    "B2",
    "B3",
    "K1",
    "K2",
    "K3",
    "K4",
    "K5",
    "P1",
    "P2",
    "P3",
    "M1",
    "M2",
    "M3",
    "M4",
    "M5",
    "M6",
    "A1",
    "A2",
    "A3",
    "C1",
    "C2",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with rows for every question; one cell each of steps, attention and memory ran out of memory."""
    path, of = tmp_path_factory.mktemp("report") / "results.duckdb", rows.run()
    rows.store(path, of, rows.laptop(of))
    traces.store(path, [traces.profiled(of, mode=mode) for mode in ("inference", "train")])
    for mode in ("inference", "train"):
        timelines.write(path, of, timelines.step(allocations=60, mode=mode))
    ran_out = {"asked_bytes": 3 * 2**30, "in_use_bytes": 2**30, "device_bytes": 2**32, "failed_phase": "forward"}
    lost = memory_rows.memory(of, {}, values={"status": "oom", "failed_phase": "backward"}, context=4096)
    memory_rows.store(path, [
        memory_rows.attention(of, seq_len=32768, status="oom", values=ran_out), lost,
        memory_rows.attention(of, seq_len=1024, implementation="sdpa-flash"),
        memory_rows.attention(of, seq_len=2048, implementation="sdpa-flash"),
    ])  # fmt: skip
    return store_everything(path)


@pytest.fixture(scope="module")
def report(file: Path) -> Report:
    return load_report(file, Scope(machine="Example CPU · bench1"))


def answer_of(report: Report, name: str) -> Answered:
    return next(one for one in report.answered if one.id == name)


def test_the_questions_are_those_of_the_assignment() -> None:
    assert [question.id for question in QUESTIONS] == IDS
    assert {question.page for question in QUESTIONS} <= PAGES.keys()


def test_every_question_is_answered_or_open(report: Report) -> None:
    """Each has a sentence, tables with complete lines and different headings, existing footnotes, rows behind it, and
    commands."""
    assert {one.id for one in report.answered} | {one.id for one in report.open} == {*IDS}
    for one in report.answered:
        answer = one.answer
        assert answer.sentence.strip().endswith("."), one.id
        assert one.commands, one.id
        assert answer.behind, one.id
        assert len({type(row.cell).asked() for row in answer.behind}) == 1, one.id
        for table in answer.tables:
            assert len(set(table.headings)) == len(table.headings), one.id
            assert table.lines, one.id
            for line in table.lines:
                assert len(line.values) == len(table.headings)
                assert all(line.values), (one.id, line)
                assert set(line.marks) <= set(range(1, len(answer.footnotes) + 1))
    assert all(one.commands and one.lacks for one in report.open)


def test_a_failed_cell_has_its_status_and_phase(report: Report) -> None:
    b1 = answer_of(report, "B1").answer.tables[0]
    (line,) = [line for line in b1.lines if "out of memory" in " ".join(line.values)]
    assert line.values[:2] == ("toy-256", "256")
    assert "out of memory in backward" in line.values
    assert "Out of memory in backward (tried to allocate 2.5 GiB; 1.1 GiB are free)" in b1.note
    m2 = answer_of(report, "M2").answer.tables[0]
    assert any("4,096" in line.values and "out of memory in backward" in line.values for line in m2.lines)
    a1 = answer_of(report, "A1").answer.tables[0]
    assert any("32,768" in line.values and "out of memory in forward" in line.values for line in a1.lines)


def test_the_memory_of_the_smallest_cell_that_ran_out_is_explained(report: Report) -> None:
    a2 = answer_of(report, "A2").answer
    assert "With 1.00 GiB in use it asked for 3.00 GiB" not in a2.sentence
    assert "with 1.00 GiB in use it asked for 3.00 GiB more, which were not free in one piece." in a2.sentence
    parts = {line.values[0]: line.values[1] for line in a2.tables[1].lines}
    assert parts["In use and asked for"] == f"{4 * 2**30:,}"
    assert parts["There is"] == f"{2**32:,}"


def test_a_sum_that_lacks_kernels_is_a_lower_bound(tmp_path: Path, file: Path) -> None:
    """Where a tenth of the kernels' time belongs to no phase, the forward pass takes at least what belongs to it."""
    path = tmp_path / "copy.duckdb"
    path.write_bytes(file.read_bytes())
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE profiles SET attributed_share = if(mode = 'train', 0.9, 0.99)")
    (table,) = answer_of(load_report(path, Scope(machine="Example CPU · bench1")), "K1").answer.tables
    column = next(place for place, heading in enumerate(table.headings) if heading.startswith("Forward: "))
    by_mode = {line.values[table.headings.index("Mode")]: line.values[column].startswith("≥ ") for line in table.lines}
    assert by_mode == {"train": True, "inference": False}


def test_sums_are_shown_with_expected_values(tmp_path: Path, report: Report) -> None:
    p1 = answer_of(report, "P1").answer
    assert {line.values[4] for line in p1.tables[0].lines} <= {"yes", "no", "–"}
    assert "Expected" in p1.tables[0].headings


def test_the_fitted_growth_of_attention_is_the_synthetic_exponent(report: Report) -> None:
    """Synthetic naive attention saves bytes that grow with the square, so the fit must find 2."""
    a2 = answer_of(report, "A2").answer.sentence
    powers = [float(power) for power in re.findall(r"S\^(\d\.\d\d)", a2)]
    assert all(1.5 < power < 2.1 for power in powers)


def test_precisions_of_known_ratio(report: Report) -> None:
    """bf16 was made twice as fast. Cells of one process on a machine without repeats give no verdict."""
    p3 = answer_of(report, "P3").answer
    assert "2.00×" in p3.sentence or "2×" in p3.sentence
    assert "significantly" not in p3.sentence
    verdicts = {line.values[-1] for line in p3.tables[0].lines}
    assert verdicts <= {"noise unknown", "no ratio", "undecided"}


def test_an_edition_leaves_out_other_sizes(file: Path) -> None:
    report = load_report(file, Scope(machine="Example CPU · bench1", edition="2025"))
    still_open = {one.id: one for one in report.open}
    assert "B1" in still_open
    assert "--sizes large,medium,small,xl@2025,xl@2026 --contexts 128,256,512,1024" in still_open["B1"].commands[0]
    assert not any("toy-64" in line.values for one in report.answered if one.id in ("B1", "M2", "P3")
                   for table in one.answer.tables for line in table.lines)  # fmt: skip


def test_a_file_of_two_machines_is_a_report_of_one(tmp_path: Path) -> None:
    path, of = tmp_path / "two.duckdb", rows.run()
    rows.store(path, of, [rows.ok(of, rows.asked())])
    other = rows.run(device="cuda", device_name="Example GPU", host="bench2")
    rows.store(path, other, [rows.ok(other, rows.asked("toy-128"))])
    last = Rows(path, Scope())
    assert last.machine == "Example GPU · bench2"
    assert [cell.cell.d_model for cell in last.steps] == [128]
    assert [cell.cell.d_model for cell in Rows(path, Scope(machine="Example CPU · bench1")).steps] == [64]
    assert [cell.cell.d_model for cell in Rows(path, Scope(run=of.run_id)).steps] == [64]
    facts = dict(load_report(path, Scope()).facts)
    assert "Example CPU · bench1" in facts["Not in this report"]


def _pair(
    ratio: float, low: float | None, high: float | None, *, decided: bool, parameters: int = 1
) -> Pair[StepResult]:
    cell = StepCell(d_model=64, d_ff=64, layers=1, heads=1, context=8, mode="train", precision="fp32")
    side = StepResult(
        cell_id=new_id(), machine="m", cell=cell, cell_key="k", torch=None, run_id=UUID(int=1), rounds=1,
        parameters=parameters, tokens_per_s=None, mfu=None, compile_seconds=None,
    )  # fmt: skip
    return Pair(base=side, other=side, ratio=ratio, low=low, high=high, decided=decided)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([_pair(1.3, 0.9, 1.9, decided=False)], "1.30× (95% interval 0.900–1.90×; one pair), undecided."),
        ([_pair(5.9, 3.4, 9.9, decided=False)], "undecided: the interval that decides includes 1×."),
        ([_pair(1.005, 1.003, 1.007, decided=True)], "the same within 1%."),
        ([_pair(1.3, None, None, decided=False)], "decides nothing"),
        ([_pair(1.3, 1.2, 1.4, decided=True)], "bf16 is 1.30× faster than fp32"),
        ([_pair(0.5, 0.4, 0.6, decided=True)], "bf16 is 2.00× slower than fp32"),
        ([_pair(1.3, 1.2, 1.4, decided=True)] * 2, "significantly faster than fp32 in every pair"),
        ([_pair(1.3, 1.2, 1.4, decided=True), _pair(1.1, 0.9, 1.3, decided=False)], "1 faster, 1 undecided"),
    ],
)
def test_a_sentence_claims_no_more_than_its_intervals(pairs: list[Pair[StepResult]], words: str) -> None:
    said = describe_speedups(Speedups(speedups=pairs, left_out=[]), baseline="fp32", variant="bf16")
    assert words in said
    if "significantly" not in words and "bf16 is" not in words:
        assert "bf16 is" not in said


def test_a_trend_needs_intervals_that_do_not_overlap() -> None:
    small = _pair(1.1, 1.0, 1.3, decided=False, parameters=10)
    near, far = (_pair(2.0, low, 2.5, decided=True, parameters=100) for low in (1.2, 1.8))
    assert "no trend is shown" in describe_trend([small, near])
    assert "grows with the model" in describe_trend([small, far])
    assert "not known" in describe_trend([small, _pair(2.0, None, None, decided=False, parameters=100)])


def test_numbers_show_two_digits_of_their_uncertainty() -> None:
    assert format_spread(12.345, 0.0123) == "12.345 ± 0.012"
    assert format_spread(1234.5, 67.8) == "1,234 ± 68"
    assert format_spread(3.0, 1e-7) == "3.0000 ± 0.000000100"  # ± 0 only if the uncertainty is 0
    assert format_spread(3.0, 0.0) == "3.0000 ± 0.0000"
    assert format_estimate(12.0512, 11.9, 12.3) == "12.05 [11.90, 12.30]"
    assert format_estimate(5.0, None, None) == "5.00 [unknown]"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("", ""),
        ("tried to allocate 2.5 GiB; 1.1 GiB are free", "tried to allocate 2.5 GiB; 1.1 GiB are free"),
        (
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 216.00 MiB. GPU 0 has a total capacity of 139.80 "
            "GiB of which 173.12 MiB is free. Including non-PyTorch memory, this process has 139.62 GiB in use.",
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 216.00 MiB",
        ),
        ("A" * 300 + ". More.", "A" * 159 + "…"),
    ],
)
def test_a_failed_cells_reason_is_its_first_sentences(message: str, shown: str) -> None:
    assert shorten_reason(message) == shown
