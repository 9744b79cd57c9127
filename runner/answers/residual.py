"""How large is one residual-stream activation?"""

from runner.analysis.costs.steps import residual_stream_bytes, weight_bytes
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import about, cells_of, narrow, sizes_of
from runner.answers.words import CONTEXT, SIZE, lacks
from runner.formats import format_bytes
from runner.results.rows import Rows
from runner.schema import Model

STREAM = Field.of("memory", "residual_stream_bytes", "value")
FORMULA = Field("formula_bytes", "By formula", unit="bytes", role="note", doc="B × T × d_model × bytes.")
AGREES = Field("agrees", "Agrees", role="note")


def answer(rows: Rows, asked: Asked) -> Answer:
    known = [one for one in rows.peaks if one.residual_stream_bytes and one.cell.model_key is None]
    if not known:
        return Answer(missing=lacks("no residual stream was measured"))
    # The tensor between two blocks is the same in every mode, precision of the products and implementation.
    key = {one.cell_id: (Model.of(one.cell), one.cell.batch, one.cell.context, weight_bytes(one.cell)) for one in known}
    known = [*{key[one.cell_id]: one for one in known}.values()]
    shape = ("mode", "precision", "attention", "optimizer", "checkpoint_blocks", "timeline")
    shown, choices = narrow(known, asked, drawn=("size", "context", *shape))
    sizes = sizes_of(shown)
    view = View(
        name="residual",
        title="One residual-stream activation",
        about=about(shown, *shape),
        fields=(SIZE, CONTEXT, STREAM, FORMULA, AGREES),
        rows=tuple(
            Row.of(
                one,
                sizes[Model.of(one.cell)],
                one.cell.context,
                one.residual_stream_bytes,
                residual_stream_bytes(one.cell),
                residual_stream_bytes(one.cell) == one.residual_stream_bytes,
            )
            for one in shown
        ),
        draw=Draw("matrix", "residual_stream_bytes", down=("size",), across="context", log="x"),
        note="Measured: the tensor between two blocks. By formula: batch × context × d_model × bytes of a weight.",
    )
    top = max(view.rows, key=lambda row: view.get(row, "residual_stream_bytes"))
    agreeing = sum(view.get(row, "agrees") for row in view.rows)
    return Answer(
        sentence=f"**{top.values[0]}** at {top.values[1]:,} tokens passes **{format_bytes(top.values[2])}** from block "
        f"to block; B·T·d_model·bytes agrees to the byte in {agreeing} of {len(view.rows)} cells.",
        views=(view,),
        choices=tuple(choices),
        cells=cells_of(shown),
    )


QUESTION = Question(answer=answer, needs=("peaks",), course=("M4",))
