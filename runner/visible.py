"""Untrusted text made harmless: characters that move a cursor, name a window or reverse a line become visible.

    >>> visible("a label\x1b[2J")
    'a label␛[2J'

Control characters, line breaks included, are replaced one for one, as are characters that change the direction of
writing or are invisible. Standard library only.
"""

import unicodedata

#: Joiners belong to words and emoji, and do no harm.
_JOINERS = ("\u200c", "\u200d")


def visible(text: str) -> str:
    """Returns the text on one line, with as many characters as before."""
    return text if text.isascii() and text.isprintable() else "".join(map(_replace, text))


def _replace(character: str) -> str:
    if character < " ":
        return chr(0x2400 + ord(character))
    if character == "\x7f":
        return "␡"
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return "�" if hidden else character
