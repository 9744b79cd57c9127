"""The pages there are, in the order of the navigation: a title, an address, and the questions that it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pages.data import draw_rows
from pages.frame import Frame
from pages.sql import draw_sql
from pages.timeline.page import draw_timeline
from runner.answers.answer import Choice

#: Draws a part of a page that is no question, below the choices of machine and run.
DrawPart = Callable[[Frame, Sequence[Choice]], None]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of the navigation. `questions` are names of `runner.answers`, the first opens by itself; `parts` are
    what else the page has, by name; both are values of the address's `show`."""

    title: str
    address: str
    icon: str
    questions: tuple[str, ...] = ()
    parts: Mapping[str, DrawPart] = field(default_factory=dict)


PAGES = (
    Page(title="Overview", address="overview", icon=":material/home:", questions=("overview",)),
    Page(
        title="Step time", address="training-step", icon=":material/timer:", questions=("step", "warmup", "variability")
    ),
    Page(
        title="Mixed precision",
        address="mixed-precision",
        icon=":material/compare_arrows:",
        questions=("precision", "errors", "dtypes", "sums", "normalization"),
    ),
    Page(title="torch.compile", address="torch-compile", icon=":material/bolt:", questions=("compile",)),
    Page(
        title="Memory",
        address="peak-memory",
        icon=":material/memory:",
        questions=("memory", "fit", "saved", "frontier", "residual"),
    ),
    Page(
        title="Timeline",
        address="memory-timeline",
        icon=":material/view_timeline:",
        questions=("timelines",),
        parts={"every allocation": draw_timeline},
    ),
    Page(
        title="Attention",
        address="attention",
        icon=":material/visibility:",
        questions=("attention", "attention_speedups", "ways"),
    ),
    Page(
        title="Kernels",
        address="kernels",
        icon=":material/stacked_bar_chart:",
        questions=("kernels", "kernel_classes", "inside_attention", "roofline", "traces"),
    ),
    Page(title="Compare", address="compare", icon=":material/balance:", questions=("compare", "published")),
    Page(
        title="Data",
        address="data",
        icon=":material/table:",
        questions=("trust", "runs", "noise"),
        parts={"rows": draw_rows, "SQL": draw_sql},
    ),
)
#: The names of tabs that a question's own name does not tell.
TABS: Mapping[str, str] = {
    "step": "Time",
    "warmup": "Warm-up",
    "precision": "Speedup",
    "sums": "Accumulation",
    "compile": "Speedup",
    "memory": "Peak",
    "timelines": "Peak by phase",
    "attention": "Time and memory",
    "attention_speedups": "Speedups",
    "ways": "In a whole step",
    "kernels": "By time",
    "kernel_classes": "Kinds of work",
    "compare": "A against B",
}
#: Addresses of before: where each leads now, and what is shown there.
MOVED: Mapping[str, tuple[str, str]] = {
    "roofline": ("kernels", "roofline"),
    "explore": ("data", "rows"),
    "published": ("compare", "published"),
    "report": ("overview", ""),
    "trust": ("data", "trust"),
    "sql": ("data", "SQL"),
}
