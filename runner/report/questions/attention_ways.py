"""A3 and C1: ways to avoid attention's memory, and compiled attention against eager."""

from collections.abc import Mapping
from dataclasses import replace

from runner.analysis.compare.speedups import Speedups, compare, name_attention
from runner.answers.keys import make_keys
from runner.formats import format_bytes
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import make_footnotes
from runner.report.questions.attention import want_grid
from runner.report.rows import Rows
from runner.report.speedups import describe_speedups, sides_of, speedup_table
from runner.report.text import format_mib, format_optional
from runner.report.wanted import wanted_cells
from runner.results import AttentionResult
from runner.schema import AttentionBackend, AttentionCell

_NAIVE = "naive"
#: Implementations that compute the scores block by block, and why they need less memory.
_FUSED = ("sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "flex")
_WHY = ": it computes the scores block by block and never holds the S×S tensor"


def compare_ways(rows: Rows, *, compiled: bool) -> dict[str, Speedups[AttentionResult]]:
    """Returns the pairs of naive attention with every fused implementation, or of every implementation with itself
    compiled."""
    present = list(
        dict.fromkeys(name_attention(cell.cell) for cell in rows.every_attention if cell.status != "skipped")
    )
    if compiled:
        ways = {way: way.split(" · ")[0] for way in present if " · " in way}
    else:
        ways = {way: _NAIVE for way in present if " · " not in way and way != _NAIVE}
    cells = rows.every_attention
    found = {
        way: compare(cells, axis="way", baseline=base, variant=way) for way, base in ways.items() if base in present
    }
    for each in found.values():
        each.speedups.sort(key=lambda pair: (pair.base.cell.d_head, pair.base.cell.seq_len))
    return {way: each for way, each in found.items() if each.speedups or any(item.failed for item in each.left_out)}


def _answer_ways(rows: Rows, *, compiled: bool) -> Answer:
    found = compare_ways(rows, compiled=compiled)
    if not any(each.speedups for each in found.values()):
        what = "both eager and compiled" if compiled else "both written out and by a fused implementation"
        return Answer(lacks=f"no attention was measured {what}, and alike")
    sides = sides_of(found)
    notes = make_footnotes(rows, sides, "attention")
    baseline = "eager" if compiled else _NAIVE
    words = [describe_speedups(each, baseline=baseline, variant=way) for way, each in found.items()]
    table = speedup_table(found, baseline=baseline, notes=notes, without=("implementation", "backend"))
    memory = [] if compiled else [_make_memory(found)]
    return Answer(
        sentence=" ".join([*words, *([] if compiled else [_describe_saved(found)])]).strip(),
        tables=(table, *memory),
        footnotes=notes.texts,
        behind=behind(sides),
    )


def _make_memory(found: Mapping[str, Speedups[AttentionResult]]) -> ReportTable:
    pairs = [(way, pair) for way, each in found.items() for pair in each.speedups if pair.phase == "step"]
    keys = make_keys([pair.base.cell for _, pair in pairs], without=("implementation", "backend"))
    lines = []
    for way, pair in pairs:
        sizes = (pair.base.peak_allocated_bytes, pair.other.peak_allocated_bytes)
        ratio = sizes[0] / sizes[1] if sizes[0] and sizes[1] else None
        values = (*keys.values(pair.base.cell), way, *map(format_mib, sizes), format_optional(ratio))
        lines.append(Line(values=values))
    return ReportTable(
        caption=f"Peak memory of each implementation: {keys.shared}",
        headings=(*keys.headings, "Implementation", "naive (MiB)", "Its peak (MiB)", "naive / its"),
        lines=tuple(lines),
        note="Peak of live tensors over forward and backward.",
    )


def _describe_saved(found: Mapping[str, Speedups[AttentionResult]]) -> str:
    """Says how much less memory the fused implementation needs at the longest sequence."""
    pairs = [(way, pair) for way, each in found.items() for pair in each.speedups if pair.phase == "step"]
    known = [(way, pair) for way, pair in pairs if pair.base.peak_allocated_bytes and pair.other.peak_allocated_bytes]
    if not known:
        return ""
    way, pair = max(known, key=lambda item: (item[1].base.cell.seq_len, item[1].base.cell.d_head))
    before, after = pair.base.peak_allocated_bytes or 1, pair.other.peak_allocated_bytes or 1
    return (
        f"At {pair.base.cell.seq_len:,} tokens (d_head {pair.base.cell.d_head}) naive peaks at {format_bytes(before)}, "
        f"{way} at {format_bytes(after)}{_WHY if way in _FUSED else ''}."
        if after < before
        else f"At {pair.base.cell.seq_len:,} tokens {way} needs no less memory than naive ({format_bytes(after)})."
    )


def _want_fused(rows: Rows) -> list[AttentionCell]:
    cells = wanted_cells(rows, "attention", AttentionCell)
    plain = [cell for cell in cells if cell.backend == "eager" and cell.cache == "hot"]
    fused = {(cell.precision, cell.seq_len, cell.d_head) for cell in plain if cell.implementation != _NAIVE}
    return [cell for cell in plain if (cell.precision, cell.seq_len, cell.d_head) in fused]


def _want_compiled(rows: Rows) -> list[AttentionCell]:
    backends: tuple[AttentionBackend, ...] = ("eager", "compiled")
    return [replace(cell, backend=backend) for cell in want_grid(rows) for backend in backends]


QUESTIONS = (
    Question[Rows](
        id="A3",
        text="How can that memory be avoided?",
        page="attention",
        answer=lambda rows: _answer_ways(rows, compiled=False),
        wanted=_want_fused,
    ),
    Question[Rows](
        id="C1",
        text="How much faster is compiled attention than eager, on the same grid?",
        page="attention",
        answer=lambda rows: _answer_ways(rows, compiled=True),
        wanted=_want_compiled,
    ),
)
