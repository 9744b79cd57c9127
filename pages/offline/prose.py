"""The Markdown that the pages write, as HTML for an offline file.

    prose("The step takes **63.6 ms**; `forward` :green[**A**]")

Limits: paragraphs, lists, headings, bold, emphasis, code, Streamlit's colors and badges. Everything else stays
text, and whatever came from a file of others is escaped.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

_COLORED = re.compile(r":([a-z]+)(-badge)?\[")
_ICON = re.compile(r":material/\w+:")


def prose(text: str) -> str:
    """Returns the text as HTML, block by block."""
    html: str = _PARSER.render(text)
    return html.strip().replace(">\n<", "><").replace("\n", " ")


def inline(text: str) -> str:
    """Returns the text as HTML without the paragraph around it."""
    html: str = _PARSER.renderInline(text)
    return html


def _parse_color(state: StateInline, silent: bool) -> bool:
    """Parses `:green[words]` and `:green-badge[words]` as a span of that class, and drops icons."""
    if icon := _ICON.match(state.src, state.pos):
        state.pos = icon.end()
        return True
    match = _COLORED.match(state.src, state.pos)
    end = state.md.helpers.parseLinkLabel(state, match.end() - 1) if match else -1
    if not match or end < 0:
        return False
    if not silent and end > match.end():
        most = state.posMax
        state.push("span_open", "span", 1).attrs = {"class": match[1] + (" badge" if match[2] else "")}
        state.pos, state.posMax = match.end(), end
        state.md.inline.tokenize(state)
        state.push("span_close", "span", -1)
        state.posMax = most
    state.pos = end + 1
    return True


_PARSER = MarkdownIt("zero").enable(["backticks", "emphasis", "escape", "heading", "list"])
_PARSER.inline.ruler.before("backticks", "color", _parse_color)
