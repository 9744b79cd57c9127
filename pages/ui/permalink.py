"""Links that hold every filter and choice, defaults included, and what the file and the page then said.

    http://localhost:8501/training-step?machine=…&mode=train&way=fp32+·+eager&data=1f2e3d4c&held=…&said=…#phases

`data` is the file's edition, `held` how many cells it had of each kind, `said` the page's answer, compressed;
`pages.ui.since` compares them with today's. A widget whose key begins with an underscore is no part of a link. Limits:
at most `MAX_CHARACTERS`, for which the answer is cut, unless the choices alone are longer.
"""

import base64
import re
import zlib
from datetime import UTC
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import streamlit as st

from pages.ui import zoom
from pages.ui.chosen import forget_missing
from pages.ui.filters import FILTERS
from pages.ui.frame import Frame
from pages.ui.markdown import plain
from pages.ui.sections import FOLDED
from runner.store.queries.changes import FileCounts, load_counts

#: Chats and trackers keep links of this length whole.
MAX_CHARACTERS = 1_500
#: Parameters about the file and the page, which no widget holds.
THEN = ("data", "held", "said")
_LONGEST_SAID = 400
CUT = " …"
#: A widget's key that is a parameter of the URL. Other keys, also Streamlit's own, look different.
_PARAMETER = re.compile(r"[a-z][a-z0-9-]*")
_PAGE, _FILE = "_page", "_file"
#: Frequent words of sentences, for compression. Every existing link depends on them: never change them.
_DICTIONARY = (
    "a training step on the device (geometric mean of pairs, to 95 % interval one pair all are faster beyond doubt "
    "slower, undecided. Nothing here was measured both in fp32 bf16 fp16 tf32 eager compiled and in makes the whole "
    "step forward backward optimizer The longest step here, small at tokens, takes ms: No result from cells GiB MiB"
)


def link(frame: Frame, anchor: str) -> str:
    """Returns the address of the card `anchor` on this page, by the host by which the reader came."""
    asked = st.query_params.to_dict()
    parameters = {name: st.query_params.get_all(name) for name in asked if name not in (*THEN, zoom.PARAMETER)}
    parameters |= choices()
    if views := zoom.read_zoom():
        parameters[zoom.PARAMETER] = views
    parameters["data"] = [frame.contents.edition]
    parameters["held"] = [pack_counts(frame.ask(load_counts))]
    start, end = f"{st.context.url or ''}?{_encode(parameters)}", f"#{anchor}" if anchor else ""
    for length in range(_LONGEST_SAID, 0, -40):
        said = f"&said={pack_sentence(' '.join(frame.said), longest=length)}" if frame.said else ""
        if len(start + said + end) <= MAX_CHARACTERS:
            return start + said + end
    return start + end


def draw_page_link(frame: Frame) -> None:
    """Draws a button below the filters that opens to the link to the whole page."""
    with st.sidebar:
        shown = st.popover("Copy link", icon=":material/link:", key="_page-link", on_change="rerun", width="stretch")
        if shown.open:
            with shown:
                st.caption(
                    "Shows a teammate this page as it is now: every filter and choice written out. When the file has "
                    "changed by then, it also says what changed."
                )
                whole = link(frame, "")
                _copy(whole)
                st.code(whole, language=None, wrap_lines=True)


def _copy(text: str) -> None:
    """Puts the text on the reader's clipboard and says so; where the browser refuses, the text below can be copied."""
    script = Path(__file__).with_name("copy.js").read_text(encoding="utf-8")
    component = st.components.v2.component("stepscope_copy", html='<div role="status"></div>', js=script)
    component(key="_copy-link", data=text, height="content")


def _encode(parameters: dict[str, list[str]]) -> str:
    """Returns the query of a URL, the filters first; an empty choice is `precision=`."""
    names = sorted(parameters, key=lambda name: (name in THEN, name not in FILTERS, name))
    return urlencode({name: parameters[name] or [""] for name in names}, doseq=True, safe=":,")


def choices() -> dict[str, list[str]]:
    """Returns the values of filters and choosers: Streamlit leaves defaults out of the URL."""
    values: dict[str, list[str]] = {}
    for name, value in st.session_state.items():
        if not isinstance(name, str) or not _PARAMETER.fullmatch(name):
            continue
        if name.startswith(FOLDED):
            values |= {name: ["true"]} if value is True else {}
        elif isinstance(value, str) or type(value) in (int, float):
            values[name] = [str(value)]
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            values[name] = list(value)
    return values


def forget_other_pages() -> None:
    """Forgets the choices of the page that the reader left, which Streamlit keeps; call it before a page is drawn."""
    page = urlsplit(st.context.url or "").path.strip("/")  # of the first page there is one with and one without
    if st.session_state.get(_PAGE, page) != page:
        for name in [name for name in st.session_state if isinstance(name, str) and _PARAMETER.fullmatch(name)]:
            if name not in FILTERS:
                del st.session_state[name]
        forget_missing()
    st.session_state[_PAGE] = page


def shows_other_file(path: Path) -> bool:
    """Returns whether the page showed another file before, as when a reader's own rows take the place of the reference.
    Then every choice is forgotten, and leaves the address once the page has been drawn without a widget that holds
    it."""
    before, st.session_state[_FILE] = st.session_state.get(_FILE, str(path)), str(path)
    if before == str(path):
        return False
    held = [name for name in st.session_state if isinstance(name, str) and _PARAMETER.fullmatch(name)]
    for name in held:
        del st.session_state[name]
    for name in [name for name in st.query_params if name not in held]:
        del st.query_params[name]
    return True


# ------------------------------------------------------------------------------ what a link says about when it was made


def pack_sentence(sentence: str, *, longest: int) -> str:
    """Returns the sentence without Markdown, cut to `longest` characters, in the letters of a URL."""
    text = cut(" ".join(plain(sentence).split()), longest=longest)
    squeezed = zlib.compressobj(9, zdict=_DICTIONARY.encode())
    return base64.urlsafe_b64encode(squeezed.compress(text.encode()) + squeezed.flush()).decode().rstrip("=")


def cut(text: str, *, longest: int) -> str:
    """Returns at most so many characters, in whole words."""
    return text if len(text) <= longest else text[: longest - 1].rsplit(" ", 1)[0] + CUT


def unpack_sentence(said: str) -> str | None:
    """Returns the sentence of a link; None where the link was damaged."""
    try:
        squeezed = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))
        sentence = zlib.decompressobj(zdict=_DICTIONARY.encode()).decompress(squeezed, 4 * _LONGEST_SAID).decode()
    except (ValueError, zlib.error):
        return None
    return " ".join(sentence.split())[:_LONGEST_SAID] or None


def pack_counts(held: FileCounts) -> str:
    """Returns `120steps.80attention.1763650000123`; the last number is when the last cell reached the file, in ms, else
    0."""
    latest = int(held.latest.replace(tzinfo=UTC).timestamp() * 1000) if held.latest else 0
    return ".".join([*(f"{count}{name}" for name, count in held.cells.items()), str(latest)])


def unpack_counts(text: str) -> tuple[dict[str, int], int] | None:
    """Returns the cells by table and the moment in ms; None where the link was damaged."""
    *cells, latest = text.split(".")
    found = [re.fullmatch(r"(\d{1,12})([a-z]+)", part) for part in cells]
    if not re.fullmatch(r"\d{1,15}", latest) or not all(found):
        return None
    return {match[2]: int(match[1]) for match in found if match}, int(latest)
