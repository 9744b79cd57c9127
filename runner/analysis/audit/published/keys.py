"""Audits what a published row says that it measured: rules about shapes, sizes and keys of failed rows.

    [found for rule in KEY_RULES for found in rule(report)]

Each rule's name is its findings' code.
"""

from runner.analysis.audit.findings import doubt, fault, note
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import PublishedReport, Reading
from runner.analysis.audit.published.sizes import CLOSE, count_in_name, fits_known_size, parameters_of

#: The fields of the shape that a row that ran out of memory must state where the other rows of its table do.
_SHAPE = ("d_model", "d_ff", "layers", "heads", "context", "seq_len", "d_head", "batch")
_CONTRADICTION = " in its command: "


def unstated_key(report: PublishedReport) -> Found:
    """Finds a table of steps without the model or the context, which its provenance does not state either."""
    for readings in report.groups:
        timed = [r for r in readings if r.times] if readings[0].table.subject == "steps" else []
        for missing, words in (("shape", "which model it is of"), ("length", "its context length")):
            found = [reading for reading in timed if getattr(reading.key, missing) is None]
            if found and len(found) == len(timed):
                sentence = f"No row says {words}, and nothing else does: its figures cannot stand beside any other."
                yield touching(found, note("unstated_key", sentence, missing=missing))


def lost_key(report: PublishedReport) -> Found:
    """Finds a failed row that lost the numbers that say what failed."""
    for readings in report.by_table:
        failed = [r for r in readings if not r.is_ok]
        stated = {name for r in readings if failed and r.is_ok for name in _SHAPE if getattr(r.setting, name)}
        for reading in failed:
            lost = [name for name in _SHAPE if name in stated and not getattr(reading.setting, name)]
            if lost:
                sentence = (
                    f"It ran out of memory ({reading.row.status}) and states no {', '.join(lost)}, as its other rows "
                    "do: what failed cannot be told from the numbers."
                )
                yield touching([reading], doubt("lost_key", sentence, lost=", ".join(lost)))


def wrong_parameters(report: PublishedReport) -> Found:
    """Finds a count that is not that of the stated shape, or of the size that the row is named after."""
    for reading in report.readings:
        stated, shape = reading.setting.parameters, reading.shape
        if stated and shape and abs(stated / parameters_of(shape) - 1) > CLOSE:
            sentence = (
                f"{stated:,} parameters are stated, and {shape.d_model} × {shape.layers} with d_ff {shape.d_ff} has "
                f"{parameters_of(shape):,}: the row is of another shape than it says."
            )
            evidence = {"stated": stated, "expected": parameters_of(shape)}
            yield touching([reading], fault("wrong_parameters", sentence, **evidence))


def unknown_size(report: PublishedReport) -> Found:
    """Finds a model whose parameters fit no size of the assignment, and whose shape the row does not state."""
    for reading in (r for r in report.of("steps") if r.shape is None):
        count = reading.setting.parameters or count_in_name(reading.setting.name)
        if count and not fits_known_size(count):
            sentence = (
                f"{_name(reading)} has {count / 1e9:.3g} B parameters, those of no size of the assignment: another "
                "shape, and not the next point of the other rows' trend."
            )
            yield touching([reading], note("unknown_size", sentence, parameters=count))


def ambiguous_size(report: PublishedReport) -> Found:
    """Finds `xl` alone, which is 1,600 wide in one edition and 2,560 in the other."""
    for readings in report.groups:
        found = [
            r
            for r in readings
            if (r.setting.name or "").lower() == "xl" and r.shape is None and not r.setting.parameters
        ]
        if found and found[0].table.subject == "steps":
            sentence = (
                "“xl” is 1,600 wide in the edition of 2025 and 2,560 in that of 2026, and the report says neither."
            )
            yield touching(found, note("ambiguous_size", sentence, name="xl"))


def contradicting_settings(report: PublishedReport) -> Found:
    for reading in report.readings:
        for remark in (text for text in reading.row.remarks if _CONTRADICTION in text):
            sentence = f"Its row and its command disagree: {remark}"
            yield touching([reading], note("contradicting_settings", sentence, remark=remark))


def _name(reading: Reading) -> str:
    return f"“{reading.setting.name}”" if reading.setting.name else "The model"


KEY_RULES = (unstated_key, lost_key, wrong_parameters, unknown_size, ambiguous_size, contradicting_settings)
