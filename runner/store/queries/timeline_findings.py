"""Loads the audit's findings of imported memory timelines.

load_timeline_findings(path, timeline.cell_id)      ->  [Finding(code="no_optimizer_state", …)]
"""

from pathlib import Path
from uuid import UUID

from runner.analysis.audit.findings import Finding
from runner.analysis.audit.timeline_rules import RecordedBlock, RecordedTimeline, judge_timeline
from runner.store.database import open_reader

_BLOCKS = """
    SELECT allocated_bytes, born_us, died_us, category, coalesce(frames, '')
    FROM (SELECT * FROM allocations WHERE cell_id = $id)
    LEFT JOIN (SELECT stack, frames FROM stacks WHERE cell_id = $id) USING (stack)"""


def load_timeline_findings(path: Path, cell_id: UUID) -> list[Finding]:
    """Returns the findings of one imported timeline; none for a measured one, whose memory cell is judged, or for one
    that the file does not have."""
    with open_reader(path) as reader:
        about = reader.execute(
            "SELECT peak_bytes, peak_at_us FROM timelines WHERE cell_id = ? AND origin = 'imported'", [cell_id]
        ).fetchone()
        if about is None:
            return []
        rows = reader.execute(_BLOCKS, {"id": cell_id}).fetchall()
    blocks = [
        RecordedBlock(size=size, born_us=born, died_us=died, category=category, frames=frames)
        for size, born, died, category, frames in rows
    ]
    return judge_timeline(RecordedTimeline(blocks=blocks, peak_bytes=about[0], peak_at_us=about[1]))
