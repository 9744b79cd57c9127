"""At which sequence length does attention run out, of time and of memory, and how do they grow?"""

from uuid import UUID

from runner.analysis.pair import name_attention
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Missing, Power, Question, Row, View, choose
from runner.answers.shared import STATUS, about, cells_of, ended, fit_power, narrow, power_words, unmeasured, write
from runner.formats import format_bytes
from runner.results import AttentionResult
from runner.results.rows import Rows
from runner.schema import Phase
from runner.schema.sizes import WORDS

WAY = Field.of("attention", "implementation")
LENGTH = Field.of("attention", "seq_len")
TIME = Field.of("timings", "median_ms", "value", label="Time")
LOW, HIGH = Field.of("timings", "low_ms", "low"), Field.of("timings", "high_ms", "high")
PEAK = Field.of("attention", "peak_allocated_bytes", "value")
SAVED = Field.of("attention", "saved_bytes", "note")
NEEDED = Field.of("attention", "predicted_peak_bytes", "note")
EXPONENT = Field(name="exponent", label="Exponent of the length", role="value", doc="Least squares on log-log.")
#: How many of the longest lengths a growth is fitted over: constant costs weigh least there. They are what is drawn.
LONGEST = 3
_SHOWN: tuple[Phase, ...] = ("forward_backward", "forward", "backward")
_PHASES: dict[str, Phase] = {WORDS[name]: name for name in _SHOWN}


def answer(rows: Rows, asked: Asked) -> Answer:
    cells = [one for one in rows.attention if one.status != "skipped"]
    if not cells:
        return Answer(question="attention", missing=(Missing(words="no attention was measured"),))
    cells, choices = narrow(cells, asked, drawn=("implementation", "backend", "seq_len"))
    phase = choose(
        asked, "phase", "Phase", [words for words, name in _PHASES.items() if any(name in one.times for one in cells)]
    )
    cells.sort(key=lambda one: (one.cell.implementation != "naive", name_attention(one.cell), one.cell.seq_len))
    words = about(cells, "implementation", "backend", more=[])
    limit = max((one.limit_bytes or 0 for one in cells), default=0)

    def time(one: AttentionResult) -> tuple[float | None, float | None, float | None]:
        found = one.times.get(_PHASES[phase.chosen]) if phase.chosen else None
        return (found.median_ms, found.low_ms, found.high_ms) if found else (None, None, None)

    key = {one.cell_id: (name_attention(one.cell), one.cell.seq_len) for one in cells}
    of_time = (WAY, LENGTH, TIME, LOW, HIGH, STATUS)
    timed = tuple(Row(values=(*key[one.cell_id], *time(one), ended(one)), cells=(one.cell_id,)) for one in cells)
    of_bytes = (WAY, LENGTH, PEAK, SAVED, NEEDED, STATUS)
    held = tuple(
        Row(
            values=(
                *key[one.cell_id],
                one.peak_allocated_bytes if one.status == "ok" else None,
                one.saved_bytes,
                one.predicted_peak_bytes,
                _why(one),
            ),
            cells=(one.cell_id,),
        )
        for one in cells
    )
    fits = {name: _fit(timed, name) for name in dict.fromkeys(name for name, _ in key.values())}
    memory_fits = {name: _fit(held, name) for name in fits}
    title = f"Time, {phase.chosen}"
    gaps = tuple(
        Row(values=(key[one.cell_id][0], column, None, None, None, ""), wanted=(cell,))
        for one, column, cell in unmeasured(cells, across="seq_len")
    )
    matrix = View(
        name="attention-time-by-length",
        title=title,
        about=words,
        fields=of_time,
        rows=timed + gaps,
        draw=Draw(
            kind="matrix",
            value="median_ms",
            low="low_ms",
            high="high_ms",
            down=("implementation",),
            across="seq_len",
            log="x",
        ),
    )
    lines = View(
        name="attention-time",
        title=f"{title}, against the length",
        about=words,
        fields=of_time,
        rows=timed,
        draw=Draw(
            kind="lines",
            value="median_ms",
            low="low_ms",
            high="high_ms",
            across="seq_len",
            series="implementation",
            log="xy",
            guides=_guides(fits),
        ),
        note=f"Shaded: the power law over the {LONGEST} longest lengths of each line.",
    )
    memory = View(
        name="attention-memory",
        title="Peak memory, against the length",
        about=words,
        fields=of_bytes,
        rows=held,
        draw=Draw(
            kind="lines",
            value="peak_allocated_bytes",
            across="seq_len",
            series="implementation",
            log="xy",
            guides=(
                *_guides(memory_fits),
                *(
                    [Guide(words=f"the device holds {format_bytes(limit)}", at=float(limit), is_limit=True)]
                    if limit and any(one.status == "oom" for one in cells)
                    else []
                ),
            ),
        ),
        note="✕: ran out of memory; beside it, what it would have needed by the formula.",
    )
    growth = View(
        name="attention-growth",
        title=f"Fitted power of the length, over the {LONGEST} longest",
        about=words,
        fields=(
            Field(name="what", label="What"),
            WAY,
            EXPONENT,
            Field(name="low", label="Low", role="low"),
            Field(name="high", label="High", role="high"),
            Field(name="start", label="From", unit="tokens", role="note"),
            Field(name="end", label="To", unit="tokens", role="note"),
        ),
        rows=tuple(
            Row(values=(what, name, fit.exponent, fit.low, fit.high, fit.start, fit.end), cells=_of(key, name))
            for what, found in (("time", fits), ("peak memory", memory_fits))
            for name, fit in found.items()
            if fit
        ),
        draw=Draw(
            kind="dots",
            value="exponent",
            low="low",
            high="high",
            down=("what", "implementation"),
            series="implementation",
            guides=(Guide(words="S", at=1.0), Guide(words="S²", at=2.0)),
        ),
    )
    sentence, more = _say(matrix, memory, fits, memory_fits)
    return Answer(
        question="attention",
        sentence=sentence,
        more=more,
        views=(matrix, lines, memory, growth),
        choices=(*choices, phase),
        cells=cells_of(cells),
    )


def _fit(rows: tuple[Row, ...], way: str) -> Power | None:
    return fit_power(
        ((row.values[1], row.values[2]) for row in rows if row.values[0] == way and row.values[2]), longest=LONGEST
    )


def _guides(fits: dict[str, Power | None]) -> tuple[Guide, ...]:
    return tuple(Guide(words=power_words(fit), power=fit, series=name) for name, fit in fits.items() if fit)


def _of(key: dict[UUID, tuple[str, int]], way: str) -> tuple[UUID, ...]:
    return tuple(cell_id for cell_id, (name, _) in key.items() if name == way)


def _why(one: AttentionResult) -> str:
    needed = (
        f": needs {format_bytes(one.predicted_peak_bytes)}" if one.status == "oom" and one.predicted_peak_bytes else ""
    )
    needed += ", not free in one piece" if needed and one.is_fragmented else ""
    return ended(one) + needed


def _say(
    matrix: View, memory: View, fits: dict[str, Power | None], memory_fits: dict[str, Power | None]
) -> tuple[str, str]:
    plain = [row for row in matrix.rows if row.values[2] is not None and row.values[0] == matrix.rows[0].values[0]]
    if not plain:
        return "None of these cells has a result.", ""
    name, length, ms = plain[-1].values[:3]
    text = f"At **{length:,} tokens** {name} takes **{write(ms, 'ms')}**"
    beside = [row for row in matrix.rows if row.values[1] == length and row.values[0] != name and row.values[2]]
    if beside:
        quick = min(beside, key=lambda row: row.values[2])
        text += f", {quick.values[0]} **{write(quick.values[2], 'ms')}** ({write(ms / quick.values[2], '×')})"
    lost = [row for row in memory.rows if "out of memory" in memory.ended(row)]
    if lost:
        first = min(lost, key=lambda row: row.values[1])
        text += f"; **{first.values[0]} runs out of memory at {first.values[1]:,}**"
        text += (
            memory.ended(first).partition(": needs")[2].partition(",")[0].join((" (needs", ")"))
            if ": needs" in memory.ended(first)
            else ""
        )
    grown = [
        f"{what} as **{power_words(grows)}**"
        for what, found in (("time", fits), ("peak memory", memory_fits))
        if (grows := found.get(name))
    ]
    fit = fits.get(name)
    more = (
        f"{name} grows in {' and '.join(grown)} from {fit.start:,.0f} to {fit.end:,.0f} tokens."
        if grown and fit
        else ""
    )
    return f"{text}.", more


QUESTION = Question(
    name="attention",
    page="Attention",
    words="At which sequence length does attention run out, of time and of memory?",
    needs=("attention",),
    answer=answer,
    course=("A1", "A2"),
)
