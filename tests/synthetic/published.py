"""Published tables for tests: written into a folder as CSV and read back by the reader of imports."""

from collections.abc import Mapping
from pathlib import Path

from runner.published.reading import read_published
from runner.results.published import PublishedTable

#: What a report says about itself, by the columns of `provenance.csv`.
KNOWN = {
    "machine": "NVIDIA A100-SXM4-80GB",
    "batch_size": "4 (end to end); 8 (attention)",
    "context_lengths": "256 (end to end)",
    "warmup_ran": "the timed function itself",
    "std_kind": "population (n)",
    "clock": "wall clock, synchronized",
    "memory_means": "peak allocated",
}


def write_report(folder: Path, tables: Mapping[str, str], **known: str) -> list[PublishedTable]:
    """Returns the tables of a report called `r` after writing each as `r_<name>.csv`. `known` changes what the report
    says about itself; a table's text may be indented."""
    said = {"report": "r", **KNOWN, **known}
    lines = [",".join(said), ",".join(f'"{value}"' for value in said.values())]
    (folder / "provenance.csv").write_text("\n".join(lines) + "\n")
    for name, text in tables.items():
        (folder / f"r_{name}.csv").write_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n")
    return [table for name in tables for table in read_published(folder / f"r_{name}.csv")]
