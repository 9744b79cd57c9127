"""What Overview shows of Mixed precision: the speedup of the first precision beside fp32, and what each costs in
accuracy."""

from pages.figures.colors import color_of
from pages.figures.frame import format_error
from pages.figures.small import SmallBar
from pages.mixed_precision.prices import describe_largest, load_evidence, price_precisions, select_largest
from pages.ui.answers import ratio_bars, speedup_answer
from pages.ui.comparison import comparison, explain_unpaired, variants
from pages.ui.evidence import of_pairs
from pages.ui.frame import Frame, Headline, Topic
from runner.analysis.compare.pairs import LeftOut
from runner.results import StepResult

BASELINE = "fp32"


def answer_speedup(frame: Frame) -> Headline:
    """Returns the answer of the first precision that was measured beside fp32."""
    left_out: list[LeftOut[StepResult]] = []
    for name in variants(frame, "precision", baseline=BASELINE):
        compared = comparison(frame, "precision", baseline=BASELINE, variant=name)
        if compared.speedups:
            return Headline(
                words=speedup_answer(compared, baseline=BASELINE, variant=name),
                evidence=of_pairs(frame, compared),
                bars=ratio_bars(frame, compared.speedups, axis="precision"),
                mark=1.0,
                graded=[side for pair in compared.speedups for side in (pair.base, pair.other)],
            )
        left_out += compared.left_out
    words = explain_unpaired(frame, left_out, axis="precision", baseline=BASELINE)
    return Headline(words=words, missing="" if any(item.failed for item in left_out) else "mixed-precision")


def _answer_accuracy(frame: Frame) -> Headline:
    """Returns the errors of the largest model that was measured with them."""
    largest = select_largest(price_precisions(frame))
    if not largest:
        return Headline(words=f"No error of a lower precision was measured {frame.where}.", missing="numerics")
    return Headline(
        words=describe_largest(largest),
        evidence=load_evidence(frame, largest)[0],
        bars=[
            SmallBar(
                name=one.row.precision,
                value=one.row.gradient_error or 0.0,
                words=format_error(one.row.gradient_error),
                color=color_of(one.row.precision),
            )
            for one in largest
        ],
        doubt="One forward and backward pass with one set of weights and tokens.",
    )


TOPICS = {
    "mixed-precision": Topic(title="Mixed precision", address="mixed-precision", ask=answer_speedup),
    "accuracy": Topic(title="Accuracy", address="mixed-precision", ask=_answer_accuracy),
}
