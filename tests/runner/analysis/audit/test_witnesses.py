"""Every rule for published tables finds something in its witness, and nothing in the corrected version of that
report."""

from pathlib import Path

import pytest

from runner.analysis.audit.published.audit import PUBLISHED_RULES, audit_published
from runner.analysis.audit.published.remedies import PUBLISHED_REMEDIES
from tests.runner.analysis.audit.witnesses import WITNESSES
from tests.synthetic.published import write_report

#: Findings that a witness has beside its own, because its own cannot occur without them.
ALSO = {"compiler_fallback": {"no_effect"}, "cold_beside_warm": {"cold_step"}}


@pytest.mark.parametrize("code", WITNESSES)
def test_a_witness(code: str, tmp_path: Path) -> None:
    witness = WITNESSES[code]
    found = audit_published(write_report(tmp_path, witness.bad, **witness.known))
    touched = {(one.table.file, line) for one in found for line in one.lines if one.finding.code == code}
    assert touched == {(f"r_{name}.csv", line) for name, lines in witness.lines.items() for line in lines}
    assert {one.finding.severity for one in found if one.finding.code == code} == {witness.severity}
    assert {one.finding.code for one in found} - ALSO.get(code, set[str]()) == {code}


@pytest.mark.parametrize("code", WITNESSES)
def test_a_clean_case(code: str, tmp_path: Path) -> None:
    witness = WITNESSES[code]
    found = audit_published(write_report(tmp_path, witness.clean, **witness.known_clean))
    assert [(one.finding.code, one.finding.sentence) for one in found] == []


def test_every_rule_has_a_witness_and_a_remedy() -> None:
    codes = {rule.__name__ for rule in PUBLISHED_RULES}
    assert codes == set(WITNESSES) == set(PUBLISHED_REMEDIES)
    assert all(text.endswith(".") for text in PUBLISHED_REMEDIES.values())
