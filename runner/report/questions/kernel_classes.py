"""K3 and K4: the kinds of work beside matrix products, and the share of matrix products by mode."""

from collections.abc import Mapping, Sequence

from runner.analysis.kernel_sums import matmul_share, sum_by_class
from runner.answers.keys import make_keys
from runner.formats import format_list, format_number, format_share
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.questions.kernels import OPEN, done, largest, noun_of, phases, want_profiles
from runner.report.rows import Rows
from runner.report.text import NONE
from runner.results import KernelTrace
from runner.results.kernels import CLASS_WORDS
from runner.schema import ProfileCell
from runner.schema.titles import title


def _answer_classes(rows: Rows) -> Answer:
    traces = done(rows)
    if not traces:
        return Answer(lacks=OPEN)
    keys = make_keys([cell for _, cell in traces])
    found = {part.kernel_class for trace, _ in traces for part in rows.parts[trace.cell_id]}
    classes = [name for name in CLASS_WORDS if name in found]
    lines = []
    for trace, cell in traces:
        for phase in phases(rows, trace):
            sums = sum_by_class(rows.parts[trace.cell_id], phase=phase)
            whole = sum(sums.values()) or 1.0
            shares = (format_share(sums[name] / whole) if name in sums else NONE for name in classes)
            lines.append(Line(values=(*keys.values(cell), phase, *shares, format_number(sum(sums.values())))))
    noun = noun_of(traces[0][0])
    table = ReportTable(
        caption=f"Share of each kind of work in the time of the {noun}: {keys.shared}",
        headings=(*keys.headings, "Phase", *(CLASS_WORDS[name].capitalize() for name in classes), "Sum (ms)"),
        lines=tuple(lines),
        note=f"Shares of the {noun}' own time in the phase; {NONE}: none ran. Sums per step, under the profiler.",
    )
    sentence = _describe_classes(rows, largest(traces, "inference", "forward"))
    return Answer(sentence=sentence, tables=(table,), behind=behind(trace for trace, _ in traces))


def _describe_classes(rows: Rows, chosen: tuple[KernelTrace, ProfileCell]) -> str:
    trace, cell = chosen
    sums = sum_by_class(rows.parts[trace.cell_id], phase="forward")
    whole = sum(sums.values()) or 1.0
    others = sorted(((ms / whole, CLASS_WORDS[name]) for name, ms in sums.items() if name != "matmul"), reverse=True)
    listed = [f"{words} {format_share(share)}" for share, words in others if share >= 0.01]
    if not listed:
        return f"In the forward pass of {title(cell)} nothing but matrix products takes 1% of the time."
    products = format_share(sums.get("matmul", 0.0) / whole)
    return f"In the forward pass of {title(cell)}, beside matrix products ({products}): {format_list(listed)}."


def _answer_modes(rows: Rows) -> Answer:
    traces = done(rows)
    shares = {trace.cell_id: share for trace, _ in traces if (share := matmul_share(rows.parts[trace.cell_id]))}
    if not shares:
        return Answer(lacks=OPEN)
    groups: dict[tuple[object, ...], dict[str, tuple[float, ProfileCell]]] = {}
    for trace, cell in traces:
        if trace.cell_id in shares:
            key = tuple(getattr(cell, name) for name in ProfileCell.names() if name != "mode")
            groups.setdefault(key, {})[cell.mode] = (shares[trace.cell_id], cell)
    modes = [
        mode for mode in ("inference", "forward", "backward", "train") if any(mode in each for each in groups.values())
    ]
    cells = [next(iter(each.values()))[1] for each in groups.values()]
    keys = make_keys(cells, without=("mode",))
    lines = [
        Line(values=(*keys.values(cell), *(f"{each[mode][0]:.1%}" if mode in each else NONE for mode in modes)))
        for cell, each in zip(cells, groups.values(), strict=True)
    ]
    names = {
        "inference": "Inference",
        "forward": "Forward",
        "backward": "Forward + backward",
        "train": "Full AdamW step",
    }
    table = ReportTable(
        caption=f"Share of matrix products by mode: {keys.shared}",
        headings=(*keys.headings, *(names[mode] for mode in modes)),
        lines=tuple(lines),
        note=f"Share of the {noun_of(traces[0][0])}' own time over the whole step; {NONE}: not profiled in this mode.",
    )
    both = [each for each in groups.values() if {"inference", "train"} <= each.keys()]
    return Answer(
        sentence=_describe_modes(both),
        tables=(table,),
        behind=behind(trace for trace, _ in traces),
        lacks="" if both else "no step was profiled both in inference and in training",
    )


def _describe_modes(both: Sequence[Mapping[str, tuple[float, ProfileCell]]]) -> str:
    if not both:
        return "No step was profiled both in inference and in training, so that the change is not known."
    largest = both[-1]
    (before, cell), (after, _) = largest["inference"], largest["train"]
    name = title(cell).replace(" · inference", "", 1)
    word = "falls" if after < before else "rises"
    same = sum((each["train"][0] < each["inference"][0]) == (after < before) for each in both)
    rest = f" It {word} in {same} of {len(both)} steps profiled in both." if len(both) > 1 else ""
    return f"From inference to a full AdamW step the share {word} from {before:.0%} to {after:.0%} in {name}.{rest}"


QUESTIONS = (
    Question[Rows](
        id="K3",
        text="Which kernels besides matrix products matter?",
        page="kernels",
        answer=_answer_classes,
        wanted=want_profiles,
    ),
    Question[Rows](
        id="K4",
        text="How does the share of matrix products change from inference to a full AdamW step?",
        page="kernels",
        answer=_answer_modes,
        wanted=want_profiles,
    ),
)
