"""P1 to P3: four accumulations, the dtypes under autocast, and the speedup of bf16 by size."""

from collections.abc import Mapping, Sequence

from runner.analysis.compare.speedups import Speedups, compare
from runner.analysis.dtypes import formats_of
from runner.formats import format_list
from runner.report.document import Answer, Behind, Line, Question, ReportTable, behind
from runner.report.footnotes import make_footnotes
from runner.report.rows import Rows
from runner.report.speedups import describe_speedups, describe_trend, sides_of, speedup_table
from runner.report.text import NONE
from runner.report.wanted import wanted_cells
from runner.results import AccumulationResult, StepResult
from runner.schema import SUMS, AccumulationCell, AccumulationRow, DtypeRow, NumericsCell, NumericsRow, StepCell
from runner.schema.titles import title
from runner.store.queries.numerics import load_dtypes

#: The sums that the assignment's handout prints, by the names of `--sums`.
EXPECTED: Mapping[str, float] = {
    "fp32": 10.0001335,
    "fp16": 9.953125,
    "fp16-in-fp32": 10.0021362,
    "fp16-upcast-in-fp32": 10.0021362,
}


def _name_of(row: AccumulationRow) -> str | None:
    """Returns the name of the sum, None for one that is not the assignment's."""
    asked = AccumulationCell(**{name: getattr(row, name) for name in AccumulationCell.names()})
    return next((name for name, cell in SUMS.items() if cell == asked), None)


def _write_sum(row: AccumulationRow) -> str:
    return f"{row.accumulator} += {row.addend}" + (", upcast first" if row.upcast else "")


def agrees(total: float, expected: float) -> bool:
    """Returns whether a sum is the expected one in the nine digits that are printed."""
    return f"{total:.9g}" == f"{expected:.9g}"


def _answer_sums(rows: Rows) -> Answer:
    order: dict[str | None, int] = {name: place for place, name in enumerate([*SUMS, None])}
    sums = [one for one in rows.sums if one.row.status == "ok" and one.row.total is not None]
    sums.sort(key=lambda one: order[_name_of(one.row)])
    if not sums:
        return Answer(lacks="no sum was measured")
    lines = []
    for one in sums:
        row, name = one.row, _name_of(one.row)
        expected = EXPECTED.get(name) if name else None
        total = row.total or 0.0
        verdict = NONE if expected is None else "yes" if agrees(total, expected) else "no"
        numbers = (total, expected, row.error, row.rounded_value, row.spacing)
        written = [NONE if number is None else f"{number:.9g}" for number in numbers]
        values = (_write_sum(row), f"{row.addends:,} × {row.value:g}", *written[:2], verdict, *written[2:])
        lines.append(Line(values=values))
    table = ReportTable(
        caption="Four accumulations",
        headings=("Sum", "Added", "Result", "Expected", "Agrees", "Error", "Addend as held", "Spacing at the sum"),
        lines=tuple(lines),
        note="No unit; one process, which is enough: the sums are the same each time. Error: against the exact "
        "product. "
        "Expected: what the assignment's handout prints. Spacing: distance to the next number of the accumulator's "
        "dtype.",
    )
    missing = [name for name in SUMS if name not in {_name_of(one.row) for one in sums}]
    return Answer(
        sentence=_describe_sums(sums),
        tables=(table,),
        behind=tuple(Behind(cell_id=one.row.cell_id, cell=one.row) for one in sums),
        lacks=f"not measured: {format_list(missing)}" if missing else "",
    )


def _describe_sums(sums: Sequence[AccumulationResult]) -> str:
    known = [(one.row, EXPECTED[name]) for one in sums if (name := _name_of(one.row))]
    right = [row for row, expected in known if agrees(row.total or 0.0, expected)]
    start = f"{len(right)} of {len(known)} sums are as expected, in all nine digits"
    wrong = [_write_sum(row) for row, _ in known if row not in right]
    start += f"; {format_list(wrong)} {'is' if len(wrong) == 1 else 'are'} not." if wrong else "."
    narrow = next((row for row, _ in known if row.accumulator == "fp16"), None)
    wide = next((row for row, _ in known if row.accumulator == "fp32" and row.addend == "fp16"), None)
    parts = []
    if narrow and narrow.spacing:
        parts.append(
            f"A running sum in fp16 is rounded at every addition, to numbers {narrow.spacing:.3g} apart near its end"
        )
    if wide and wide.rounded_value:
        parts.append(
            "a sum in fp32 of fp16 addends loses only what fp16 loses of one addend, which it holds as "
            f"{wide.rounded_value:.9g}"
        )
    return f"{start} {'; '.join(parts)}." if parts else start


# ------------------------------------------------------------------------------------------------------------------- P2


#: The models whose passes were recorded.
_WORDS = {
    "toy": "the toy model with two linear layers and a layer norm",
    "transformer": "the Transformer",
    "own": "own models",
}


def _answer_dtypes(rows: Rows) -> Answer:
    passes = [one.row for one in rows.precisions if one.row.status == "ok" and one.row.precision in ("fp16", "bf16")]
    read = load_dtypes(rows.path, tuple(row.cell_id for row in passes)) if passes else []
    if not read:
        return Answer(lacks="no pass under fp16 or bf16 autocast was looked at")
    made = (_make_dtypes(model, passes, read) for model in _WORDS)
    tables = [table for table in made if table is not None]
    precisions = {row.precision for row in passes}
    missing = [name for name in ("fp16", "bf16") if name not in precisions]
    return Answer(
        sentence=_describe_dtypes(passes, read),
        tables=tuple(tables),
        behind=tuple(Behind(cell_id=row.cell_id, cell=row) for row in passes),
        lacks=f"no pass in {format_list(missing)}" if missing else "",
    )


def _formats(model: str, row: NumericsRow, read: Sequence[DtypeRow]) -> dict[str, list[str]]:
    return formats_of(found for found in read if found.cell_id == row.cell_id and found.model == model)


def _make_dtypes(model: str, passes: Sequence[NumericsRow], read: Sequence[DtypeRow]) -> ReportTable | None:
    names = [row.precision for row in passes]
    single = len(set(names)) == len(names)
    columns = {f"{row.precision} autocast" if single else title(row): _formats(model, row, read) for row in passes}
    columns = {name: found for name, found in columns.items() if found}
    if not columns:
        return None
    parts = list(dict.fromkeys(part for found in columns.values() for part in found))
    lines = [
        Line(values=(part, *(" and ".join(found[part]) if part in found else NONE for found in columns.values())))
        for part in parts
    ]
    return ReportTable(
        caption=f"Dtypes under autocast in {_WORDS[model]}",
        headings=("Part", *columns),
        lines=tuple(lines),
        note="Read from the tensors of one pass, not written down. Parts in the order of the pass.",
    )


def _describe_dtypes(passes: Sequence[NumericsRow], read: Sequence[DtypeRow]) -> str:
    """Says which parts of the smallest model stay wide and which become narrow, by precision."""
    model = next((name for name in _WORDS if any(row.model == name for row in read)), "transformer")
    sentences: dict[str, list[str]] = {}
    for row in passes:
        groups: dict[str, list[str]] = {}
        for part, names in _formats(model, row, read).items():
            words = " and ".join("the lower precision" if name == row.precision else name for name in names)
            groups.setdefault(words, []).append(part)
        text = "; ".join(f"{format_list(parts)} in {name}" for name, parts in groups.items())
        if row.precision not in sentences.setdefault(text, []):
            sentences[text].append(row.precision)
    return " ".join(f"Under {format_list(names)} autocast: {text}." for text, names in sentences.items() if text)


def _want_dtypes(rows: Rows) -> list[NumericsCell]:
    cells = wanted_cells(rows, "numerics", NumericsCell)
    return [cell for cell in cells if cell.precision in ("fp16", "bf16")]


# ------------------------------------------------------------------------------------------------------------------- P3


def compare_precisions(rows: Rows) -> dict[str, Speedups[StepResult]]:
    """Returns the pairs of each precision with fp32, where it has any or a side failed."""
    present = {cell.cell.precision for cell in rows.every_step} - {"fp32"}
    order = [name for name in ("bf16", "tf32", "fp16") if name in present]
    found = {name: compare(rows.every_step, axis="precision", baseline="fp32", variant=name) for name in order}
    return {name: each for name, each in found.items() if each.speedups or _has_failed(each)}


def _has_failed(compared: Speedups[StepResult]) -> bool:
    """Returns whether some pair could be compared if a side had not failed, other than by being skipped."""
    return any(cell.status != "skipped" for item in compared.left_out for cell in item.failed)


def _answer_speedup(rows: Rows) -> Answer:
    found = compare_precisions(rows)
    if not any(each.speedups for each in found.values()):
        return Answer(lacks="no step was measured both in fp32 and in bf16, and alike")
    sides = sides_of(found)
    notes = make_footnotes(rows, sides, "steps")
    words = [describe_speedups(each, baseline="fp32", variant=name) for name, each in found.items()]
    trend = describe_trend(found["bf16"].speedups) if "bf16" in found else ""
    return Answer(
        sentence=" ".join([*words, *([trend] if trend else [])]),
        tables=(speedup_table(found, baseline="fp32", notes=notes, without=("precision",)),),
        footnotes=notes.texts,
        behind=behind(sides),
        lacks=_find_missing_pairs(found),
    )


def _find_missing_pairs(found: Mapping[str, Speedups[StepResult]]) -> str:
    if "bf16" not in found:
        return "no pair with bf16"
    phases = {pair.phase for pair in found["bf16"].speedups}
    return "" if "backward" in phases else "no pair of a step with a backward pass"


def _want_speedup(rows: Rows) -> list[StepCell]:
    cells = wanted_cells(rows, "mixed-precision", StepCell)
    return [cell for cell in cells if cell.precision in ("fp32", "bf16")]


QUESTIONS = (
    Question[Rows](
        id="P1",
        text="What do four accumulations of 1000 × 0.01 give: fp32; fp16; fp32 += fp16; fp32 += upcast fp16?",
        page="mixed-precision",
        answer=_answer_sums,
        wanted=lambda rows: list(SUMS.values()),
    ),
    Question[Rows](
        id="P2",
        text="Which dtypes do parameters, first linear layer, layer norm, logits, loss and gradients have "
        "under "
        "autocast (fp16 and bf16)?",
        page="mixed-precision",
        answer=_answer_dtypes,
        wanted=_want_dtypes,
    ),
    Question[Rows](
        id="P3",
        text="How much faster is bf16 than fp32 at every size, forward and backward, and is there a trend with size?",
        page="mixed-precision",
        answer=_answer_speedup,
        wanted=_want_speedup,
    ),
)
