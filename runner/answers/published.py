"""What did others publish of the same shapes, beside own rows?"""

from collections.abc import Sequence
from typing import Any, get_args

from runner.analysis.audit.published import list_cells
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.words import lacks
from runner.formats import format_count, format_number
from runner.results.published import PublishedTable
from runner.results.rows import Rows
from runner.schema import AttentionCell, Mode, Phase, PublishedSetting, StepCell
from runner.schema.choices import Precision
from runner.schema.sizes import SIZES

LINE = Field("line", "Line", doc="Its line in the file.")
SAYS = Field("says", "Row", doc="What the table says of the row.")
PHASE = Field("phase", "Phase")
THEIRS = Field("published_ms", "Published", unit="ms", role="value")
OURS = Field("own_ms", "Own", unit="ms", role="note", doc="A measured cell of the same shape and settings.")
RATIO = Field("ratio", "Published over own", unit="×", role="note")
STATUS = Field.of("published_rows", "status", "status")
MACHINE = Field("machine", "Own machine", role="note")
PHASES: tuple[Phase, ...] = ("forward", "backward", "forward_backward", "optimizer", "step")
_NAMES = {"s": "small", "m": "medium", "l": "large"}


def answer(rows: Rows, asked: Asked) -> Answer:
    judged = [table for table in rows.published if table.subject in ("steps", "attention")]
    tables = {f"{table.title} ({table.file})": table for table in judged}
    if not tables:
        words = "no published table of steps or attention: `python -m runner import FILE` adds one"
        return Answer(missing=lacks(words))
    pairs = {name: _list_rows(table, rows) for name, table in tables.items()}
    on_gpu = [name for name in tables if not any(row.setting.device in ("cpu", "mps") for row in tables[name].rows)]
    fullest = max(on_gpu or tables, key=lambda name: sum(len(row.cells) for row in pairs[name]))
    choice = choose(asked, "table", "Table", list(tables), default=fullest)
    table = tables[choice.chosen]
    view = View(
        name="published",
        title="Published times beside own rows",
        about=" · ".join(filter(None, (table.title, table.machine))),
        fields=(LINE, SAYS, PHASE, THEIRS, OURS, RATIO, STATUS, MACHINE),
        rows=tuple(pairs[choice.chosen]),
        draw=Draw("table", "published_ms", down=("line", "says", "phase")),
        note="Of the same shape, length, batch, precision and backend. A precision that a table leaves out is taken to "
        "be fp32, a backend eager, and a size that it only names that of the course; a batch is not guessed.",
    )
    own = {one.cell_id: one.cell for one in (*rows.steps, *rows.attention)}
    used = {cell_id: own[cell_id] for row in view.rows for cell_id in row.cells}
    return Answer(sentence=_say(view), views=(view,), choices=(choice,), cells=used)


def _say(view: View) -> str:
    ratios = [ratio for ratio in view.column("ratio") if ratio is not None]
    count = format_count(len(view.rows), "published time")
    if not ratios:
        return f"None of **{count}** has an own row of the same shape and settings."
    least, most = (format_number(value) for value in (min(ratios), max(ratios)))
    return (
        f"**{len(ratios)}** of {count} have an own row of the same shape: they are **{least}×** to **{most}×** the own "
        "latency."
    )


def _list_rows(table: PublishedTable, rows: Rows) -> list[Row]:
    lines = []
    for said in list_cells(table):
        cell = _make_cell(said.setting, table.subject)
        for phase in PHASES:
            theirs = said.row.mean(phase, **dict(said.variant))
            if theirs is not None and theirs > 0:
                own = _find_own(cell, phase, rows) if cell else None
                ms = own.times[phase].step.ms if own else None
                values = (said.row.line, said.words, phase, theirs, ms, theirs / ms if ms else None, said.row.status)
                cells, wanted = (own.cell_id,) if own else (), (cell,) if cell and not own else ()
                lines.append(Row(values=(*values, own.machine if own else ""), cells=cells, wanted=wanted))
    return lines


def _make_cell(s: PublishedSetting, subject: str) -> StepCell | AttentionCell | None:
    """Returns the cell that a row says it measured; None where a number of it is not stated, or it is never measured
    here."""
    length, width, name = s.context or s.seq_len, s.d_head or s.d_model, (s.name or "").lower()
    shared: dict[str, Any] = {"precision": s.precision or "fp32", "backend": s.backend or "eager", "batch": s.batch}
    is_known = shared["precision"] in get_args(Precision) and shared["backend"] in ("eager", "compiled")
    if not length or not s.batch or not is_known:
        return None
    if subject == "attention":
        return AttentionCell(implementation="naive", seq_len=length, d_head=width, **shared) if width else None
    size = SIZES.get(_NAMES.get(name, name))
    numbers: dict[str, Any] = dict(size.numbers) if size else {}
    if s.d_model and s.d_ff and s.layers and s.heads:
        numbers |= {"d_model": s.d_model, "d_ff": s.d_ff, "layers": s.layers, "heads": s.heads}
        numbers |= {"vocabulary": s.vocabulary} if s.vocabulary else {}
    mode: Mode = next((mode for mode in get_args(Mode) if mode == s.mode), "backward")
    return StepCell(**numbers, context=length, mode=mode, **shared) if numbers else None


def _find_own(cell: StepCell | AttentionCell, phase: Phase, rows: Rows) -> Any:
    """Returns the own result of this cell that has the phase: of several, the one that differs in fewest settings."""
    of: Sequence[Any] = rows.steps if isinstance(cell, StepCell) else rows.attention
    names = [name for name in type(cell).names() if name not in _FREE]

    def count_differing(one: Any, names: Sequence[str]) -> int:
        return sum(getattr(one.cell, name) != getattr(cell, name) for name in names)

    known = [one for one in of if phase in one.times and not count_differing(one, names)]
    return min(known, key=lambda one: count_differing(one, type(cell).names()), default=None)


#: Settings that tables rarely state, in which an own row may differ.
_FREE = frozenset(StepCell.names()[StepCell.names().index("warmup_steps") :]) | {
    *("mode", "attention", "implementation", "optimizer", "checkpoint_blocks", "cache", "causal", "weights_dtype")
}

QUESTION = Question(answer=answer, needs=("published", "steps", "attention"))
