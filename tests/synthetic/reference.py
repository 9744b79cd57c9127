"""Reference rows of a machine that does not exist, for tests of what shows them.

pack_reference(folder)                 # toy-64 and toy-128 at 128 tokens, twice as fast as `rows.ok`, 3 rounds each
"""

from pathlib import Path

from runner.schema import RunRow
from runner.store.packing import pack
from tests.synthetic import memory_rows, rows

DEVICE = "Example GPU"
CELLS = (rows.asked("toy-64"), rows.asked("toy-128"), rows.asked("toy-64", precision="bf16"))


def run() -> RunRow:
    return rows.run(host="lab", device="cuda", device_name=DEVICE, label="reference")


def pack_reference(folder: Path) -> Path:
    """Packs the rows from a file beside the folder and returns the folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    file, of = folder.parent / "packed-from.duckdb", run()
    rows.store(file, of, [rows.ok(of, cell, round=number, slower=0.5) for cell in CELLS for number in range(3)])
    rows.store_tables(file, [memory_rows.attention(of, seq_len=length) for length in (256, 1024)])
    pack(file, folder)
    return folder
