"""Audits a published row's bytes, by the formulas of parameters and of attention's squares.

    [found for rule in MEMORY_RULES for found in rule(report)]

Float32 parameters take 4 bytes each, their gradients 4 and AdamW's two moments 8. `carried` computes the bytes of
the row before. Each rule's name is its findings' code.
"""

from runner.analysis.audit.findings import doubt, fault, note
from runner.analysis.audit.published.carried import carried_rows, needed_bytes, peak_of
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import PublishedReport, Reading
from runner.analysis.audit.published.sizes import parameters_of
from runner.formats import format_bytes

#: Bytes of a parameter; of it and AdamW's moments; of it, its gradient and the moments (float32).
PARAMETER, MOMENTS, TRAINED = 4, 8, 16
#: A peak this close to what it must be, as a share, is it.
CLOSE = 0.02


def peak_carried_over(report: PublishedReport) -> Found:
    carried = carried_rows(report)
    for reading in report.of("attention") if carried else ():
        peak, over = peak_of(reading), carried.get(reading.row.row_id)
        if not over or peak is None:
            continue
        kept = f"{over.squares:.1f} squares of scores of the row before"
        evidence = {"peak_bytes": peak, "left_bytes": over.left_bytes, "own_bytes": peak - over.left_bytes}
        if over.is_certain:
            sentence = (
                f"The peak of {format_bytes(peak)} is far beyond the {format_bytes(needed_bytes(reading))} that it "
                f"needs: it holds {kept}, {format_bytes(over.left_bytes)}."
            )
            yield touching([reading], fault("peak_carried_over", sentence, **evidence))
        else:
            sentence = (
                f"Other rows of the table still hold {kept}. As many would be {format_bytes(over.left_bytes)} here, "
                f"{over.left_bytes / peak:.0%} of this peak."
            )
            yield touching([reading], doubt("peak_carried_over", sentence, **evidence))


def zero_bytes(report: PublishedReport) -> Found:
    """Finds models with no bytes, where a counter that does not exist was printed as 0."""
    for readings in report.groups:
        zero = [r for r in readings if r.memory and all(figure.value == 0 for figure in r.memory.values())]
        if zero:
            columns = ", ".join(dict.fromkeys(figure.heading for figure in zero[0].memory.values()))
            sentence = f"0 bytes in {columns}: a counter that does not exist was printed as 0. It is unknown."
            yield touching(zero, fault("zero_bytes", sentence, bytes=0, columns=columns))


def negative_bytes(report: PublishedReport) -> Found:
    for readings in report.groups:
        found = [(r, figure) for r in readings for figure in r.memory.values() if figure.value and figure.value < 0]
        if found:
            least = min((figure for _, figure in found), key=lambda figure: figure.value or 0.0)
            sentence = (
                f"{least.heading} goes down to {least.text}: the difference of two counters, in which what was freed "
                "hides what was taken. It is not what the pass needs."
            )
            evidence: dict[str, float | int | str] = {"least_bytes": least.value or 0.0, "column": least.heading}
            yield touching([reading for reading, _ in found], doubt("negative_bytes", sentence, **evidence))


def below_parameters(report: PublishedReport) -> Found:
    for reading in report.readings:
        peak, shape = peak_of(reading), reading.shape
        if peak is None or shape is None or peak >= (least := parameters_of(shape) * PARAMETER * _float_share(reading)):
            continue
        sentence = (
            f"{format_bytes(peak)} are less than the {format_bytes(least)} of the {parameters_of(shape):,} parameters "
            "alone."
        )
        yield touching([reading], fault("below_parameters", sentence, peak_bytes=peak, parameter_bytes=least))


def _float_share(reading: Reading) -> float:
    """Returns the least share of a float32 byte: in half precision the weights themselves may be halved."""
    return 0.5 if reading.setting.precision in ("bf16", "fp16") else 1.0


def no_optimizer_state(report: PublishedReport) -> Found:
    """Finds training without AdamW's state. Parameters, gradients and two moments are 16 bytes a parameter, alive
    together when it steps."""
    for reading in report.readings:
        peak, shape = peak_of(reading), reading.shape
        if peak is None or shape is None or reading.key.mode != "train":
            continue
        parameters = parameters_of(shape) * _float_share(reading)
        if PARAMETER * parameters <= peak < TRAINED * parameters:
            sentence = (
                f"A full AdamW step holds {format_bytes(TRAINED * parameters)} of parameters, gradients and moments at "
                f"once, and this peak is {format_bytes(peak)}: it has no optimizer state, or was read "
                "before it existed."
            )
            evidence = {"peak_bytes": peak, "least_bytes": TRAINED * parameters}
            yield touching([reading], fault("no_optimizer_state", sentence, **evidence))


def first_step_recorded(report: PublishedReport) -> Found:
    """Finds peaks of a first step. From the second step on the moments are alive beside the activations: the peak is
    that of forward and backward, and 8 bytes a parameter. The first step makes them only when the activations are
    gone."""
    shaped = [reading for reading in report.readings if reading.shape and peak_of(reading)]
    without = {reading.key.without("mode"): peak_of(reading) for reading in shaped if reading.key.mode == "backward"}
    for reading in (reading for reading in shaped if reading.key.mode == "train"):
        peak, before = peak_of(reading), without.get(reading.key.without("mode"))
        if peak is None or before is None or reading.shape is None:
            continue
        moments = MOMENTS * parameters_of(reading.shape) * _float_share(reading)
        if 2 * moments <= peak < (1 - CLOSE) * (before + moments):
            sentence = (
                f"Forward and backward peak at {format_bytes(before)} and the moments take "
                f"{format_bytes(moments)} more; this step's peak is {format_bytes(peak)}: that of the first step, "
                "before the moments existed."
            )
            evidence = {"peak_bytes": peak, "expected_bytes": before + moments}
            yield touching([reading], doubt("first_step_recorded", sentence, **evidence))


def unstated_memory(report: PublishedReport) -> Found:
    """Finds a column that says only “memory”. Allocated, reserved and the driver's bytes are three numbers."""
    for readings in report.groups:
        found = [reading for reading in readings if ("memory", "") in reading.memory]
        if found and not found[0].provenance.knows_memory:
            heading = found[0].memory["memory", ""].heading
            sentence = f"{heading} does not say whether it is allocated, reserved or the driver's memory, or a peak."
            yield touching(found, note("unstated_memory", sentence, column=heading))


MEMORY_RULES = (
    peak_carried_over,
    zero_bytes,
    negative_bytes,
    below_parameters,
    no_optimizer_state,
    first_step_recorded,
    unstated_memory,
)
