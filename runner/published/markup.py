r"""The text of a cell without the marks of LaTeX, Typst and Markdown.

    >>> strip_markup(r"$\mathbf{12.3} \pm 0.4$")
    '12.3 ± 0.4'

Standard library only.
"""

import re

_COMMAND = re.compile(
    r"\\(?:textbf|textit|emph|underline|mathbf|mathrm|mathit|text|texttt|textsc|bm|boldsymbol|num|si|unit|hbox|mbox"
    r"|makecell|thead|textcolor\{[a-z]{1,20}\}|cellcolor(?:\[[^\]]{0,20}\])?|SI|qty)(?:\[[^\]\n]{0,30}\])?\{([^{}]{0,500})\}"
)
_SYMBOLS = (
    (r"\pm", "±"), (r"\times", "×"), (r"\micro", "μ"), (r"\mu", "μ"), (r"\approx", "≈"), (r"\sim", "~"), (r"\%", "%"),
    (r"\_", "_"), (r"\&", "&"), (r"\#", "#"), (r"\,", " "), (r"\;", " "), (r"\:", " "), (r"\ ", " "), (r"\!", ""),
    (r"\sigma", "std"), (r"\textpm", "±"), (r"\textmu", "μ"), (r"\dagger", "†"), (r"\quad", " "), (r"\milli", "m"),
    (r"\second", "s"), ("{,}", ","), ("$", ""),
)  # fmt: skip
_BRACES = re.compile(r"\{([^{}]{0,500})\}")
_NESTED = 4
#: A mark of a blank between a number and its unit.
_TIE = re.compile(r"(?<=\S)~(?=\S)")
_WRAPS = ("***", "**", "__", "``", "`", "*", "_")


def strip_markup(text: str) -> str:
    """Returns the text of a cell, with plain minus signs and blanks."""
    text = text.replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ").replace("\u2009", " ").strip()
    text = text.replace("plus.minus", "±").replace("<br>", " ").replace("<br/>", " ")
    if "\\" in text or "$" in text or "{" in text:
        text = strip_latex(text)
    text = _TIE.sub(" ", text)
    for mark in _WRAPS:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)].strip()
    return text


def strip_latex(text: str) -> str:
    """Returns a text of LaTeX without its commands, as far as they are known."""
    text = text[:20_000]
    for symbol, plain in _SYMBOLS:
        is_word = symbol[-1].isalpha()
        text = re.sub(re.escape(symbol) + r"(?![a-zA-Z])", plain, text) if is_word else text.replace(symbol, plain)
    for _ in range(_NESTED):
        text = _COMMAND.sub(r"\1", text)
        text = _BRACES.sub(r"\1", text) if "\\" not in text else text
    text = re.sub(r"\\(?:bfseries|itshape|centering|small|footnotesize|scriptsize|label\{[^{}]{0,200}\})", " ", text)
    return " ".join(_TIE.sub(" ", text).split())
