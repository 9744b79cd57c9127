"""A small results file with rows of every experiment, from two runs of one machine and one run of another. All of it is
synthetic.

store_small(path)
"""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from runner.schema import new_id
from tests.synthetic import memory_rows, rows, timelines, traces


def store_small(path: Path) -> Path:
    """Stores a small sweep of everything, one cell measured again later, and some cells on another machine."""
    rows.store(path, of := rows.run(), rows.laptop(of))
    again = replace(of, run_id=new_id(), label="again")
    rows.store(path, again, [rows.ok(again, rows.asked("toy-64"), round=number) for number in (0, 1)])
    other = rows.run(device="cuda", device_name="Example GPU", host="bench2", run_id=UUID(int=7))
    rows.store(path, other, [rows.ok(other, rows.asked("toy-64", context=length)) for length in (64, 128)])
    parts = {"parameters": 2**20, "activations": 2**22}
    cells = [memory_rows.attention(run, seq_len=length) for run in (of, other) for length in (256, 1024)]
    cells += [memory_rows.attention(of, seq_len=1024, implementation="sdpa-flash")]
    cells += [memory_rows.memory(of, parts, context=context) for context in (128, 256)]
    cells += [memory_rows.memory(of, parts, timeline=True)]
    memory_rows.store(path, cells)
    traces.store(path, [traces.profiled(of, mode=mode) for mode in ("inference", "train")])
    timelines.write(path, of, timelines.step(allocations=50))
    return path
