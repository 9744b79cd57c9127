"""The sentences of the page Published results: what each table claims, and whether that survives.

claim = say_claim(table, readings)          # "forward takes 10.1 to 60.4 ms"
verdict = say_verdict(table, findings, grades)
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from runner.analysis.audit.findings import Grade, Severity
from runner.analysis.audit.published.findings import PublishedFinding
from runner.analysis.audit.published.readings import Reading, name_time
from runner.analysis.compare.published import PHASES, PublishedPair, PublishedPeak
from runner.formats import format_bytes, format_ms, format_number
from runner.results import PublishedTable

#: So many of the most frequent findings are named, and so many small results quoted.
_NAMED, _QUOTED = 3, 4


def say_overview(tables: Sequence[PublishedTable], findings: Sequence[PublishedFinding], *, where: str) -> str:
    """Says how many tables can be read as they stand, how many hold faults, and which findings are most frequent."""
    worst = {table.table_id: _worst(table, findings) for table in tables}
    faulty, doubtful = (sum(found == severity for found in worst.values()) for severity in ("fault", "doubt"))
    sound = len(tables) - faulty - doubtful
    counts: Counter[str] = Counter()
    for found in findings:
        if found.finding.severity != "note":
            counts[found.finding.code] += len(found.rows)
    named = [f"{name_code(code)} ({number:,})" for code, number in counts.most_common(_NAMED)]
    reasons = f" Most frequent findings, by rows: {_list(named)}." if named else ""
    return (
        f"**{sound:,} of {len(tables):,}** published tables {where} can be read as they stand; **{doubtful:,}** have "
        f"rows in doubt, and **{faulty:,}** have rows that do not mean what they say.{reasons}"
    )


def _worst(table: PublishedTable, findings: Sequence[PublishedFinding]) -> str | None:
    severities = {one.finding.severity for one in findings if one.table.table_id == table.table_id}
    return next((severity for severity in ("fault", "doubt", "note") if severity in severities), None)


def name_code(code: str) -> str:
    """Returns a finding's code in words: `cold step`."""
    return code.replace("_", " ")


# ------------------------------------------------------------------------------------------------------ what is claimed


def say_claim(table: PublishedTable, readings: Sequence[Reading]) -> str:
    """Says in a few words what the table claims, in its own figures."""
    parts = [*_claim_results(table), *_claim_kernels(table), *_claim_ratios(table)]
    return "; ".join(parts or [*_claim_times(readings), *_claim_bytes(readings)]) or "no figure"


def _claim_results(table: PublishedTable) -> Iterator[str]:
    """The sums, or the dtypes that autocast leaves in half precision."""
    figures = [(row, figure) for row in table.rows for figure in row.figures]
    sums = [figure.text for _, figure in figures if figure.quantity == "result"]
    if sums:
        yield f"1,000 × 0.01 is {', '.join(sums[:_QUOTED])}"
    if table.subject == "dtypes":
        half = sum("16" in figure.text for _, figure in figures if figure.quantity == "dtype")
        yield f"{half} of {len(table.rows)} components are in half precision under autocast"


def _claim_kernels(table: PublishedTable) -> Iterator[str]:
    if table.subject == "kernels":
        shares = [(row.mean("share") or 0.0, row) for row in table.rows]
        share, row = max(shares, key=lambda item: item[0])
        yield f"`{(row.setting.part or 'one kernel')[:40]}` takes up to {share:.0%} of a pass"
    if table.subject == "ranges":
        parts = [f"{row.setting.part} {format_ms(row.mean('duration') or 0.0)}" for row in table.rows]
        yield ", ".join(parts[:_QUOTED])


def _claim_ratios(table: PublishedTable) -> Iterator[str]:
    """The speedups and ratios that the table states itself."""
    for quantity, words in (("speedup", "speedup"), ("ratio", "ratio")):
        values = [f.value for row in table.rows for f in row.figures if f.quantity == quantity and f.value]
        if values:
            yield f"{words} of {format_number(min(values))}× to {format_number(max(values))}×"


def _claim_times(readings: Sequence[Reading]) -> Iterator[str]:
    for phase in PHASES:
        times = [reading.times[phase].mean for reading in readings if phase in reading.times]
        if times:
            yield f"{name_time(phase)} {_say_span(times)}"


def _say_span(times: Sequence[float]) -> str:
    least, most = min(times), max(times)
    return format_ms(least) if least == most else f"{format_number(least)} to {format_ms(most)}"


def _claim_bytes(readings: Sequence[Reading]) -> Iterator[str]:
    values = [figure.value for reading in readings for figure in reading.memory.values() if figure.value is not None]
    if values:
        yield f"memory up to {format_bytes(max(values))}"


# ------------------------------------------------------------------------------------------------ whether it survives


def say_verdict(findings: Sequence[PublishedFinding], grades: Sequence[Grade | None]) -> str:
    """Says how many rows of a table survive, and what the others fell over, the most severe first."""
    counts = Counter(grade for grade in grades if grade)
    graded, sound = sum(counts.values()), counts["A"] + counts["B"]
    if not graded:
        return "nothing to judge"
    if sound == graded:
        notes = _name_codes(findings, "note")
        return "survives" + (f", with a note: {', '.join(notes)}" if notes else "")
    start = f"{sound} of {graded} rows survive" if sound else f"none of {graded} rows survives"
    lost = [f"{counts['C']} in doubt"] * bool(counts["C"]) + [f"{counts['D']} wrong"] * bool(counts["D"])
    reasons = dict.fromkeys([*_name_codes(findings, "fault"), *_name_codes(findings, "doubt")])
    return f"{start}, {' and '.join(lost)}: {', '.join(reasons)}"


def _name_codes(findings: Sequence[PublishedFinding], severity: Severity) -> list[str]:
    return [*dict.fromkeys(name_code(one.finding.code) for one in findings if one.finding.severity == severity)]


def say_beside(pairs: Sequence[PublishedPair], grades: Mapping[UUID, Grade | None]) -> str:
    """Says how published and measured times compare, over all phases of all matched cells; rows that the audit holds
    wrong count apart."""
    sound = [pair for pair in pairs if grades[pair.reading.row.row_id] != "D"]
    cells = len({pair.cell_id for pair in sound or pairs})
    count = "1 cell" if cells == 1 else f"{cells:,} cells"
    if not sound:
        return f"Published times of {count}, all in rows that are wrong, are {_say_ratios(pairs)} those measured here."
    words = f"Published times are **{_say_ratios(sound)}** those measured here, in {count} with the same settings"
    return words + (", rows that are wrong left out." if len(sound) < len(pairs) else ".")


def say_peaks(peaks: Sequence[PublishedPeak]) -> str:
    """Says how published and measured peaks compare."""
    count = "1 cell" if len(peaks) == 1 else f"{len(peaks):,} cells"
    return f"Published peaks are **{_say_ratios(peaks)}** those measured here, in {count} with the same settings."


def _say_ratios(pairs: Sequence[PublishedPair | PublishedPeak]) -> str:
    ratios = [pair.ratio for pair in pairs]
    least, most = format_number(min(ratios)), format_number(max(ratios))
    return f"{least}×" if least == most else f"{least}× to {most}×"


def _list(parts: Sequence[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
