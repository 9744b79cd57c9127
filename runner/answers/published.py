"""What did others publish of the same shapes, beside own rows?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.words import lacks
from runner.formats import format_count, format_number
from runner.results.published import PublishedRow, PublishedTable
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
#: The modes in the order in which an own row is preferred.
_MODES: tuple[Mode, ...] = ("backward", "train", "forward", "inference")
_NAMES = {"s": "small", "m": "medium", "l": "large"}


def answer(rows: Rows, asked: Asked) -> Answer:
    tables = {f"{table.title} ({table.file})": table for table in rows.published if table.subject in _CELLS}
    if not tables:
        return Answer(
            missing=lacks("no published table of steps or attention: `python -m runner import FILE` adds one")
        )
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
    for row in table.rows:
        # The settings that the headings state where several stand in one row; a part of a model is none.
        stated = [figure.variant for figure in row.figures if "part" not in figure.variant]
        found: list[tuple[tuple[str, Any], ...]] = [tuple(variant.items()) for variant in stated]
        for variant in dict.fromkeys(found):
            setting = replace(row.setting, **dict(variant))
            cell = _CELLS[table.subject](setting)
            says = ", ".join(dict.fromkeys((*_name_settings(row, table), *(str(value) for _, value in variant))))
            for phase in PHASES:
                theirs = row.mean(phase, **dict(variant))
                if theirs is not None and theirs > 0:
                    own = _find_own(cell, phase, rows) if cell else None
                    ms = own.times[phase].step.ms if own else None
                    values = (row.line, says, phase, theirs, ms, theirs / ms if ms else None, row.status)
                    lines.append(
                        Row(
                            values=(*values, own.machine if own else ""),
                            cells=(own.cell_id,) if own else (),
                            wanted=(cell,) if cell and not own else (),
                        )
                    )
    return lines


def _name_settings(row: PublishedRow, table: PublishedTable) -> list[str]:
    return [
        text for name, text in row.stated.items() if table.meanings.get(name, "").startswith(("setting", "not known"))
    ]


def _step_cell(setting: PublishedSetting) -> StepCell | None:
    """Returns the step that a row says it measured; None where a number of it is not stated."""
    s, length = setting, setting.context or setting.seq_len
    name = _NAMES.get((s.name or "").lower(), (s.name or "").lower())
    numbers: dict[str, Any] = dict(SIZES[name].numbers) if name in SIZES else {}
    if s.d_model and s.d_ff and s.layers and s.heads:
        stated = {"d_model": s.d_model, "d_ff": s.d_ff, "layers": s.layers, "heads": s.heads}
        numbers = {**stated, **({"vocabulary": s.vocabulary} if s.vocabulary else {})}
    shared = _find_shared(s)
    if not numbers or not length or not s.batch or shared is None:
        return None
    mode: Mode = next((mode for mode in _MODES if mode == s.mode), "backward")
    return StepCell(**numbers, batch=s.batch, context=length, mode=mode, **shared)


def _attention_cell(setting: PublishedSetting) -> AttentionCell | None:
    s, length, width = setting, setting.seq_len or setting.context, setting.d_head or setting.d_model
    shared = _find_shared(s)
    if not length or not width or not s.batch or shared is None:
        return None
    return AttentionCell(implementation="naive", batch=s.batch, seq_len=length, d_head=width, **shared)


def _find_shared(setting: PublishedSetting) -> dict[str, Any] | None:
    """Returns precision and backend; None for one that is never measured here."""
    precision, backend = setting.precision or "fp32", setting.backend or "eager"
    known = precision in get_args(Precision) and backend in ("eager", "compiled")
    return {"precision": precision, "backend": backend} if known else None


_CELLS: dict[str, Any] = {"steps": _step_cell, "attention": _attention_cell}


def _find_own(cell: StepCell | AttentionCell, phase: Phase, rows: Rows) -> Any:
    """Returns the own result of this cell that has the phase: of several, the one that differs in fewest settings."""
    of: Sequence[Any] = rows.steps if isinstance(cell, StepCell) else rows.attention
    names = [name for name in type(cell).names() if name not in _FREE]
    known = [
        one
        for one in of
        if phase in one.times and all(getattr(one.cell, name) == getattr(cell, name) for name in names)
    ]
    return min(
        known,
        key=lambda one: sum(getattr(one.cell, name) != getattr(cell, name) for name in type(cell).names()),
        default=None,
    )


#: Settings that tables rarely state, in which an own row may differ.
_FREE = frozenset(StepCell.names()[StepCell.names().index("warmup_steps") :]) | {
    *("mode", "attention", "implementation", "optimizer", "checkpoint_blocks", "cache", "causal", "weights_dtype")
}

QUESTION = Question(answer=answer, page="Compare", needs=("published", "steps", "attention"))
