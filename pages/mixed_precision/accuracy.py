"""The section of *Mixed precision* on accuracy: the error of each precision, and where it comes from.

    draw_accuracy(frame)

Four questions: how far a pass is off, where a sum goes wrong, what autocast leaves wide, what normalization needs.
"""

from collections.abc import Sequence
from uuid import UUID

from pages.figures.frame import label_values
from pages.mixed_precision.answers import (
    describe_dtypes,
    describe_loss,
    describe_sensitivity,
    describe_worst,
    explain_sum,
    place_of,
    sum_of,
)
from pages.mixed_precision.figures import SumDrift, drift_lines
from pages.mixed_precision.format_figures import Sensitivity, dtype_grid, sensitivity_lines
from pages.mixed_precision.prices import Priced, draw_price, price_precisions
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, rows_of
from pages.ui.evidence import of_details, of_rows, say
from pages.ui.frame import Frame
from pages.ui.sections import draw_heading
from pages.ui.states import suggest
from runner.analysis.dtypes import formats_of
from runner.results import AccumulationResult
from runner.schema import NumericsRow
from runner.store.queries.numerics import load_accumulations, load_dtypes, load_sensitivities

_STATISTICS = ("mean of squares", "variance", "mean", "output")
_SUM = ("total", "exact", "error", "rounded_value", "spacing", "last_increment", "slips_at", "status")
_MODELS = {"Transformer": "transformer", "own models": "own", "toy: linear, ReLU, layer norm, linear": "toy"}


def draw_accuracy(frame: Frame) -> None:
    """Draws the cards for which there are rows."""
    draw_heading(frame, "What does it cost in accuracy?", anchor="accuracy")
    priced, sums = price_precisions(frame), frame.ask(load_accumulations, rows_of(frame))
    if not priced and not sums:
        suggest(
            f"The accuracy of these sizes and contexts was not measured {frame.where}. This measures it in seconds:",
            frame.sweep("--experiment numerics"),
        )
        return
    if priced:
        draw_price(frame, priced)
    if sums:
        _draw_sums(frame, [one for one in sums if one.row.total is not None])
    done = [one for one in priced if one.row.status == "ok"]
    if done:
        rows = _choose_model(done)
        _draw_dtypes(frame, rows)
        _draw_normalization(frame, rows[0])


def _choose_model(priced: Sequence[Priced]) -> list[NumericsRow]:
    """Returns the precisions of one model; the largest unless the reader chooses another."""
    places = list(dict.fromkeys(place_of(one.row) for one in priced))
    label = "Model for dtypes and normalization"
    place = chosen("numerics-model", label, places, default=places[-1]) if len(places) > 1 else places[0]
    return [one.row for one in priced if place_of(one.row) == place]


def _draw_sums(frame: Frame, sums: Sequence[AccumulationResult]) -> None:
    if not sums:
        return
    row = sums[0].row
    draw_heading(frame, f"What do {row.addends:,} additions of {row.value:g} give?", anchor="sums")
    words = "\n".join(f"- {explain_sum(one.row)}" for one in sums) + f"\n\n{describe_worst(sums)}"
    last = of_details(frame, "sums on their way", [sums[-1].row.cell_id])
    say(frame, words, of_rows(frame, [one.row for one in sums]), last, key="accumulation")
    card = Card(
        key="accumulation",
        folded=True,
        title="How the sums drift",
        note="One tensor added to another, again and again; 0 is the exact sum.",
        alt=f"Sums less the exact ones. {' '.join(explain_sum(one.row) for one in sums)}",
        rows=[{"Sum": sum_of(one.row)} | label_values("accumulation", one.row, _SUM) for one in sums],
        cells=[one.row for one in sums],
    )
    draw(frame, card, lambda: drift_lines(_group_drifts(sums), value=row.value))


def _group_drifts(sums: Sequence[AccumulationResult]) -> list[SumDrift]:
    """Returns one line for each different course of a sum; sums that agree at every point share one."""
    lines: dict[tuple[tuple[int, float], ...], list[AccumulationResult]] = {}
    for one in sums:
        lines.setdefault(one.on_the_way, []).append(one)
    return [
        SumDrift(
            line="; ".join(sum_of(one.row) for one in same),
            entity=same[0].row.accumulator,
            points=[(addend, total - addend * same[0].row.value) for addend, total in points],
            dash="solid" if same[0].row.accumulator == same[0].row.addend else "dash",
            slips_at=same[0].row.slips_at,
        )
        for points, same in lines.items()
        if points
    ]


def _draw_dtypes(frame: Frame, rows: Sequence[NumericsRow]) -> None:
    draw_heading(frame, "What does autocast leave in fp32?", anchor="dtypes")
    precision: dict[UUID, str] = {row.cell_id: row.precision for row in rows}
    found = frame.ask(load_dtypes, tuple(precision))
    there = {row.model for row in found}
    model = chosen("dtypes-of", "Read from", [name for name, of in _MODELS.items() if of in there] or [*_MODELS][:1])
    read = [row for row in found if row.model == _MODELS[model]]
    by_precision = {
        name: formats_of(row for row in read if precision[row.cell_id] == name) for name in precision.values()
    }
    words = describe_dtypes({name: formats for name, formats in by_precision.items() if name in ("fp16", "bf16")})
    say(frame, words, of_details(frame, "dtypes", list(precision)), key="dtypes")
    grid = {(part, name): by_precision[name].get(part, [])
            for formats in by_precision.values() for part in formats for name in by_precision}  # fmt: skip
    card = Card(
        key="dtypes",
        folded=True,
        title="dtypes of a pass, as read from it",
        note="Read by hooks, on the device of these rows: autocast has other rules on a CPU than on CUDA.",
        alt=f"A table of parts and precisions. {words}",
        rows=[
            {
                **label_values("dtypes", row, ("model",)),
                "Precision": precision[row.cell_id],
                **label_values("dtypes", row, ("part", "module", "dtype")),
            }
            for row in read
        ],
        cells=rows,
    )
    draw(frame, card, lambda: dtype_grid(grid))


def _draw_normalization(frame: Frame, row: NumericsRow) -> None:
    points = frame.ask(load_sensitivities, row.cell_id)
    if not points:
        return
    draw_heading(frame, "What in normalization needs more than 16 bits?", anchor="normalization")
    statistic = chosen("statistic", "Statistic", _STATISTICS)
    shown = [point for point in points if point.statistic == statistic]
    words = describe_sensitivity(shown, statistic=statistic)
    say(frame, words, of_details(frame, "normalization", [row.cell_id]), key="normalization")
    names = ("statistic", "computed_in", "scale", "error", "overflowed_share", "underflowed_share")
    card = Card(
        key="normalization",
        folded=True,
        title=f"The {statistic} against float64",
        note=f"Of the residual streams that enter blocks of {place_of(row)}, times powers of two; the worst block. "
        "Crosses: values lost to infinity or to 0. bf16 has fp32's exponents, so that it is coarse at every size.",
        alt=f"Errors by scale and dtype. {words}",
        rows=[label_values("normalisation", point, names) for point in points],
        cells=[row],
    )
    draw(
        frame,
        card,
        lambda: sensitivity_lines(
            [
                Sensitivity(
                    computed_in=point.computed_in, scale=point.scale, error=point.error, lost=describe_loss(point)
                )
                for point in shown
            ],
            what=statistic,
        ),
    )
