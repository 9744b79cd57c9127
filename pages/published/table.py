"""One published table: what it claims, as it was printed, beside the reader's own rows, what is wrong, and what it
would have shown.

draw_table(frame, loaded, loaded.names[name])
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from pages.figures.frame import WORDS, format_interval
from pages.published.answers import name_code, say_beside, say_claim, say_peaks, say_verdict
from pages.published.figures import PublishedDot, ratio_dots
from pages.published.loading import AuditedTables
from pages.ui.card import Card, draw
from pages.ui.chosen import rows_of
from pages.ui.evidence import LoadEvidence, of_cells, say
from pages.ui.formats import shorten, table
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.states import suggest
from pages.ui.trust import COLORS
from runner.analysis.audit.published.corrections import correct
from runner.analysis.audit.published.findings import PublishedFinding, format_lines
from runner.analysis.audit.published.readings import Reading
from runner.analysis.audit.published.report import PublishedGroup, findings_by_row, group_published
from runner.analysis.audit.report import SEVERITIES, format_evidence
from runner.analysis.compare.published import PublishedPair, match_peaks, stand_beside, wanted_cell
from runner.formats import format_bytes, format_count, format_number
from runner.plan.commands import sweep_commands
from runner.results import PublishedRow, PublishedTable
from runner.store.queries.attention import load_attention
from runner.store.queries.printed import of_printed
from runner.store.queries.steps import load_steps

#: So many findings of a kind are told in words; more are a table.
_TOLD = 3


def draw_table(frame: Frame, loaded: AuditedTables, one: PublishedTable) -> None:
    findings = loaded.of(one)
    claim = literal(say_claim(one, loaded.readings.get(one.table_id, [])))
    verdict = say_verdict(findings, list(loaded.grades(one).values()))
    machine = literal(one.machine or "a machine that is not stated")
    words = (
        f"**{literal(one.title)}** claims: {claim}. **Verdict: {verdict}.**\n\n"
        f"Published, on {machine}. {_say_known(one)}"
    )
    say(frame, words, _load_printed(frame, one, one.rows), key="published-verdict")
    _draw_printed(loaded, one)
    _draw_wrong(frame, findings)
    _draw_instead(findings)
    _draw_beside(frame, loaded, one)


def _load_printed(frame: Frame, one: PublishedTable, rows: Sequence[PublishedRow]) -> LoadEvidence | None:
    """Returns a function that loads what these rows print; None for rows without a figure."""
    printed = tuple((row.line, f.heading, f.text, f.quantity, f.value) for row in rows for f in row.figures)
    columns = ("line", "heading", "printed", "quantity", "value")
    return partial(frame.ask, of_printed, one.file, columns, printed) if printed else None


def _say_known(one: PublishedTable) -> str:
    """Says what is known of how it was measured, and what was assumed to read it."""
    names = {"warmup_ran": "Warm-up ran", "std_kind": "Standard deviation", "clock": "Clock", "memory_means": "Memory"}
    known = [f"{words}: {literal(one.provenance[name])}." for name, words in names.items() if one.provenance.get(name)]
    return " ".join([*known, *map(literal, one.remarks)])


def _draw_printed(loaded: AuditedTables, one: PublishedTable) -> None:
    """Draws the table as it was printed, each line with its grade and what the audit found."""
    st.subheader("As it was published", anchor="as-published")
    found, grades = findings_by_row(loaded.of(one)), loaded.grades(one)
    rows = [
        {
            "Line": row.line,
            "Grade": grades[row.row_id] or "",
            "Found": ", ".join(dict.fromkeys(name_code(finding.code) for finding in found.get(row.row_id, []))),
            **_describe_setting(row),
            **{figure.heading: figure.text for figure in row.figures},
        }
        for row in one.rows
    ]
    height = min(480, 38 + 35 * len(rows))
    alt = f"The published table {one.title}, with the grade of each line."
    st.dataframe(shorten(table(rows)), hide_index=True, height=height, key="published-rows", alt=alt)


def _describe_setting(row: PublishedRow) -> dict[str, Any]:
    names = {
        "name": "Size",
        "part": "Part",
        "d_model": "d_model",
        "context": "Context",
        "seq_len": "Sequence length",
        "d_head": "Head width",
        "precision": "Precision",
        "backend": "Backend",
        "warmup_steps": "Warm-up",
        "device": "Device",
    }
    return {label: value for name, label in names.items() if (value := getattr(row.setting, name)) is not None}


def _draw_wrong(frame: Frame, findings: Sequence[PublishedFinding]) -> None:
    """Draws each finding with the lines that it touches, and what to do about it."""
    st.subheader("What is wrong with it", anchor="what-is-wrong")
    if not findings:
        st.caption("Nothing that its figures show.")
    for group in group_published(findings):
        with st.container(border=True):
            _draw_group(frame, group)


def _draw_group(frame: Frame, group: PublishedGroup) -> None:
    badge = f":{COLORS[SEVERITIES[group.severity]]}-badge[{group.severity}] **{name_code(group.code)}**"
    key = f"published-{group.severity}-{group.code}"
    for place, found in enumerate(group.found[:_TOLD]):
        words = f"{badge}, {_name_lines(found.lines)}: {literal(found.finding.sentence)}"
        say(frame, words, _load_printed(frame, found.table, found.rows), key=f"{key}-{place}")
    if len(group.found) > _TOLD:
        _list_findings(group.found, key=f"_{key}-rows")
    st.caption(restrict(f"What to do: {group.remedy}"))


def _list_findings(found: Sequence[PublishedFinding], *, key: str) -> None:
    rows = [
        {
            "Lines": format_lines(one.lines),
            "What was found": one.finding.sentence,
            "Evidence": format_evidence(one.finding),
        }
        for one in found
    ]
    st.dataframe(shorten(table(rows)), hide_index=True, key=key, alt="Every line that it touches.")


def _name_lines(lines: Sequence[int]) -> str:
    return f"{'line' if len(set(lines)) == 1 else 'lines'} {format_lines(lines)}"


def _draw_instead(findings: Sequence[PublishedFinding]) -> None:
    st.subheader("What it would have shown", anchor="instead")
    corrections = correct(findings)
    if not corrections:
        st.caption("Nothing else that can be worked out from its own figures.")
        return
    rows = [
        {"Line": c.line, "Figure": c.figure, "Published": c.published, "Instead": c.instead, "How": c.why}
        for c in corrections
    ]
    alt = "Published figures and what they would have been without their mistake."
    st.dataframe(shorten(table(rows)), hide_index=True, height=min(400, 38 + 35 * len(rows)), key="instead", alt=alt)


# ---------------------------------------------------------------------------------------------- beside the reader's own


def find_first(frame: Frame, loaded: AuditedTables) -> str | None:
    """Returns the name of the first table that stands beside measured rows, if any does."""
    return next((name for name, one in loaded.names.items() if _load_pairs(frame, loaded, one)), None)


def _load_pairs(frame: Frame, loaded: AuditedTables, one: PublishedTable) -> list[PublishedPair]:
    own, readings = rows_of(frame), loaded.readings.get(one.table_id, [])
    return stand_beside(readings, steps=frame.ask(load_steps, own), attention=frame.ask(load_attention, own))


def _draw_beside(frame: Frame, loaded: AuditedTables, one: PublishedTable) -> None:
    st.subheader("Beside your own rows", anchor="beside")
    readings = [reading for reading in loaded.readings.get(one.table_id, []) if reading.times]
    wanted = [cell for reading in readings if (cell := wanted_cell(reading))]
    if not wanted:
        st.caption("Its rows do not say enough to stand beside a measured cell: no times, no shape, or no context.")
        return
    pairs = _load_pairs(frame, loaded, one)
    if not pairs:
        words = f"None of its {format_count(len(set(wanted)), 'cell')} was measured {frame.where}."
        say(frame, words, _load_printed(frame, one, one.rows), key="published-unmeasured")
    else:
        _draw_pairs(frame, loaded, pairs)
    _draw_peaks(frame, loaded.readings.get(one.table_id, []))
    missing = [cell for cell in dict.fromkeys(wanted) if cell not in _measured(pairs)]
    if missing and (commands := sweep_commands(missing, fresh=False)):
        suggest("Measure its cells here, and they stand beside it:", "\n".join(commands[:3]))


def _draw_peaks(frame: Frame, readings: Sequence[Reading]) -> None:
    """Draws the peaks of attention beside those of the reader's own cells; nothing where there are none."""
    peaks = match_peaks(readings, attention=frame.ask(load_attention, rows_of(frame)))
    if not peaks:
        return
    say(frame, say_peaks(peaks), of_cells(frame, [peak.beside for peak in peaks]), key="published-peaks")
    rows = [
        {
            "Line": peak.reading.row.line,
            "Cell": peak.reading.words,
            "Published peak": format_bytes(peak.published_bytes),
            "Measured peak": format_bytes(peak.measured_bytes),
            "Published / measured (×)": peak.ratio,
        }
        for peak in peaks
    ]
    alt = "Published peaks of memory and those measured here."
    st.dataframe(shorten(table(rows)), hide_index=True, key="published-peak-rows", alt=alt)


def _measured(pairs: Sequence[PublishedPair]) -> set[Any]:
    return {wanted_cell(pair.reading) for pair in pairs}


def _draw_pairs(frame: Frame, loaded: AuditedTables, pairs: Sequence[PublishedPair]) -> None:
    grades = loaded.grades(pairs[0].reading.table)
    dots = [
        PublishedDot(
            place=_name_place(pair),
            phase=pair.phase,
            cell_id=str(pair.cell_id),
            ratio=pair.ratio,
            low=pair.low,
            high=pair.high,
            published_ms=pair.published_ms,
            measured_ms=pair.measured.ms,
            grade=grades[pair.reading.row.row_id],
        )
        for pair in pairs
    ]
    card = Card(
        key="published-beside",
        title="Published over measured",
        answer=say_beside(pairs, grades),
        evidence=[of_cells(frame, [pair.beside for pair in pairs])],
        note="Left of 1× the published time is shorter. Hollow: the audit doubts the published row. The interval is "
        "that of the measured time alone.",
        alt="Published time over measured time: "
        + "; ".join(f"{dot.place} {WORDS[dot.phase]} {format_number(dot.ratio)}×" for dot in dots),
        rows=[_list_pair(pair, dot) for pair, dot in zip(pairs, dots, strict=True)],
    )
    draw(frame, card, lambda: ratio_dots(dots, state="published-beside"))


def _name_place(pair: PublishedPair) -> str:
    key = pair.reading.key
    rest = [word for word in (key.precision, key.backend) if word]
    return " · ".join([f"line {pair.reading.row.line}", pair.reading.words, *rest])


def _list_pair(pair: PublishedPair, dot: PublishedDot) -> dict[str, Any]:
    return {
        "Line": pair.reading.row.line,
        "Cell": pair.reading.words,
        "Phase": WORDS[pair.phase],
        "Published (ms)": pair.published_ms,
        "Measured (ms)": pair.measured.ms,
        "Published / measured (×)": pair.ratio,
        "95% interval": format_interval(pair.low, pair.high, unit="×"),
        "Grade of the published row": dot.grade or "",
        "Id of the measured cell": str(pair.cell_id),
    }
