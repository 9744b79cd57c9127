"""At which sequence length does attention run out, of time and of memory?"""

from collections.abc import Sequence
from dataclasses import replace

from runner.analysis.costs.attention import peak_breakdown
from runner.analysis.costs.steps import Device
from runner.analysis.pair import name_attention
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Power, Question, Row, View, choose
from runner.answers.shared import about, cells_of, clock_choice, narrow, unmeasured
from runner.answers.words import (
    ATTENTION_PHASES,
    CLOCKS,
    HIGH,
    LOW,
    STATUS,
    ended,
    ended_with_need,
    fit_power,
    lacks,
    power_words,
    write,
)
from runner.formats import format_bytes
from runner.results.cells import AttentionResult
from runner.results.rows import Rows

WAY = Field.of("attention", "implementation")
LENGTH = Field.of("attention", "seq_len")
PASS = Field.of("timings", "phase", label="Pass")
TIME = Field.of("timings", "median_ms", "value", label="Time")
#: What is counted: the choice and the column.
_MEMORY = {"at the peak": "peak_allocated_bytes", "before backward": "before_backward_bytes"}
SAVED = Field.of("attention", "saved_bytes", "note")
NEEDED = Field.of("attention", "predicted_peak_bytes", "note")
BYTES = Field("size_bytes", "Bytes", unit="bytes", role="value", doc="Alive at the peak.")
EXPONENT = Field("exponent", "Exponent of the length", role="value", doc="Least squares on log-log.")
#: How many of the longest lengths a growth is fitted over: constant costs weigh least there. They are what is drawn.
LONGEST = 3


def answer(rows: Rows, asked: Asked) -> Answer:
    cells = [one for one in rows.attention if one.status != "skipped"]
    if not cells:
        return Answer(missing=lacks("no attention was measured"))
    cells, choices = narrow(cells, asked, drawn=("implementation", "backend", "seq_len"))
    phases = [words for words, name in ATTENTION_PHASES.items() if any(name in one.times for one in cells)]
    phase = choose(asked, "phase", "Phase", phases)
    memories = [words for words, name in _MEMORY.items() if any(getattr(one, name) is not None for one in cells)]
    counted = choose(asked, "memory", "Memory", memories)
    clock = clock_choice(asked, cells, default="latency")
    of_what = _MEMORY.get(counted.chosen, "peak_allocated_bytes")
    cells.sort(key=lambda one: (one.cell.implementation != "naive", name_attention(one.cell), one.cell.seq_len))
    words = about(cells, "implementation", "backend")
    of_clock = about(cells, "implementation", "backend", more=[clock.chosen])
    limit = max((one.limit_bytes or 0 for one in cells), default=0)
    has_lost = any(one.status == "oom" for one in cells)

    def time(one: AttentionResult) -> tuple[float | None, float | None, float | None]:
        of = phase.chosen and clock.chosen
        found = one.time(ATTENTION_PHASES[phase.chosen], CLOCKS[clock.chosen]) if of else None
        return (found.ms, found.low_ms, found.high_ms) if found else (None, None, None)

    key = {one.cell_id: (name_attention(one.cell), one.cell.seq_len) for one in cells}
    of_time = (WAY, LENGTH, TIME, LOW, HIGH, STATUS)
    timed = tuple(Row.of(one, *key[one.cell_id], *time(one), ended(one)) for one in cells)

    def list_held(column: str) -> tuple[Row, ...]:
        sizes = [getattr(one, column) if one.status == "ok" else None for one in cells]
        notes = [(one.saved_bytes, one.predicted_peak_bytes, _why(one)) for one in cells]
        return tuple(
            Row.of(one, *key[one.cell_id], size, *note) for one, size, note in zip(cells, sizes, notes, strict=True)
        )

    held = list_held(of_what)
    fits = {name: fit_growth(timed, name) for name in dict.fromkeys(name for name, _ in key.values())}
    memory_fits = {name: fit_growth(held, name) for name in fits}
    title = f"Time, {phase.chosen}"
    full = [Guide(words=f"the device holds {format_bytes(limit)}", at=float(limit), is_limit=True)]
    guides = (*_guides(memory_fits), *(full if limit and has_lost else []))
    gaps = tuple(
        Row(values=(key[one.cell_id][0], column, None, None, None, ""), wanted=(cell,))
        for one, column, cell in unmeasured(cells, across="seq_len")
    )
    matrix = View(
        name="attention-time-by-length",
        title=title,
        about=of_clock,
        fields=of_time,
        rows=timed + gaps,
        draw=Draw("matrix", "median_ms", down=("implementation",), across="seq_len", log="x"),
    )
    lines = View(
        name="attention-time",
        title=f"{title}, against the length",
        about=of_clock,
        fields=of_time,
        rows=timed,
        draw=Draw("lines", "median_ms", across="seq_len", series="implementation", log="xy", guides=_guides(fits)),
        note=f"Shaded: the power law over the {LONGEST} longest lengths of each line.",
    )
    passes = View(
        name="attention-passes",
        title="Time of each pass",
        about=of_clock,
        fields=(WAY, LENGTH, PASS, TIME),
        rows=tuple(
            Row.of(one, *key[one.cell_id], name, found.ms)
            for one in cells
            for name in ("forward", "backward")
            if clock.chosen and (found := one.time(name, CLOCKS[clock.chosen]))
        ),
        draw=Draw("table", "median_ms", down=("implementation", "seq_len"), series="phase"),
    )
    memory = View(
        name="attention-memory",
        title=f"Memory {counted.chosen or 'at the peak'}, against the length",
        about=words,
        fields=(WAY, LENGTH, Field.of("attention", of_what, "value"), SAVED, NEEDED, STATUS),
        rows=held,
        draw=Draw("lines", of_what, across="seq_len", series="implementation", log="xy", guides=guides),
        note="Of what ran out of memory, the peak by the formula." if has_lost else "",
    )
    others = [
        replace(
            memory,
            name=f"attention-memory-{words.replace(' ', '-')}",
            title=f"Memory {words}, against the length",
            fields=(WAY, LENGTH, Field.of("attention", _MEMORY[words], "value"), SAVED, NEEDED, STATUS),
            rows=list_held(_MEMORY[words]),
            draw=replace(memory.draw, value=_MEMORY[words], guides=()),
            note="",
        )
        for words in memories
        if words != counted.chosen
    ]
    powers = Guide(words="S", at=1.0), Guide(words="S²", at=2.0)
    growth = View(
        name="attention-growth",
        title=f"Fitted power of the length, over the {LONGEST} longest",
        about=words,
        fields=(
            Field("what", "What"),
            WAY,
            EXPONENT,
            Field("low", "Low", role="low"),
            Field("high", "High", role="high"),
            Field("start", "From", unit="tokens", role="note"),
            Field("end", "To", unit="tokens", role="note"),
        ),
        rows=tuple(
            Row(
                values=(what, name, fit.exponent, fit.low, fit.high, fit.start, fit.end),
                cells=tuple(cell_id for cell_id, (way, _) in key.items() if way == name and found is fits),
            )
            for what, found in (("time", fits), (f"memory {counted.chosen}", memory_fits))
            for name, fit in found.items()
            if fit
        ),
        draw=Draw("dots", "exponent", down=("what", "implementation"), series="implementation", guides=powers),
        note="Left out where the interval does not tell one whole power from the next.",
    )
    sentence, more = _say(matrix, memory, fits, memory_fits, counted.chosen, clock.chosen)
    views = (matrix, lines, memory, passes, growth, *others, *_account(cells))
    made = (*choices, clock, phase, counted)
    return Answer(sentence=sentence, more=more, views=views, choices=made, cells=cells_of(cells))


def _account(cells: Sequence[AttentionResult]) -> list[View]:
    """Returns the tensors alive at the peak of the smallest cell that ran out of memory, by the formulas; where none
    did, of the largest that was measured."""
    lost = [one for one in cells if one.status == "oom"]
    known = [one for one in cells if one.peak_allocated_bytes]
    if not lost and not known:
        return []
    one = min(lost, key=_predicted) if lost else max(known, key=_predicted)
    device: Device = "cuda" if one.device == "cuda" else "cpu"
    tensors = peak_breakdown(one.cell, device=device, gpu=one.device_name or "")
    measured = [("peak, measured", "", one.peak_allocated_bytes)] if one.peak_allocated_bytes else []
    limit = [("the device holds", "", one.limit_bytes)] if one.limit_bytes else []
    sums = [("peak, predicted", "the sum of what follows", sum(size for *_, size in tensors)), *measured, *limit]
    tensors.sort(key=lambda tensor: -tensor[2])
    return [
        View(
            name="attention-accounting",
            title=f"What the peak of {name_attention(one.cell)} at {one.cell.seq_len:,} tokens is made of",
            about=about([one]),
            fields=(Field("tensor", "Tensor"), Field("formula", "Formula", role="note"), BYTES),
            rows=tuple(Row.of(one, *line) for line in (*sums, *tensors) if line[2]),
            draw=Draw("bars", "size_bytes", down=("tensor",), beside=("formula",)),
            note="The smallest cell that ran out of memory." if lost else "The largest cell that was measured.",
        )
    ]


def _predicted(one: AttentionResult) -> int:
    return one.predicted_peak_bytes or 0


def fit_growth(rows: tuple[Row, ...], way: str) -> Power | None:
    """Returns the power law of a way; none where its interval does not tell one whole power from the next."""
    fit = fit_power(
        ((row.values[1], row.values[2]) for row in rows if row.values[0] == way and row.values[2]), longest=LONGEST
    )
    return fit if fit and (fit.low is None or fit.high is None or fit.high - fit.low < 1) else None


def _guides(fits: dict[str, Power | None]) -> tuple[Guide, ...]:
    return tuple(Guide(words=power_words(fit), power=fit, series=name) for name, fit in fits.items() if fit)


def _why(one: AttentionResult) -> str:
    why = ended_with_need(one)
    return f"{why}, not free in one piece" if ": needs" in why and one.is_fragmented else why


def _say(
    matrix: View,
    memory: View,
    fits: dict[str, Power | None],
    memory_fits: dict[str, Power | None],
    counted: str,
    clock: str,
) -> tuple[str, str]:
    plain = [row for row in matrix.rows if row.values[2] is not None and row.values[0] == matrix.rows[0].values[0]]
    if not plain:
        return "None of these cells has a result.", ""
    name, length, ms = plain[-1].values[:3]
    text = f"At **{length:,} tokens** {name} takes **{write(ms, 'ms')}** ({clock})"
    beside = [row for row in matrix.rows if row.values[1] == length and row.values[0] != name and row.values[2]]
    if beside:
        quick = min(beside, key=lambda row: row.values[2])
        text += f", {quick.values[0]} **{write(quick.values[2], 'ms')}** ({write(ms / quick.values[2], '×')})"
    lost = [row for row in memory.rows if "out of memory" in memory.ended(row)]
    if lost:
        first = min(lost, key=lambda row: row.values[1])
        text += f"; **{first.values[0]} runs out of memory at {first.values[1]:,}**"
        needs = memory.ended(first).partition(": needs")[2]
        text += f" (needs{needs})" if needs else ""
    grown = [
        f"{what} as **{power_words(grows)}**"
        for what, found in (("time", fits), (f"memory {counted}", memory_fits))
        if (grows := found.get(name))
    ]
    fit = fits.get(name)
    if not grown or not fit:
        return f"{text}.", ""
    return f"{text}.", f"{name} grows in {' and '.join(grown)} from {fit.start:,.0f} to {fit.end:,.0f} tokens."


QUESTION = Question(answer=answer, needs=("attention",), course=("A1", "A2"))
