"""Headings for the columns of a query's answer: the schema's label and unit, where a name has one meaning in it.

>>> format_heading("median_ms")
'Median (ms)'
"""

from runner.formats import cut_text
from runner.schema import TABLES

#: The units of columns by the ending of their name; the first that matches.
_ENDINGS = {
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "bytes/s",
    "tokens_per_s": "tokens/s",
    "_ms": "ms",
    "_bytes": "bytes",
    "_seconds": "s",
}


def format_heading(name: str) -> str:
    """Returns the schema's label and unit of a name that has one meaning in it, else the name with the unit of its
    ending."""
    titles = {column.title for table in TABLES.values() for column in table.columns if column.name == name}
    if len(titles) == 1:
        return titles.pop()
    unit = next((unit for ending, unit in _ENDINGS.items() if name.endswith(ending)), "")
    return f"{cut_text(name)} ({unit})" if unit else cut_text(name)
