"""Rows as files: CSV, Parquet, Markdown. Their headings are those of the table, with its units.

    parquet([{"Size": "small", "Median (ms)": 63.6}])

A column of numbers or of times stays that in Parquet; one that mixes kinds becomes text: there a column has one type.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from numbers import Number
from typing import Any

import pandas as pd

#: Letters of a text that a table on a page shows: a browser freezes over a cell of a million.
MAX_LETTERS = 1_000
#: What a formula begins with, for one spreadsheet or another.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Rows = Sequence[dict[str, Any]] | pd.DataFrame


def table(rows: Rows) -> pd.DataFrame:
    """The rows under their headings."""
    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))


def shorten(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as a page shows it: with long texts cut. The same object where nothing is."""
    cut = frame
    for place, name in enumerate(frame.columns):
        values = frame.iloc[:, place]
        if pd.api.types.is_numeric_dtype(values) or not any(map(_is_long, values)):
            continue
        cut = frame.copy(deep=False) if cut is frame else cut
        cut[name] = [f"{value[: MAX_LETTERS - 1]}…" if _is_long(value) else value for value in values]
    return cut


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > MAX_LETTERS


def csv(rows: Rows) -> str:
    """The rows as a spreadsheet reads them, which takes none of them for a formula."""
    text, frame = io.StringIO(), table(rows).copy(deep=False)
    for place in range(frame.shape[1]):
        values = frame.iloc[:, place]
        if any(harmless(value) is not value for value in values):
            frame.isetitem(place, [harmless(value) for value in values])
    frame.columns = [harmless(name) for name in frame.columns]
    frame.to_csv(text, index=False)
    return text.getvalue()


def harmless(value: Any) -> Any:
    """A cell of a CSV: before a text that a spreadsheet would work out as a formula, an apostrophe. Numbers stay."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def parquet(rows: Rows) -> bytes:
    """The rows as a data frame of another program reads them; what is not there is null."""
    frame = table(rows).copy(deep=False)
    for name in frame.columns:
        values = [value for value in frame[name] if not is_missing(value)]
        if not any(all(isinstance(value, kind) for value in values) for kind in (Number, datetime)):
            frame[name] = [None if is_missing(value) else str(value) for value in frame[name]]
    held = io.BytesIO()
    frame.to_parquet(held, index=False)
    return held.getvalue()


def markdown(rows: Rows) -> str:
    """A table to paste into a pull request; numbers stand on the right, with five significant digits."""
    frame = table(rows)
    right = [all(isinstance(value, Number) or is_missing(value) for value in frame[name]) for name in frame.columns]
    lines = [[str(name) for name in frame.columns], ["--:" if number else "---" for number in right]]
    lines += [[in_words(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return "".join(f"| {' | '.join(_in_a_cell(text) for text in line)} |\n" for line in lines)


def in_words(value: Any) -> str:
    """One value for a person: five significant digits, no exponent where it can be helped, nothing for None."""
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if value and not 1e-5 <= abs(value) < 1e15:
        return f"{value:.4e}"
    digits = max(0, 4 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_missing(value: Any) -> bool:
    """Whether a value of a cell is None or what a data frame makes of it."""
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))


def _in_a_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


#: Word on the button -> what makes the file, its ending, its type.
FORMATS: Mapping[str, tuple[Callable[[Rows], str | bytes], str, str]] = {
    "CSV": (csv, "csv", "text/csv"),
    "Parquet": (parquet, "parquet", "application/vnd.apache.parquet"),
    "Markdown": (markdown, "md", "text/markdown"),
}
