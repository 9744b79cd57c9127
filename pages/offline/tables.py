"""A data frame as an HTML table, with the headings, the order and the percentages of the page's own table.

html_table(frame, proto=element.proto)
"""

import json
from html import escape
from typing import Any

import pandas as pd

from pages.ui.formats import in_words, is_missing


def html_table(frame: pd.DataFrame, *, proto: Any = None) -> str:
    """Returns the table as HTML. `proto` is Streamlit's description of it, if any. A wide table scrolls, also by
    keyboard."""
    config: dict[str, dict[str, Any]] = json.loads(getattr(proto, "columns", "") or "{}")
    order = list(getattr(proto, "column_order", ())) or list(frame.columns)
    shown = [name for name in order if name in frame.columns and not config.get(name, {}).get("hidden")]
    headings = [str(config.get(name, {}).get("label") or name) for name in shown]
    percent = [_read_format(config, name) == "percent" for name in shown]
    numeric = [_is_right(frame[name], config.get(name, {})) for name in shown]
    head = "".join(f"<th{_align(right)}>{escape(text)}</th>" for text, right in zip(headings, numeric, strict=True))
    rows = [
        "".join(
            f"<td{_align(right)}>{escape(_format_value(value, share=share))}</td>"
            for value, right, share in zip(row, numeric, percent, strict=True)
        )
        for row in frame[shown].itertuples(index=False, name=None)
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    name = escape(getattr(proto, "alt", "") or "Table", quote=True)
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_right(values: "pd.Series[Any]", config: dict[str, Any]) -> bool:
    """Returns whether a column stands on the right: numbers, and what the page aligns so."""
    return pd.api.types.is_numeric_dtype(values) or config.get("alignment") == "right"


def _read_format(config: dict[str, dict[str, Any]], name: str) -> str | None:
    found: str | None = (config.get(name, {}).get("type_config") or {}).get("format")
    return found


def _align(right: bool) -> str:
    return ' class="number"' if right else ""


def _format_value(value: Any, *, share: bool) -> str:
    return f"{value:.1%}" if share and not is_missing(value) else in_words(value)
