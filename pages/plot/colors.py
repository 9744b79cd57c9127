"""One color for each entity, everywhere: phases, precisions, backends, grades, statuses, memory categories.

    document.style = ink_rules()          # CSS: text drawn in a color of the palette gets its ink

`PALETTE` is also `theme.chartCategoricalColors` of `.streamlit/config.toml` (a test compares them). The colors of one
family stay apart for readers with a red- or green-blind eye and have 3:1 contrast on the light and the dark page.
Baselines (fp32, eager) are slate, so that color means "different from the baseline". For text no gray has 4.5:1 on both
pages, and Plotly takes one color, so CSS gives each color its ink by the reader's color scheme.
"""

from collections.abc import Mapping

BLUE, ORANGE, GREEN, GOLD, PURPLE = "#5B86E5", "#E2661F", "#17A388", "#A78A1E", "#7F4BD6"
CYAN, SLATE, PINK, RED, BROWN = "#2196C4", "#5B6876", "#CB3FA5", "#C42B2B", "#B07F50"
PALETTE = (BLUE, ORANGE, GREEN, GOLD, PURPLE, CYAN, SLATE, PINK, RED, BROWN)

#: For guides and cells without a row.
FAINT = "rgba(128, 138, 150, 0.35)"
#: For marks and text beside the data; `pages.plot.colors` makes such text readable on the light and the dark page.
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
        "sdpa-flash3": BLUE,
        "sdpa-flash4": ORANGE,
        "sdpa-cudnn": CYAN,
        "flex": PINK,
    },
    "grade": {"A": GREEN, "B": BLUE, "C": ORANGE, "D": RED},
    "status": {
        "ok": BLUE,
        "oom": RED,
        "timeout": ORANGE,
        "crashed": PURPLE,
        "error": BROWN,
        "wrong": PINK,
        "skipped": SLATE,
    },
}


def tint(color: str, *, opacity: float) -> str:
    """Returns a `#rrggbb` color with this opacity."""
    return "rgba({}, {}, {}, {})".format(*_parse(color), opacity)


LIGHT, DARK = "#FFFFFF", "#10151C"
#: WCAG 2.2, 1.4.3 asks for 4.5; tints behind the text need some more.
MIN_CONTRAST = 4.8
#: The inks of `QUIET` and `STRONG` on the light page and on the dark.
_QUIET_INKS, _STRONG_INKS = ("#5A6675", "#A7B2BF"), ("#1B2430", "#E4E9EF")
#: Colors of axes and headings in Streamlit's theme, on the light page and on the dark.
_THEME = ("#808495", "#E6EAF1")


def contrast(color: str, page: str) -> float:
    """Returns the contrast ratio of two colors, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted(map(_compute_luminance, (color, page)))
    return (high + 0.05) / (low + 0.05)


def ink(color: str, *, page: str) -> str:
    """Returns the color, made darker or lighter until text in it is readable on this page."""
    end = 0 if page == LIGHT else 255
    for step in range(21):
        mixed = "#" + "".join(f"{round(part + (end - part) * step / 20):02X}" for part in _parse(color))
        if contrast(mixed, page) >= MIN_CONTRAST:
            return mixed
    return mixed


def ink_rules() -> str:
    """Returns a CSS rule for each color, for every Plotly chart on a page that sets `color-scheme`; and one by which
    numbers cover the lines behind them, where they stand on the page and not in a bar or a tinted cell."""
    inks = {color: (ink(color, page=LIGHT), ink(color, page=DARK)) for color in PALETTE}
    inks |= dict.fromkeys((QUIET, *_THEME), _QUIET_INKS) | {STRONG: _STRONG_INKS}
    halo = f"{{ paint-order: stroke; stroke: light-dark({LIGHT}, {DARK}); stroke-width: 5px; stroke-linejoin: round; }}"
    return f".js-plotly-plot .subplot:not(:has(.bars)) .textpoint text {halo}\n" + "\n".join(
        f'.js-plotly-plot tspan[style*="fill:{color}"], '
        f'.js-plotly-plot text[style*="fill: rgb({red}, {green}, {blue})"] '
        f"{{ fill: light-dark({on_light}, {on_dark}) !important; }}"
        for color, (red, green, blue), (on_light, on_dark) in ((c, _parse(c), both) for c, both in inks.items())
    )


def _parse(color: str) -> tuple[int, int, int]:
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


def _compute_luminance(color: str) -> float:
    parts = (part / 255 for part in _parse(color))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
