"""Stored rows as the text or bytes of a file: CSV, JSON, Parquet.

All three keep the schema's names. JSON and Parquet hold labels and units too. Ids are texts, times are naive UTC. In
CSV a text that a spreadsheet would take for a formula begins with an apostrophe.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from runner.schema import Table
from runner.store.read.tables import TablePage

#: Each format's media type.
FORMATS: Mapping[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}

_ARROW: Mapping[type, pa.DataType] = {
    UUID: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us"),
}

#: First letters of formulas, in one spreadsheet or another.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(value: Any) -> Any:
    """Returns a value for CSV: a text that a spreadsheet would evaluate as a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [harmless(_to_plain(value)) for value in row] for row in (headings, *rows)
    )
    return text.getvalue()


def encode_rows(table: Table, page: TablePage, kind: str, *, is_reference: bool = False) -> bytes:
    """Returns the rows in one of `FORMATS`. Unknown values are empty in CSV, null elsewhere. JSON and Parquet say
    whether the rows are those of the reference."""
    names = [column.name for column in table.columns]
    if kind == "csv":
        return write_csv(names, page.rows).encode()
    if kind == "json":
        document = {
            "table": table.name,
            "reference": is_reference,
            "total": page.total,
            "columns": [{"name": c.name, "type": c.sql_type, "label": c.label, "unit": c.unit} for c in table.columns],
            "rows": [dict(zip(names, map(_to_plain, row), strict=True)) for row in page.rows],
        }
        return json.dumps(document, ensure_ascii=False).encode()
    by_column = zip(*page.rows, strict=True) if page.rows else ((),) * len(table.columns)
    fields = [
        pa.field(c.name, _ARROW[c.type], metadata={"label": c.label, "unit": c.unit, "meaning": c.doc})
        for c in table.columns
    ]
    schema = pa.schema(fields, metadata={"reference": json.dumps(is_reference)})
    arrays = [
        pa.array([str(v) if isinstance(v, UUID) else v for v in values], type=field.type)
        for values, field in zip(by_column, schema, strict=True)
    ]
    target = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), target)
    return target.getvalue()


def _to_plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value.isoformat() if isinstance(value, datetime) else value
