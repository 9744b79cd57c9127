"""Rules for imported memory timelines: each has a witness and a clean case; the first two are like real snapshots.

Weights of 8 and 4 MiB exist before the step. The step allocates 20 MiB of activations, and AdamW's moments take 24.
"""

from pathlib import Path

from runner.analysis.audit.timeline_rules import (
    TIMELINE_REMEDIES,
    TIMELINE_RULES,
    RecordedBlock,
    RecordedTimeline,
    judge_timeline,
)
from runner.importers.files import import_file
from runner.store.read.findings import load_timeline_findings
from runner.store.read.memory import load_timelines
from tests.command import run
from tests.synthetic.snapshots import block, event, segment, write

MIB = 2**20
WEIGHTS = (8 * MIB, 4 * MIB)


def at(size: int, born: int, died: int | None = None, frames: str = "") -> RecordedBlock:
    return RecordedBlock(size=size, born_us=born, died_us=died, category="unknown", frames=frames)


def recorded(*blocks: RecordedBlock) -> RecordedTimeline:
    moments = sorted({one.born_us for one in blocks})
    totals = {moment: sum(one.size for one in blocks if one.is_alive(moment)) for moment in moments}
    peak_at = max(totals, key=lambda moment: totals[moment])
    held = [at(size, 0) for size in WEIGHTS]
    return RecordedTimeline(blocks=[*held, *blocks], peak_bytes=totals[peak_at] + sum(WEIGHTS), peak_at_us=peak_at)


def codes(of: RecordedTimeline) -> list[str]:
    return [finding.code for finding in judge_timeline(of)]


STATE = "torch/optim/adam.py:180 _init_group\ntorch/optim/optimizer.py:484 wrapper"
TEMPORARY = "torch/optim/adam.py:620 _multi_tensor_adam\ntorch/optim/adam.py:233 step"


def test_optimizer_state_that_is_created_after_the_peak() -> None:
    (found,) = judge_timeline(recorded(at(40 * MIB, 10, 90), at(24 * MIB, 100, None, STATE)))
    assert found.code == "no_optimizer_state"
    assert found.evidence == {"state_bytes": 24 * MIB, "peak_bytes": 52 * MIB}
    assert "76.0 MiB" in found.sentence


def test_a_first_step_in_which_the_optimizer_state_causes_the_peak() -> None:
    assert codes(recorded(at(20 * MIB, 10, 90), at(24 * MIB, 100, None, STATE))) == ["first_step_recorded"]


def test_a_later_step_is_clean() -> None:
    """It has only temporaries within the optimizer, or state that replaces state of the same size."""
    assert codes(recorded(at(20 * MIB, 10, 90), at(12 * MIB, 100, 110, TEMPORARY))) == []
    old = at(24 * MIB, 0, 110)
    assert codes(recorded(old, at(20 * MIB, 10, 90), at(24 * MIB, 100, None, "own/adamw.py:31 step"))) == []
    assert codes(recorded(at(20 * MIB, 10, 90))) == []


def test_copies_in_half_precision() -> None:
    """Many blocks of half a weight are activations, as when a batch has half as many tokens as the model is wide."""
    copies = [at(size // 2, 20 + place, 80) for place, size in enumerate(WEIGHTS)]
    (found,) = judge_timeline(recorded(*copies, at(10 * MIB, 30, 90)))
    assert (found.code, found.severity) == ("half_precision_copies", "note")
    assert found.evidence == {"copies": 2, "copied_bytes": 6 * MIB}
    many = [at(size // 2, 20 + place, 80) for place, size in enumerate(WEIGHTS * 6)]
    assert codes(recorded(*many)) == []


def test_every_rule_has_a_remedy() -> None:
    assert {rule.__name__ for rule in TIMELINE_RULES} == set(TIMELINE_REMEDIES)


def their_snapshot(folder: Path, file: str, name: str) -> Path:
    """Returns a results file with 1,000 bytes that exist throughout, 4,000 bytes of activations that are freed, and
    then 2,000 bytes that stay, allocated by the function `name` in `file`."""
    frames = [{"filename": file, "name": name, "line": 180}]
    held = (block(4096, 1024, "active_allocated", 1000), block(8192, 2048, "active_allocated", 2000))
    trace = [
        event("alloc", 1_000_010, 16384, 4000),
        event("free_requested", 1_000_050, 16384, 4000),
        event("free_completed", 1_000_051, 16384, 4000),
        event("alloc", 1_000_080, 8192, 2000, frames=frames),
    ]
    db = folder / "results.duckdb"
    import_file(write(folder, {"segments": [segment(4096, *held)], "device_traces": [trace]}), db=db, label="theirs")
    return db


def test_an_imported_first_step_in_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    db = their_snapshot(tmp_path, "/opt/torch/optim/adam.py", "_init_group")
    told = run("show", "theirs", "--strict", db=db, code=1)  # the snapshot is graded D
    assert "no_optimizer_state (fault), 1 recording" in told.stdout
    assert "\n  their.pickle\n" in told.stdout
    (recorded,) = load_timelines(db)
    (finding,) = load_timeline_findings(db, recorded.cell_id)
    assert finding.code == "no_optimizer_state", "what the page shows beside the recording"
    assert TIMELINE_REMEDIES[finding.code] in told.stdout.replace("\n", " ")


def test_an_imported_snapshot_without_an_optimizer_is_clean(tmp_path: Path) -> None:
    told = run("show", "theirs", "--strict", db=their_snapshot(tmp_path, "/home/somebody/model.py", "forward"), code=0)
    assert "The audit found nothing against any of these recordings." in told.stdout
