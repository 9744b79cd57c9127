"""The Markdown that the pages write, as HTML for an offline file.

    prose("The step takes **63.6 ms**; `forward` :green[**A**]")

Limits: paragraphs, lists, headings, bold, emphasis, code, Streamlit's colors and badges. Everything else stays
text, and whatever came from a file of others is escaped.
"""

import re
from html import escape

_TOKEN = re.compile(
    r"\\(?P<escaped>[^\w\s]|_)|`(?P<code>[^`]+)`|\*\*(?P<strong>.+?)\*\*|\*(?P<em>[^*\s][^*]*)\*"
    r"|:(?P<color>[a-z]+)(?P<badge>-badge)?\[(?P<colored>(?:\\.|[^\]\\])*)\]|:material/(?P<icon>\w+):"
)


def prose(text: str) -> str:
    """Block by block."""
    return "".join(_block(block.splitlines()) for block in re.split(r"\n\s*\n", text.strip()) if block.strip())


def inline(text: str) -> str:
    """Without the paragraph around it."""
    parts, end = [], 0
    for found in _TOKEN.finditer(text):
        parts += [escape(text[end : found.start()]), _token(found)]
        end = found.end()
    return "".join(parts) + escape(text[end:])


def _block(lines: list[str]) -> str:
    items = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("- ")]
    if len(items) == len(lines):
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
    if heading := re.fullmatch(r"#{1,6} (.*)", lines[0]):
        rest = _block(lines[1:]) if lines[1:] else ""
        return f"<h4>{inline(heading[1])}</h4>{rest}"
    return f"<p>{inline(' '.join(lines))}</p>"


def _token(found: re.Match[str]) -> str:
    if found["escaped"]:
        return escape(found["escaped"])
    if found["code"]:
        return f"<code>{escape(found['code'])}</code>"
    if found["strong"]:
        return f"<strong>{inline(found['strong'])}</strong>"
    if found["em"]:
        return f"<em>{inline(found['em'])}</em>"
    if found["colored"]:
        badge = " badge" if found["badge"] else ""
        return f'<span class="{found["color"]}{badge}">{inline(found["colored"])}</span>'
    return ""  # an icon
