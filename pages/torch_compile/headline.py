"""What Overview shows of torch.compile: the speedup of the best backend, and when the cell that gains most pays off."""

from pages.torch_compile.answers import answer, find_best_backend
from pages.torch_compile.cards import evidence_of_speedups
from pages.torch_compile.speedups import BASELINE, load_speedups, ways
from pages.ui.answers import ratio_bars
from pages.ui.comparison import explain_unpaired
from pages.ui.frame import Frame, Headline, Topic


def answer_compiled(frame: Frame) -> Headline:
    items, left_out = load_speedups(frame, ways(frame))
    if not items:
        words = explain_unpaired(frame, left_out, axis="backend", baseline=BASELINE)
        return Headline(words=words, missing="" if any(item.failed for item in left_out) else "compile")
    backend = find_best_backend(items)
    best = [item.step for item in items if item.variant == backend]
    return Headline(
        words=answer(frame, items),
        evidence=evidence_of_speedups(frame, items),
        bars=ratio_bars(frame, best, axis="backend"),
        mark=1.0,
        graded=[side for pair in best for side in (pair.base, pair.other)],
    )


TOPICS = {"torch-compile": Topic(title="torch.compile", address="torch-compile", ask=answer_compiled)}
