"""The audit reads any content of a published table: here the shipped tables with exchanged values."""

import random
from pathlib import Path

import pytest

from runner.analysis.audit.published.audit import audit_published
from runner.analysis.audit.published.corrections import correct
from runner.errors import UsageError
from runner.published.reading import read_published
from tests.runner.analysis.audit.test_expected import REFERENCE
from tests.some import some

CELLS = ("", "nan", "0", "-1", "1e308", "1e-308", "OOM", "999999999999", "inf", "0.0", "x")


@pytest.mark.parametrize("seed", some(range(4)))
def test_exchanged_cells(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    texts = [path.read_text() for path in sorted(REFERENCE.glob("*.csv")) if path.name != "provenance.csv"]
    judged = 0
    for _ in range(80):
        lines = chance.choice(texts).splitlines()
        for _ in range(chance.randint(1, 12)):
            row = chance.randrange(1, len(lines))
            cells = lines[row].split(",")
            cells[chance.randrange(len(cells))] = chance.choice(CELLS)
            lines[row] = ",".join(cells)
        path = tmp_path / "theirs.csv"
        path.write_text("\n".join(lines))
        try:
            tables = read_published(path)
        except UsageError:
            continue
        judged += 1
        for one in audit_published(tables):
            assert one.lines
            assert one.finding.sentence
            correct([one])
    assert judged > 40
