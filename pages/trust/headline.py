"""What Overview shows of Trust: how many rows can be trusted, and why the others cannot."""

from dataclasses import replace

from pages.trust.answers import answer
from pages.ui.frame import Frame, Headline, Topic
from runner.analysis.audit.report import group_findings
from runner.store.queries.audit import load_audit


def describe_among(frame: Frame) -> str:
    filtered = " with these filters" if frame.selection != frame.selection.broad() else ""
    return f"{frame.where}{filtered}"


def _answer(frame: Frame) -> Headline:
    audit = frame.ask(load_audit, replace(frame.selection, mode=None))
    if not audit.rows:
        return Headline(words=f"No row of steps, attention or memory was measured {frame.where}.", missing="benchmark")
    words = answer(audit.rows, group_findings(audit.rows), among=describe_among(frame))
    return Headline(words=words, graded=audit.rows)


TOPICS = {"trust": Topic(title="Trust", address="trust", ask=_answer)}
