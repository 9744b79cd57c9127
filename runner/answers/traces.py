"""What does a step of an imported trace spend its GPU time on, and in which kernels do two traces differ?"""

from collections import Counter, defaultdict
from collections.abc import Callable

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.kernels import WHOLE, draw_phases, draw_top, short_names
from runner.answers.words import lacks, say_ratio
from runner.formats import format_count, format_number, format_share
from runner.results.cells import CLASS_WORDS, Kernel
from runner.results.rows import ImportedTrace, Rows

NONE = "no other"
KERNEL = Field("kernel", "Kernel")
RATIO = Field("ratio", "A / B", unit="×", role="value", doc="Above 1, B takes less GPU time.")
A = Field("a_ms", "A", unit="ms", role="note", doc="GPU time per step, all calls together.")
B = Field("b_ms", "B", unit="ms", role="note", doc="GPU time per step, all calls together.")
RAN = Field("ran", "Ran", role="status")


def answer(rows: Rows, asked: Asked) -> Answer:
    if not rows.imported:
        return Answer(missing=lacks("no trace was imported: `python -m runner import trace.json.gz` adds one"))
    seen, named = Counter[str](), dict[str, ImportedTrace]()
    for one in rows.imported:
        seen[one.title] += 1
        named[one.title if seen[one.title] == 1 else f"{one.title} #{seen[one.title]}"] = one
    trace = choose(asked, "trace", "Trace", list(named))
    others = [NONE, *(name for name in named if name != trace.chosen)]
    against = choose(asked, "against", "Against", others if len(others) > 1 else [NONE], prefix="B: ")
    one, other = named[trace.chosen], named.get(against.chosen)
    words = f"{one.machine} · GPU time" + (" per step" if one.steps else ", whole recording")
    views = [
        *([_compare(one, other, f"A: {trace.chosen}, B: {against.chosen}")] if other else []),
        draw_phases(one, title=f"{trace.chosen}: kernels by phase", words=words),
        draw_top(one, words=words),
    ]
    return Answer(
        sentence=_say(trace.chosen, one),
        more=_say_difference(views[0], one, other) if other else "",
        views=tuple(views),
        choices=(trace, against),
    )


def _compare(one: ImportedTrace, other: ImportedTrace, words: str) -> View:
    """Draws the ratio of each kernel, those first whose difference is largest."""
    a, b = (_sum(trace, lambda kernel: kernel.kernel) for trace in (one, other))
    names, lines = short_names([*a, *b]), []
    for name in sorted({**a, **b}, key=lambda name: -abs(a.get(name, 0.0) - b.get(name, 0.0))):
        of_a, of_b = a.get(name), b.get(name)
        ran = None if name in a and name in b else "only in A" if name in a else "only in B"
        ratio = of_a / of_b if of_a and of_b else None
        lines.append(Row.of((one, other), names[name], ratio, of_a, of_b, ran, name))
    return View(
        name="traces-compared",
        title="Kernels of two traces",
        about=words,
        fields=(KERNEL, RATIO, A, B, RAN, WHOLE),
        rows=tuple(lines),
        draw=Draw("table", "ratio", down=("kernel",)),
        note="The largest difference first.",
    )


def _say(name: str, one: ImportedTrace) -> str:
    kinds = _sum(one, lambda kernel: CLASS_WORDS[kernel.kernel_class])
    whole = sum(kinds.values())
    of = "A step" if one.steps else "The recording"
    text = f"{of} of **{verbatim(name)}** takes **{format_number(whole)} ms** of GPU time"
    if whole:
        text += ": " + ", ".join(f"{kind} {format_share(took / whole)}" for kind, took in [*kinds.items()][:2])
    if one.busy_ms is not None and one.step_ms:
        text += f". The GPU is busy for **{format_share(one.busy_ms / one.step_ms)}** of a step of "
        text += f"{format_number(one.step_ms)} ms"
    return f"{text}."


def _say_difference(view: View, one: ImportedTrace, other: ImportedTrace) -> str:
    a, b = (sum(kernel.device_ms for kernel in trace.kernels) for trace in (one, other))
    if not a or not b:
        return ""
    alone = [sum(view.get(row, "ran") == f"only in {side}" for row in view.rows) for side in "AB"]
    text = f"B takes {format_number(b)} ms of GPU time: {say_ratio(a / b, 'faster' if a > b else 'slower')}"
    return f"{text}. {format_count(alone[0], 'kernel')} ran only in A, {alone[1]} only in B."


def _sum(trace: ImportedTrace, key: Callable[[Kernel], str]) -> dict[str, float]:
    """Returns the GPU time (ms) of a trace by kernel or kind of work, the most first."""
    sums = defaultdict[str, float](float)
    for kernel in trace.kernels:
        sums[key(kernel)] += kernel.device_ms
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


QUESTION = Question(answer=answer, needs=("imported",), of_file=True)
