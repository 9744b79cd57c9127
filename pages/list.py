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
    """One page of the navigation. `icon` is one of Material Symbols; `questions` are names of `runner.answers` with the
    names of their tabs, the first opens by itself; `parts` are what else the page has, by name. The names of both are
    values of the address's `show`."""

    title: str
    address: str
    icon: str
    questions: Mapping[str, str]
    parts: Mapping[str, DrawPart] = field(default_factory=dict)


PAGES = (
    Page("Overview", "overview", "home", {"overview": "Fastest by size", "tune": "All ways of one model"}),
    Page("Step time", "training-step", "timer", {"step": "Time", "warmup": "Warm-up", "variability": "Variability"}),
    Page("Mixed precision", "mixed-precision", "compare_arrows", {
        "precision": "Speedup", "errors": "Errors", "dtypes": "Dtypes", "sums": "Accumulation",
        "normalization": "Normalization",
    }),
    Page("torch.compile", "torch-compile", "bolt", {"compile": "Speedup"}),
    Page("Memory", "peak-memory", "memory", {
        "memory": "Peak", "fit": "Fit", "saved": "Saved", "frontier": "Frontier", "residual": "Residual",
    }),
    Page("Timeline", "memory-timeline", "view_timeline", {"timelines": "Peak by phase"},
         parts={"every allocation": draw_timeline}),
    Page("Attention", "attention", "visibility", {
        "attention": "Time and memory", "attention_rates": "Attention rates", "attention_speedups": "Speedups",
        "ways": "In a whole step",
    }),
    Page("Kernels", "kernels", "stacked_bar_chart", {
        "kernels": "By time", "kernel_classes": "Kinds of work", "inside_attention": "Inside attention",
        "roofline": "Roofline", "traces": "Traces",
    }),
    Page("Compare", "compare", "balance", {"compare": "A against B", "published": "Published"}),
    Page("Data", "data", "table", {"trust": "Trust", "runs": "Runs", "noise": "Noise"},
         parts={"rows": draw_rows, "SQL": draw_sql}),
)  # fmt: skip
#: Addresses of before: where each leads now, and what is shown there.
MOVED: Mapping[str, tuple[str, str]] = {
    "roofline": ("kernels", "roofline"),
    "explore": ("data", "rows"),
    "published": ("compare", "published"),
    "report": ("overview", ""),
    "trust": ("data", "trust"),
    "sql": ("data", "SQL"),
}
