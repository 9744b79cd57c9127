"""Every page's sentence opens to its rows: the shown query returns them, and the omitted rows are all counted."""

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import duckdb
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from pages.navigation import OPEN, PAGES
from pages.offline.visit import nodes
from pages.sql.examples import EXAMPLES, Example
from pages.ui import card
from pages.ui.evidence import WHY
from pages.ui.markdown import plain
from runner.store.database import open_reader
from tests.pages.ui.test_commands import check_commands
from tests.some import some
from tests.synthetic import memory_rows, roofline_rows, rows
from tests.synthetic.everything import store as store_everything
from tests.synthetic.small import store_small

MAIN = Path(__file__).parents[3] / "pages/main.py"
#: Every piece of text with a number in the source of a page.
WRITTEN = sorted(
    {
        part.strip()
        for path in MAIN.parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(part := node.value, str)
        if len(part) > 8 and re.search(r"\d", part)
    },
    key=lambda text: -len(text),
)
HERE, THERE = "Example CPU · bench1", "Example GPU · bench2"
#: Pages on which a cell can be examined, and its table.
PINNED = {"training-step": "steps", "torch-compile": "steps", "attention": "attention", "peak-memory": "memory"}
#: The sentences of pages for the rows of `everything`; of a page or topic that is not here, any sentences open.
SAID = {
    **{address: {"answer"} for address in ("explore", "data", "sql")},
    "overview": {"answer", "study", "trust", "best", "training-step", "torch-compile", "mixed-precision", "accuracy",
                 "kernels", "roofline", "changes", "attention", "frontier", "peak-memory", "model-frontier",
                 *(f"doubt-{name}" for name in (
                     "training-step", "torch-compile", "mixed-precision", "accuracy", "kernels", "roofline", "changes",
                     "attention", "frontier", "peak-memory", "model-frontier"))},
    "training-step": {"answer", "trust", "compiled", "warmup", "grade"},
    "mixed-precision": {"answer", "trust", "precision-price", "accumulation", "dtypes", "normalization"},
    "torch-compile": {"answer", "trust", "compile-seconds", "paid-after", "crossing", "phases", "grade"},
    "kernels": {"answer", "kernel-classes", "kernels", "attention-ranges", "matmul-share", "busy", "difference"},
    "roofline": {"answer", "moved", "changes", "bounds"},
    "attention": {"answer", "attention-time", "attention-memory", "agreement", "trust", "fused-speedup",
                  "compiled-speedup", "frontier", "worked-sum", "attention-totals", "attention-tensors",
                  "grade"},
    "peak-memory": {"answer", "trust", "peak-context", "peak-precision", "peak-predicted", "part-pairs",
                    "frontier-context", "kept", "block-tensors", "checkpointing", "grade"},
    "memory-timeline": {"answer", "alive-left"},
    "compare": {"environment", "steps", "attention", "memory", "over-time"},
    "trust": {"answer", "noise", "canary"},
    "report": {"answer", "facts", *(f"{letter}{number}"
                           for letter, most in (("b", 3), ("k", 5), ("p", 3), ("m", 6), ("a", 3), ("c", 2))
                           for number in range(1, most + 1))},
    "published": {"answer", "published-verdict", "published-beside", "published-peaks",
                  *(f"published-{kind}-{place}" for place in range(3) for kind in (
                      "fault-peak_carried_over", "doubt-peak_carried_over", "doubt-cold_step", "doubt-wide_spread"))},
}  # fmt: skip
#: What Overview may say of topics that are not there.
UNLISTED = {
    key
    for page in PAGES.values()
    for topic in page.topics
    if topic not in SAID["overview"]
    for key in (topic, f"doubt-{topic}")
}
#: Texts with numbers that are not answers: which rows a card shows, what is drawn of them, and the limits of a query.
NO_ANSWER = (
    "Of the residual streams that enter blocks of", "Of size ", "B = ", "Measured by `",
    "Each panel is a separate process", "held before", "are drawn", "rows match, newest first", "All 31 rows",
    "Faster or slower",
    "Each line is a pair of cells", "**Table ", "**Missing.** ", "Medians, each step waited for, with", "Reads only · ",
    "Took ",
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_small(tmp_path_factory.mktemp("evidence") / "results.duckdb")


@pytest.fixture(scope="module")
def everything(file: Path) -> Path:
    """Returns that file with rows for every other sentence that a page can show."""
    path = file.with_name("everything.duckdb")
    shutil.copy(file, path)
    return store_everything(path)


@pytest.fixture(scope="module")
def reversed_rows(everything: Path) -> Path:
    """Returns a file with the same rows, each table in reverse order."""
    path = everything.with_name("reversed.duckdb")
    shutil.copy(everything, path)
    with duckdb.connect(str(path)) as writer:
        for (table,) in writer.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall():
            writer.execute(f"CREATE TEMP TABLE held AS FROM {table} ORDER BY rowid DESC")
            writer.execute(f"DELETE FROM {table}")
            writer.execute(f"INSERT INTO {table} FROM held")
            writer.execute("DROP TABLE held")
    return path


def opened(file: Path, address: str, monkeypatch: pytest.MonkeyPatch, **state: Any) -> AppTest:
    """Returns a page in which all its evidence is open: what is listed for it, and what else it turns out to have."""
    monkeypatch.setenv("STEPSCOPE_DB", str(file))
    found = AppTest.from_file(str(MAIN), default_timeout=180)
    found.session_state[OPEN] = address
    if address in PINNED:
        found.query_params["cell"] = str(_some_cell(file, PINNED[address]))
    listed = {f"_why-{name}" for name in SAID.get(address, ())}
    for key, value in (state | dict.fromkeys(listed, True)).items():
        found.session_state[key] = value
    found.run()
    if others := {box.key for box in boxes_of(found)} - listed:
        for key in others:
            found.session_state[key] = True
        found.run()
    return found


CARDS = {"Training step": "training-step", "torch.compile": "torch-compile", "Mixed precision": "mixed-precision",
         "Attention": "attention", "Peak memory": "peak-memory"}  # fmt: skip


@pytest.mark.soak
def test_overview_repeats_the_answers_of_the_pages(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are the same, though a page may continue. The second file has only steps, and those in bf16 first."""
    steps = roofline_rows.store(tmp_path / "results.duckdb")
    for of, cards in ((file, CARDS), (steps, dict(list(CARDS.items())[:3]))):
        said = [node.value for node in opened(of, "overview", monkeypatch).markdown]
        for name, address in cards.items():
            words = said[said.index(f"#### {name}") + 1]
            assert opened(of, address, monkeypatch).markdown[0].value.startswith(words), name


def test_the_command_for_frontiers_that_were_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what was measured, and on a CPU, which must compute every trial, a limit."""
    for device, words in (("cpu", " --limit 128MiB"), ("cuda", "")):
        of, file = rows.run(device=device), tmp_path / f"{device}.duckdb"
        cells = [memory_rows.attention(of, seq_len=256, d_head=d, precision="bf16") for d in (64, 16)]
        memory_rows.store(file, cells)
        shown = [node.value for node in opened(file, "attention", monkeypatch).code]
        assert f"python -m runner frontier --attention naive --precisions bf16 --d-heads 16,64{words}" in shown


def _some_cell(file: Path, table: str) -> UUID:
    with open_reader(file) as reader:
        (cell_id,) = reader.execute(f"SELECT max(cell_id) FROM {table} WHERE status = 'ok'").fetchall()[0]
    assert isinstance(cell_id, UUID)
    return cell_id


def boxes_of(page: AppTest) -> list[Any]:
    return [box for box in page.expander if box.label == WHY]


@pytest.mark.parametrize("address", some(sorted(sorted(PAGES), key=len)))
def test_every_sentence_of_every_page_opens_to_the_query_for_its_rows(
    everything: Path, reversed_rows: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result for one file is compared with that for another file in which every tie is resolved the other way."""
    with patch.object(card, "_chart", wraps=card._chart) as drawn:
        page = opened(everything, address, monkeypatch)
    assert not page.exception
    for call in drawn.call_args_list:
        check_commands(call.args[0].cells)
    boxes = boxes_of(page)
    keys = {box.key.removeprefix("_why-") for box in boxes} - UNLISTED
    assert keys == SAID.get(address, keys)
    for box in boxes:
        tables = [table.value for table in box.dataframe]
        queries = [code.value for code in box.code]
        shown = [table for table in tables if "Left out because" not in table.columns]
        assert len(queries) == len(shown) == len(box.markdown) >= 1
        with open_reader(reversed_rows) as reader:
            for query, table in zip(queries, shown, strict=True):
                assert _texts(reader.execute(query).df()) == _texts(table), box.key
                assert not table.empty, box.key
        check_sums(box.markdown, [table for table in tables if "Left out because" in table.columns])
    assert not computed_elsewhere(page)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_an_example_returns_its_rows_in_a_fixed_order(everything: Path, reversed_rows: Path, example: Example) -> None:
    answers = []
    for path in (everything, reversed_rows):
        with open_reader(path) as reader:
            answers.append(_texts(reader.execute(example.query).df()))
    assert answers[0] == answers[1]


def check_sums(summaries: Sequence[Any], left_out: Sequence[pd.DataFrame]) -> None:
    """Asserts that the rows behind the answer and the omitted ones are all rows."""
    counted = [re.search(r"\*\*([\d,]+) of ([\d,]+) rows", summary.value) for summary in summaries]
    spoken, total = (sum(int(one[at].replace(",", "")) for one in counted if one) for at in (1, 2))
    assert spoken + sum(int(table["Rows"].sum()) for table in left_out) == total


def computed_elsewhere(page: AppTest) -> list[str]:
    """Returns texts that contain a number which is not in the source, and so was computed, but that do not open."""
    opening = {id(found) for found in _opening(page.main)}
    return [
        text
        for node in _texts_of(page.main)
        if id(node) not in opening and _has_computed(text := node.value) and not any(map(text.__contains__, NO_ANSWER))
    ]


def _opening(node: Any) -> Iterator[Any]:
    """Yields the nodes right above a box and everything inside it."""
    children = list(getattr(node, "children", {}).values())
    for before, child in pairwise(children):
        if getattr(child, "label", None) == WHY:
            yield before
            yield from nodes(child)
    for child in children:
        yield from _opening(child)


def _texts_of(node: Any) -> Iterator[Any]:
    """Yields the texts on the page; those of a popover are about the link and the command."""
    if node.type in ("markdown", "caption", "info", "warning", "success"):
        yield node
    if node.type != "popover":
        for child in getattr(node, "children", {}).values():
            yield from _texts_of(child)


def _has_computed(text: str) -> bool:
    without_code = plain(re.sub(r"`[^`]*`", "", text))
    for written in WRITTEN:
        without_code = without_code.replace(written, " ")
    return bool(re.search(r"\d", without_code))


def _texts(table: pd.DataFrame) -> list[list[str]]:
    """Returns every value as text; pandas converts integers in a column with NULL to floats, and NULL to NaN."""
    return [[_text(value) for value in row] for row in table.astype(object).values.tolist()]


def _text(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)  # sums of floats depend on their order
