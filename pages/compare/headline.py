"""The headline of Compare on Overview: the changes from the pinned baseline to the latest run that shares cells with
it."""

from pages.figures.pairs import LOOKS
from pages.figures.small import SmallBar
from pages.ui.evidence import of_sides
from pages.ui.frame import Frame, Headline, Topic
from pages.ui.markdown import literal
from runner.analysis.compare.verdict import Verdict, select_movers
from runner.analysis.compare.verdict_text import describe_verdict, shorten_titles
from runner.formats import format_number
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.sides import find_since_baseline


def _answer(frame: Frame) -> Headline:
    """Returns the headline, which is empty where no baseline is pinned."""
    sides = frame.ask(find_since_baseline)
    if sides is None:
        return Headline(words="")
    found = frame.ask(load_comparison, ComparisonRequest(a=sides[0], b=sides[1]))
    verdicts = [verdict for verdict in found.verdicts if verdict.pairs]
    if not verdicts:
        return Headline(words="The pinned baseline shares no cell that can be compared with a later run.")
    a, b = (literal(side.title) for side in sides)
    words = " ".join(literal(describe_verdict(verdict)) for verdict in verdicts)
    return Headline(
        words=f"From the baseline **{a}** to **{b}**: {words}",
        evidence=of_sides(frame, verdicts[0]),
        bars=_draw_movers(verdicts[0]),
        mark=1.0,
    )


def _draw_movers(verdict: Verdict) -> list[SmallBar]:
    moved = select_movers(verdict)
    if not moved:
        return []
    _, names = shorten_titles([pair.named.cell for pair in moved], without=[side.value for side in verdict.sides])
    return [
        SmallBar(
            name=name,
            value=pair.ratio,
            words=f"{format_number(pair.ratio)}×",
            color=LOOKS[pair.outcome][0],
            low=pair.low,
            high=pair.high,
        )
        for name, pair in zip(names, moved, strict=True)
    ]


TOPICS = {"baseline": Topic(title="Since the baseline", address="compare", ask=_answer)}
