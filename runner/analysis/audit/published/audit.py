"""Audits published tables, by the rules of measured rows where they mean the same.

    for found in audit_published(tables):
        print(found.table.file, format_lines(found.lines), found.finding.sentence)

Rules see all tables of one report at once: an option without effect shows only beside the table without it. They reason
from FLOPs against data sheets, bytes against formulas, and spreads. Limits: a table that states little is not judged by
what it leaves out, and no finding does not mean no fault.
"""

from collections.abc import Callable, Sequence

from runner.analysis.audit.published.findings import Found, PublishedFinding
from runner.analysis.audit.published.growth import GROWTH_RULES
from runner.analysis.audit.published.keys import KEY_RULES
from runner.analysis.audit.published.memory import MEMORY_RULES
from runner.analysis.audit.published.numerics import NUMERIC_RULES
from runner.analysis.audit.published.options import OPTION_RULES
from runner.analysis.audit.published.phases import PHASE_RULES
from runner.analysis.audit.published.rates import RATE_RULES
from runner.analysis.audit.published.readings import PublishedReport, by_report, read_report
from runner.analysis.audit.published.repeats import REPEAT_RULES
from runner.analysis.audit.published.spreads import SPREAD_RULES
from runner.analysis.audit.published.subtraction import subtraction
from runner.results.published import PublishedTable

PUBLISHED_RULES: tuple[Callable[[PublishedReport], Found], ...] = (
    *RATE_RULES,
    subtraction,
    *PHASE_RULES,
    *SPREAD_RULES,
    *MEMORY_RULES,
    *OPTION_RULES,
    *REPEAT_RULES,
    *KEY_RULES,
    *GROWTH_RULES,
    *NUMERIC_RULES,
)


def audit_published(tables: Sequence[PublishedTable]) -> list[PublishedFinding]:
    """Returns the findings of the tables. Tables of one report are judged together, others alone."""
    return [found for own in by_report(tables) for found in _judge(read_report(own))]


def _judge(report: PublishedReport) -> list[PublishedFinding]:
    return [found for rule in PUBLISHED_RULES for found in rule(report)]
