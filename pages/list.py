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


@dataclass(frozen=True)
class Page:
    """One page of the navigation. `icon` is one of Material Symbols; `questions` are names of `runner.answers`, the
    first opens by itself; `parts` are what else the page has, by name; both are values of the address's `show`."""

    title: str
    address: str
    icon: str
    questions: tuple[str, ...] = ()
    parts: Mapping[str, DrawPart] = field(default_factory=dict)


PAGES = (
    Page("Overview", "overview", "home", ("overview", "tune")),
    Page("Step time", "training-step", "timer", ("step", "warmup", "variability")),
    Page(
        "Mixed precision",
        "mixed-precision",
        "compare_arrows",
        ("precision", "errors", "dtypes", "sums", "normalization"),
    ),
    Page("torch.compile", "torch-compile", "bolt", ("compile",)),
    Page("Memory", "peak-memory", "memory", ("memory", "fit", "saved", "frontier", "residual")),
    Page("Timeline", "memory-timeline", "view_timeline", ("timelines",), parts={"every allocation": draw_timeline}),
    Page("Attention", "attention", "visibility", ("attention", "attention_rates", "attention_speedups", "ways")),
    Page(
        "Kernels",
        "kernels",
        "stacked_bar_chart",
        ("kernels", "kernel_classes", "inside_attention", "roofline", "traces"),
    ),
    Page("Compare", "compare", "balance", ("compare", "published")),
    Page("Data", "data", "table", ("trust", "runs", "noise"), parts={"rows": draw_rows, "SQL": draw_sql}),
)
#: The names of tabs that a question's own name does not tell.
TABS: Mapping[str, str] = {
    "overview": "Fastest by size",
    "tune": "All ways of one model",
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
