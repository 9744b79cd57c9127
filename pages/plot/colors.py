"""One color for each entity, everywhere: phases, precisions, backends, grades, statuses, memory categories.

    color_of("backward"), color_of("bf16"), color_of("oom")

`PALETTE` is also `theme.chartCategoricalColors` of `.streamlit/config.toml` (a test compares them). The colors of one
family stay apart for readers with a red- or green-blind eye and have 3:1 contrast on the light and the dark page.
Baselines (fp32, eager) are slate, so that color means "different from the baseline".
"""

from collections.abc import Mapping

BLUE, ORANGE, GREEN, GOLD, PURPLE = "#5B86E5", "#E2661F", "#17A388", "#A78A1E", "#7F4BD6"
CYAN, SLATE, PINK, RED, BROWN = "#2196C4", "#5B6876", "#CB3FA5", "#C42B2B", "#B07F50"
PALETTE = (BLUE, ORANGE, GREEN, GOLD, PURPLE, CYAN, SLATE, PINK, RED, BROWN)

#: For guides and cells without a row.
FAINT = "rgba(128, 138, 150, 0.35)"
#: For marks and text beside the data; `pages.plot.ink` makes such text readable on the light and the dark page.
QUIET = "#7B8794"
#: For text on a tint; its ink is the page's own text color.
STRONG = "#26313D"

FAMILIES: Mapping[str, Mapping[str, str]] = {
    "phase": {
        "forward": BLUE,
        "loss": PINK,
        "backward": ORANGE,
        "optimizer": GREEN,
        "forward_backward": BROWN,
        "step": SLATE,
    },
    "precision": {"fp32": SLATE, "tf32": GOLD, "bf16": PURPLE, "fp16": CYAN},
    "backend": {
        "eager": SLATE,
        "compiled": PINK,
        "compiled-block": GOLD,
        "compiled-reduce-overhead": BLUE,
        "compiled-max-autotune": GREEN,
        "cuda-graphs": BROWN,
    },
    "category": {
        "parameter": BLUE,
        "gradient": ORANGE,
        "optimizer state": GREEN,
        "activation": PURPLE,
        "autocast copy": CYAN,
        "input": BROWN,
        "temporary": PINK,
        "workspace": RED,
        "unknown": SLATE,
    },
    "kernel class": {
        "matmul": BLUE,
        "attention": PURPLE,
        "softmax": RED,
        "normalisation": CYAN,
        "elementwise": PINK,
        "reduction": BROWN,
        "optimizer": GREEN,
        "copy or cast": GOLD,
        "communication": SLATE,
        "other": SLATE,
    },
    "implementation": {
        "naive": SLATE,
        "sdpa": BLUE,
        "sdpa-math": GOLD,
        "sdpa-flash": PURPLE,
        "sdpa-efficient": GREEN,
        "sdpa-cudnn": CYAN,
        "flex": PINK,
    },
    "grade": {"A": GREEN, "B": BLUE, "C": ORANGE, "D": RED},
    "status": {"ok": BLUE, "oom": RED, "timeout": ORANGE, "crashed": PURPLE, "error": BROWN, "skipped": SLATE},
}


def tint(color: str, *, opacity: float) -> str:
    """Returns a `#rrggbb` color with this opacity."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def color_of(entity: str) -> str:
    """Returns the color of a phase, precision, backend, memory category, kernel class, implementation, grade or
    status."""
    return next(family[entity] for family in FAMILIES.values() if entity in family)
