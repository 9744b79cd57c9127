"""Text of others made harmless: what would move a cursor, name a window or turn a line around is shown instead.

    >>> visible("a label\x1b[2J")
    'a label␛[2J'

Control characters, line breaks included, are replaced one for one, as are characters that turn the direction of
writing or are not seen at all. Standard library only.
"""

import unicodedata

#: Joiners belong to words and pictures; they move nothing.
_JOINERS = ("\u200c", "\u200d")


def visible(text: str) -> str:
    """The text on one line, as long as before."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character < " ":
        return chr(0x2400 + ord(character))
    if character == "\x7f":
        return "␡"
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return "�" if hidden else character
