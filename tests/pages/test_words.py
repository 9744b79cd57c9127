"""Every string that pages can show, as a list to read in one go, and words that readers have stumbled over.

pytest tests/pages/test_words.py -s -m soak        # prints the list
"""

import re
from pathlib import Path

import pytest

from tests.pages.words import words_of, words_of_sources
from tests.synthetic import memory_rows, rows, timelines, traces
from tests.synthetic.everything import store as store_everything

#: Words that nobody would say aloud to a colleague. A phrase that is part of a formula or a name is allowed.
RIDDLES = (
    "beyond doubt", "nobody measured", "paid for itself", "was not looked for", "what binds it",
    "the plain cell where others", "with what the cache held", "the quickest other way", "multiplies at",
    "speak here", "speaks here", "whatever the sidebar", "of the sidebar all but", "the link keeps",
    "× their time", "× their flops", "with the backward it is", "is not known how much processes differ,",
    "after no warm-up", "be rid of", "of the same numbers",
    "how does anything", "said so", "makes use of", "is made use of", "holds itself", "what came of",
)  # fmt: skip
#: The dictionary that compresses links is older than these words, and every existing link depends on it.
_DICTIONARY = "a training step on the device (geometric mean of pairs"


def test_the_sources_have_no_words_that_readers_stumbled_over() -> None:
    found = [text for text in words_of_sources() if not text.startswith(_DICTIONARY)]
    assert len(found) > 500
    assert not [text for text in found for riddle in RIDDLES if riddle in text.lower()]


@pytest.mark.soak
def test_every_string_of_every_page_is_listed(tmp_path: Path) -> None:
    """Prints one string a line, sorted, with numbers as #."""
    path, of = tmp_path / "results.duckdb", rows.run()
    rows.store(path, of, rows.laptop(of))
    memory_rows.store(path, [memory_rows.attention(of, seq_len=length) for length in (256, 1024)])
    traces.store(path, [traces.profiled(of, mode=mode) for mode in ("inference", "train")])
    timelines.write(path, of, timelines.step(allocations=50))
    found = words_of(store_everything(path))
    print("\n".join([*found, "", *words_of_sources()]))
    assert found == sorted(set(found))
    for text in ("Overview: what this file shows", "Where does the time of a training step go?", "Context (tokens)"):
        assert text in found, text
    assert not [text for text in found for riddle in RIDDLES if riddle in text.lower()]
    assert not [text for text in found if re.search(r"\bNone\b(?! of)|\bnan\b|<function|object at 0x", text)]
