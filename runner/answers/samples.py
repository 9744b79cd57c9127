"""Every measured step of one cell: what a click on any mark opens."""

from collections.abc import Sequence
from uuid import UUID

from runner.answers.answer import Answer, Draw, Field, Guide, Row, View
from runner.formats import format_count, format_number
from runner.results import Estimate, PhaseSample
from runner.schema import Cell
from runner.schema.sizes import title

STEP = Field.of("samples", "step")
PHASE = Field.of("samples", "phase")
ROUND = Field.of("steps", "round", label="Process")
TIME = Field.of("samples", "duration_ms", "value")
WARMUP = Field.of("samples", "is_warmup", "note")


def answer(cell_id: UUID, cell: Cell, samples: Sequence[PhaseSample], known: Estimate | None) -> Answer:
    """`known` is the time that the other views show of this cell: a median of all samples would be another number."""
    whole = [one for one in samples if one.phase == "step"] or [one for one in samples if one.phase == "forward"]
    measured = sorted(one.duration_ms for one in whole if not one.is_warmup)
    if not measured:
        return Answer(question="samples", sentence="No samples were kept.", cells={cell_id: cell})
    guides = (
        (Guide(words=f"{format_number(known.ms)} ms over {format_count(known.rounds, 'process')}", at=known.ms),)
        if known
        else ()
    )
    strip = View(
        name=f"samples-{cell_id}",
        title=title(cell),
        about="",
        fields=(ROUND, PHASE, STEP, TIME, WARMUP),
        rows=tuple(
            Row(values=(one.round, one.phase, one.step, one.duration_ms, one.is_warmup), cells=(cell_id,))
            for one in whole
        ),
        draw=Draw(kind="strip", value="duration_ms", across="step", series="round", hollow="is_warmup", guides=guides),
        note="Hollow: warm-up, which no summary includes.",
    )
    processes = format_count(len({one.round for one in whole}), "process")
    reach = f"{format_number(measured[0])} to {format_number(measured[-1])} ms"
    sentence = f"**{len(measured)}** steps in {processes}, {reach}."
    return Answer(question="samples", sentence=sentence, views=(strip,), cells={cell_id: cell})
