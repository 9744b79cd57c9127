"""Colors for text in charts, with a contrast of 4.5:1 on the light page and on the dark.

    document.style = ink_rules()          # CSS: text drawn in a color of the palette gets its ink

No gray has 4.5:1 on both pages, and Plotly takes one color. So charts use colors of `pages.plot.colors`, and CSS
gives each its ink by the reader's color scheme.
"""

from pages.plot.colors import PALETTE, QUIET, STRONG

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
    """Returns a CSS rule for each color, for every Plotly chart on a page that sets `color-scheme`."""
    inks = {color: (ink(color, page=LIGHT), ink(color, page=DARK)) for color in PALETTE}
    inks |= dict.fromkeys((QUIET, *_THEME), _QUIET_INKS) | {STRONG: _STRONG_INKS}
    return "\n".join(
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
