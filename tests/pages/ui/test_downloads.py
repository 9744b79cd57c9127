"""The downloads of a card: rows as CSV, Parquet and Markdown, and the chart as SVG and PNG."""

import base64
import datetime
import io
import re
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect

from pages.figures.colors import color_of
from pages.offline.prose import prose
from pages.ui.formats import csv, in_words, markdown, parquet
from tests.browser import Site, opened, settled
from tests.synthetic import rows

SVG = "{http://www.w3.org/2000/svg}"
#: `theme.dark.backgroundColor`.
DARK = "#10151C"
#: Returns the size, the color of the first pixel, and the ten most frequent colors of a PNG in base64.
PIXELS = """async text => {
    const image = new Image()
    image.src = `data:image/png;base64,${text}`
    await image.decode()
    const canvas = Object.assign(document.createElement("canvas"), {width: image.width, height: image.height})
    const context = canvas.getContext("2d")
    context.drawImage(image, 0, 0)
    const {data} = context.getImageData(0, 0, image.width, image.height), counts = {}
    for (let at = 0; at < data.length; at += 4) {
        const color = "#" + [...data.subarray(at, at + 3)].map(part => part.toString(16).padStart(2, "0")).join("")
        counts[color] = (counts[color] ?? 0) + 1
    }
    const frequent = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 10).map(([color]) => color)
    const corner = "#" + [...data.subarray(0, 3)].map(part => part.toString(16).padStart(2, "0")).join("")
    return {width: image.width, height: image.height, corner, frequent}
}"""
#: Numbers with a gap, a column of numbers and words, and a name that Markdown would take for markup.
ROWS: list[dict[str, Any]] = [
    {"Size": "a|b", "Median (ms)": 63.61234567, "Samples": 10, "Left": 1.5},
    {"Size": "small", "Median (ms)": None, "Samples": 200000, "Left": "out of memory"},
]


def test_parquet_contains_the_rows() -> None:
    back = pd.read_parquet(io.BytesIO(parquet(ROWS)))
    assert list(back.columns) == list(ROWS[0])
    assert back["Median (ms)"].tolist()[0] == 63.61234567
    assert pd.isna(back["Median (ms)"][1])
    assert (str(back["Samples"].dtype), back["Samples"].tolist()) == ("int64", [10, 200000])
    assert (back["Size"].tolist(), back["Left"].tolist()) == (["a|b", "small"], ["1.5", "out of memory"])


def test_parquet_keeps_times_and_whole_numbers() -> None:
    """A download of the Data page is a stored table with some unknown values; ids become text."""
    key, when = uuid.uuid4(), datetime.datetime(2026, 11, 20, 15, 43)
    rows = pd.DataFrame(
        {"cell_id": [key, key], "started_at": [when, None], "batch": pd.array([8, None], dtype="Int64")}
    )
    back = pd.read_parquet(io.BytesIO(parquet(rows)))
    assert back["cell_id"].tolist() == [str(key)] * 2
    assert (back["started_at"][0], back["started_at"].isna().tolist()) == (pd.Timestamp(when), [False, True])
    assert csv(rows).splitlines()[1:] == [f"{key},2026-11-20 15:43:00,8", f"{key},,"]
    assert markdown(rows).splitlines()[2] == f"| {key} | 2026-11-20 15:43:00 | 8 |"
    assert isinstance(rows["cell_id"][0], uuid.UUID), "the caller's rows are unchanged"


def test_markdown_and_csv_contain_the_rows() -> None:
    assert markdown(ROWS).splitlines() == [
        "| Size | Median (ms) | Samples | Left |",
        "| --- | --: | --: | --- |",
        r"| a\|b | 63.612 | 10 | 1.5 |",
        "| small |  | 200000 | out of memory |",
    ]
    assert csv(ROWS).splitlines()[1] == "a|b,63.61234567,10,1.5"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (64.0, "64"), (123456.789, "123457"), (0.00123456, "0.0012346"), (1e-9, "1.0000e-09"), (True, "yes"),
     (None, ""), (float("nan"), ""), (-2.50001, "-2.5"), (1024, "1024")],
)  # fmt: skip
def test_the_format_of_a_number(value: object, words: str) -> None:
    assert in_words(value) == words


def test_only_the_markup_of_pages_becomes_html() -> None:
    assert prose("**63.6 ms** (`a<b`)\n\n- one\n- *two*") == (
        "<p><strong>63.6 ms</strong> (<code>a&lt;b</code>)</p><ul><li>one</li><li><em>two</em></li></ul>"
    )
    assert prose(r":red-badge[Grade D] a\*b 2 * 3 <img src=x>") == (
        '<p><span class="red badge">Grade D</span> a*b 2 * 3 &lt;img src=x&gt;</p>'
    )
    links = "[x](javascript:alert(1)) [y](https://y.example)"
    assert prose(links) == f"<p>{links}</p>"
    assert prose(r"a\_b http\::color[]//y.example") == "<p>a_b http://y.example</p>"


# ------------------------------------------------------------------------------------------------ in a real browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[str]:
    of = rows.run()
    cells = [rows.ok(of, rows.asked(context=context)) for context in (64, 128)]
    path = rows.store(tmp_path_factory.mktemp("takeaway") / "results.duckdb", of, cells)
    with site.showing(path) as found:
        yield f"{found}/training-step"


@pytest.fixture(scope="module")
def shared(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page in dark mode, with Share of its first card open."""
    with opened(browser, address) as visit:
        visit.page.emulate_media(color_scheme="dark")
        visit.page.locator(".st-key-card-phases .js-plotly-plot .main-svg").first.wait_for()
        visit.page.locator(".st-key-card-phases").get_by_role("button", name="Share").click()
        expect(visit.page.get_by_test_id("stPopoverBody").get_by_role("button", name="SVG")).to_be_visible()
        settled(visit.page)
        yield visit.page


def download(page: Page, name: str) -> tuple[str, bytes]:
    """Presses a button of Share by keyboard, and returns the name and the content of the saved file."""
    with page.expect_download() as started:
        page.get_by_test_id("stPopoverBody").get_by_role("button", name=name, exact=True).press("Enter")
    return started.value.suggested_filename, Path(started.value.path()).read_bytes()


def test_every_format_has_the_same_rows(shared: Page) -> None:
    """The step of toy-64, two blocks of width 64, takes 2 * 64**1.5 * context / 20,000 ms."""
    names, files = zip(*(download(shared, name) for name in ("Download CSV", "Parquet", "Markdown")), strict=True)
    stem = names[0].removesuffix(".csv")
    assert re.fullmatch("stepscope-training-step-phases-[0-9a-f]{8}", stem)
    assert names[1:] == (f"{stem}.parquet", f"{stem}.md")
    by_csv, by_parquet = pd.read_csv(io.BytesIO(files[0])), pd.read_parquet(io.BytesIO(files[1]))
    whole = by_parquet[by_parquet["Phase"] == "whole step"]
    assert whole["Median (ms)"].tolist() == pytest.approx([2 * 64**1.5 * c / 20_000 for c in (64, 128)])
    assert by_csv["Median (ms)"].tolist() == pytest.approx(by_parquet["Median (ms)"].tolist())
    heading, _, *lines = files[2].decode().splitlines()
    assert (heading.strip("| ").split(" | "), len(lines)) == (list(by_parquet.columns), len(by_parquet))


def test_the_svg_has_the_texts_of_the_chart(shared: Page) -> None:
    """Title, axis titles, legend and source are text, in a font embedded in the file, on the page's background."""
    name, content = download(shared, "SVG")
    assert name.endswith(".svg")
    root = ElementTree.fromstring(content)
    words = ["".join(item.itertext()) for item in root.iter(f"{SVG}text")]
    edition = name.removesuffix(".svg").rsplit("-", 1)[1]
    assert {"Phases by size and context", "Median of each phase (ms)", "forward", "backward"} <= set(words)
    assert words[-1] == f"Stepscope · results.duckdb, edition {edition} · training-step"
    assert (root.findtext(f"{SVG}desc") or "").startswith("Time of each phase")
    assert 'url("data:font/woff2;base64,' in (root.findtext(f"{SVG}style") or "")
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", content.decode())
    ground = root.find(f"{SVG}rect")
    assert ground is not None
    assert ground.get("style") == f"fill: {DARK}"


def test_the_png_is_the_same_picture_at_twice_the_size(shared: Page) -> None:
    """Its corner has the color of the background, and its first bar that of the forward pass."""
    root = ElementTree.fromstring(download(shared, "SVG")[1])
    name, content = download(shared, "PNG")
    assert name.endswith(".png")
    seen = shared.evaluate(PIXELS, base64.b64encode(content).decode())
    assert (seen["width"], seen["height"]) == (2 * float(root.get("width", 0)), 2 * float(root.get("height", 0)))
    assert seen["corner"].upper() == DARK
    assert color_of("forward").lower() in seen["frequent"]


@pytest.mark.soak
def test_a_table_has_no_image(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}?phases-as=Table") as visit:
        visit.page.locator(".st-key-card-phases").get_by_role("button", name="Share").click()
        body = visit.page.get_by_test_id("stPopoverBody")
        expect(body.get_by_text("Show the chart to save it as a picture.")).to_be_visible()
        expect(body.get_by_role("button", name="PNG")).to_have_count(0)


@pytest.mark.soak
def test_data_and_sql_give_the_same_formats(browser: Browser, address: str) -> None:
    """Two cells are two rows of `steps`, and both pages give their contexts as CSV, Parquet and Markdown."""
    for page, query in (("data", "table=steps"), ("sql", "sql=FROM%20steps%20ORDER%20BY%20context%20DESC")):
        with opened(browser, f"{address.rsplit('/', 1)[0]}/{page}?{query}") as visit:
            expect(visit.page.get_by_role("button", name="Markdown", exact=True)).to_be_visible()
            settled(visit.page)
            files = [_pressed(visit.page, name) for name in ("Download CSV", "Parquet", "Markdown")]
        by_csv, by_parquet = pd.read_csv(io.BytesIO(files[0])), pd.read_parquet(io.BytesIO(files[1]))
        assert sorted(by_csv["context"]) == sorted(by_parquet["context"]) == [64, 128]
        assert by_parquet["started_at"].dtype.kind == "M"
        heading, _, *lines = files[2].decode().splitlines()
        assert (heading.strip("| ").split(" | "), len(lines)) == (list(by_parquet.columns), 2)


def _pressed(page: Page, name: str) -> bytes:
    """Presses a button of the page and returns the saved file."""
    with page.expect_download() as started:
        page.get_by_role("button", name=name, exact=True).press("Enter")
    return Path(started.value.path()).read_bytes()
