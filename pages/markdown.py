"""Text in Markdown: what pages mark up, and what comes from a file, a link or a reader and is shown as it is.

    st.caption(restrict(f"The run **{literal(run.label)}** used {quoted(name)}."))

Everything that a page hands to Streamlit as Markdown goes through `restrict`, unless it is a constant. What is left of
Markdown is bold, code, the grades' colors, icons, lists and small headings: no links, pictures, HTML, formulas or
emoji. `literal` escapes these, too, in text of somebody else.
"""

import re

from runner.answers.answer import split_bold

#: Markdown for nothing: text on its two sides is never read as one address or one emoji.
APART = ":color[]"
_PUNCTUATION = re.compile(r"[\\`*_{}\[\]<>#~$:|!&@]")
#: Where to break what Streamlit turns into links, emoji and arrows after it has resolved escapes.
_JOINED = re.compile(r"(?<=:)(?=//|material|[\w+-]+:)|(?=@)|(?<=[wW])(?=\.)|(?<=[<>=~-])(?=[<>=~-])")
#: What begins a list, a rule or a heading at the start of a line.
_OPENING = re.compile(r"^(\s*)([-+=]|(?:\d+)(?=[.)]))", re.MULTILINE)
_BREAK = "\ue000"
_OURS = re.compile(
    r"\\(?P<escaped>[^\w\s]|_)|(?P<kept>`[^`\n]+`|\*\*|:color\[\]|:material/\w+:|^(?:- |#{4} )(?=\S))"
    r"|(?P<color>:(?:green|blue|orange|red)(?:-badge)?\[)(?P<inside>(?:\\.|[^\]\\])*)\]",
    re.MULTILINE,
)


def literal(text: str) -> str:
    """Returns one line that Markdown shows letter by letter."""
    return _escape(" ".join(text.split()))


def mark(sentence: str) -> str:
    """Returns the sentence of an answer with nothing of Markdown but its bold parts."""
    parts = [_escape(part, begins=not place) for place, part in enumerate(split_bold(sentence))]
    return "".join(f"**{part}**" if place % 2 else part for place, part in enumerate(parts))


def quoted(text: str) -> str:
    """Returns the text as one line of code."""
    return f"`{' '.join(text.replace('`', 'ʹ').split())}`"


def restrict(text: str) -> str:
    """Returns a page's own text with nothing of Markdown but what pages use."""
    parts, end = [], 0
    for match in _OURS.finditer(text):
        parts += [_escape(text[end : match.start()], begins=end == 0), _keep(match)]
        end = match.end()
    return "".join(parts) + _escape(text[end:], begins=end == 0)


def _keep(match: re.Match[str]) -> str:
    if match["color"]:
        return f"{match['color']}{restrict(match['inside'])}]"
    if match["kept"]:
        return match["kept"]
    # An escape of somebody else's may stand within an address: `http:\//` is one once the escape is resolved.
    split = APART if match["escaped"] in ":/.@<>=~-" and not match.string.startswith(APART, match.end()) else ""
    return f"\\{match['escaped']}{split}"


def _escape(text: str, *, begins: bool = True) -> str:
    broken = _JOINED.sub(_BREAK, text.replace(_BREAK, ""))
    escaped = _PUNCTUATION.sub(r"\\\g<0>", broken)
    if begins or "\n" in escaped:
        escaped = _OPENING.sub(lambda one: one[0] + _BREAK if one[2].isdigit() else f"{one[1]}\\{one[2]}", escaped)
    return escaped.replace(_BREAK, APART)
