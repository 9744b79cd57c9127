"""Audits published tables: what contradicts itself, and what no machine can do.

Rows are compared within their table alone, and only where every other column says the same, read or not; a row with an
empty cell among them is not compared. A figure is as exact as its last printed digit. Rates are lower bounds: what a
row leaves unstated counts least (batch 1, no vocabulary, causal attention). Rules that measured rows have, too, are the
same functions of plain numbers (`judge_…`). No finding means that these rules found none, not that a table is right.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, pairwise, permutations, starmap
from operator import attrgetter
from typing import Any, get_args
from uuid import UUID

from runner.analysis.audit.findings import REMEDIES, doubt, fault
from runner.analysis.audit.judge import SAME_BYTES, judge_bytes
from runner.analysis.audit.row_rules import judge_peak, judge_rate
from runner.analysis.audit.time_rules import judge_mean, judge_passes
from runner.analysis.costs import hardware
from runner.formats import format_ms, format_quantity
from runner.results.findings import Finding, Grade, grade
from runner.results.published import MEANS, ORIGIN, PublishedFigure, PublishedRow, PublishedTable, Quantity
from runner.schema import Phase, PublishedSetting

#: Settings whose growth is more work, and those that tell machines and ways of computing apart.
_GROWING = ("context", "seq_len", "batch", "layers", "d_model", "d_ff", "d_head", "parameters")
_WAYS = ("device", "mode", "precision", "backend", "implementation", "is_profiled")
_PHASES: tuple[Phase, ...] = get_args(Phase)
_PASSES: tuple[Quantity, ...] = ("forward", "backward", "forward_backward", "step")
_TIMES = frozenset({*_PHASES, "duration", "total_duration"})
_PEAKS: tuple[Quantity, ...] = ("peak_memory", "reserved_memory", "allocated_memory", "memory")
#: The products of each time, in forward passes.
_PRODUCTS: Mapping[Quantity, int] = {"forward": 1, "backward": 2, "forward_backward": 3, "step": 3}
#: The sums that a table may print beside their parts.
_SUMS: Mapping[Quantity, tuple[Quantity, ...]] = {
    "forward_backward": ("forward", "loss", "backward"),
    "step": ("forward", "loss", "backward", "optimizer"),
    "total_duration": ("forward", "loss", "backward", "optimizer"),
}
#: A value this many times those beside it has another unit, or a slip.
SLIP = 100.0
#: Times of more work that are lower by these shares contradict: where both spreads are known, and where they are not.
LOWER, LOWER_UNKNOWN = 0.05, 0.25
#: A sum that is off by more than this share, in a table whose other rows add up, is wrong.
SUM_OFF = 0.02
#: The least share of the parameters that a name counts which take part in products: the others are embeddings.
IN_PRODUCTS = 0.75
#: The model of each GPU whose data sheet is known: its name's first word with a digit.
_MODELS = {name: next(filter(re.compile(r".*\d").match, re.split("[ -]", name))) for name in hardware.DATASHEETS}
#: The rate that no single GPU reaches, in FLOP/s: the highest dense rate of any data sheet here.
HIGHEST = max(sheet.bf16_tflops or 0.0 for sheet in hardware.DATASHEETS.values()) * 1e12


@dataclass(frozen=True, kw_only=True)
class PublishedFinding:
    """One thing about rows of one table that a reader should know."""

    table: PublishedTable
    rows: tuple[PublishedRow, ...]
    finding: Finding

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of the file that it touches, from 1."""
        return tuple(sorted({row.line for row in self.rows}))

    @property
    def place(self) -> str:
        """The file and the lines in words: `004_e2e.csv, lines 2, 5`."""
        return f"{self.table.file}, {'line' if len(self.lines) == 1 else 'lines'} {', '.join(map(str, self.lines))}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedCell:
    """One cell of one row: a row with two precisions side by side holds two. `key` is every cell beside the figures, by
    heading; `figures` has the value by quantity and part, the mean before the median before the only one."""

    table: PublishedTable
    row: PublishedRow
    setting: PublishedSetting
    variant: tuple[tuple[str, Any], ...]
    key: Mapping[str, str]
    figures: Mapping[tuple[Quantity, str], PublishedFigure]
    stds: Mapping[Quantity, float]
    is_compared: bool

    def value(self, quantity: Quantity, part: str = "") -> float:
        """The value of a quantity, 0 where it is not known."""
        figure = self.figures.get((quantity, part))
        return (figure.value if figure else None) or 0.0

    @property
    def words(self) -> str:
        """The cell in a few words: its settings and what is not known of it."""
        telling, meanings = ("setting", "not known"), self.table.meanings
        said = [text for name, text in self.row.stated.items() if meanings.get(name, "").startswith(telling)]
        return ", ".join([*said, *(str(value) for _, value in self.variant)]) or f"line {self.row.line}"

    @property
    def length(self) -> int | None:
        return self.setting.context or self.setting.seq_len


Found = Iterator[tuple[Sequence[PublishedCell], Finding]]


def audit_published(tables: Sequence[PublishedTable]) -> list[PublishedFinding]:
    """Returns the findings of the tables, each judged alone. What one rule explains, the rules after it leave out. Of a
    table of kernels, or of something else, only the cells themselves are judged."""
    findings = []
    for table in tables:
        cells = [cell for cell in list_cells(table) if cell.row.status == "ok"]
        for rule in PUBLISHED_RULES if table.subject in ("steps", "attention") else (unreadable, negative_time):
            wrong: set[UUID] = set()
            for found, finding in rule(cells) if cells else ():
                rows = {cell.row.row_id: cell.row for cell in found}
                findings.append(PublishedFinding(table=table, rows=tuple(rows.values()), finding=finding))
                wrong |= rows.keys() if finding.code in _EXPLAINING else set()
            cells = [cell for cell in cells if cell.row.row_id not in wrong]
    return findings


def list_cells(table: PublishedTable) -> list[PublishedCell]:
    """Returns the cells of the rows, also those of rows without a result."""
    no_key = ("status", "whether memory ran out")
    left_out = {name for name, meaning in table.meanings.items() if ORIGIN in meaning or meaning in no_key}
    kept = {name for name, meaning in table.meanings.items() if meaning == "kept as text"}
    needed = {name for row in table.rows for name in row.stated} - kept - left_out
    cells = []
    for row in table.rows:
        groups: dict[tuple[tuple[str, Any], ...], list[PublishedFigure]] = defaultdict(list)
        for figure in row.figures:
            groups[tuple((name, value) for name, value in figure.variant.items() if name != "part")].append(figure)
        key = {name: text for name, text in row.stated.items() if name not in left_out}
        for variant, figures in groups.items():
            known = [one for one in reversed(figures) if one.value is not None]
            best = [one for name in reversed(MEANS) for one in known if one.statistic == name]
            cells.append(
                PublishedCell(
                    table=table,
                    row=row,
                    setting=replace(row.setting, **dict(variant)),
                    variant=variant,
                    key=key,
                    figures={(one.quantity, str(one.variant.get("part", ""))): one for one in best},
                    stds={one.quantity: one.value or 0.0 for one in known if one.statistic == "std"},
                    is_compared=needed <= key.keys(),
                )
            )
    return cells


def _find_last_digit(figure: PublishedFigure) -> float:
    """Returns what one unit of the last printed digit is worth, in the figure's unit; a thousandth where unclear."""
    number = re.search(r"\d[\d,]*(\.\d+)?", figure.text)
    printed = float(number[0].replace(",", "")) if number else 0.0
    if not number or not printed or not figure.value:
        return abs(figure.value or 0.0) * 1e-3
    return abs(figure.value / printed) * 10.0 ** (1 - len(number[1] or "."))


def _group_by(cells: Sequence[PublishedCell], setting: str | None) -> list[list[PublishedCell]]:
    """Returns those of the cells that say the same but for one setting."""
    headings = cells[0].table.meanings.items()
    names = {heading for heading, meaning in headings if meaning.split()[:2] == ["setting", setting]}
    families: dict[object, list[PublishedCell]] = defaultdict(list)
    for cell in (cell for cell in cells if cell.is_compared):
        variant = tuple(item for item in cell.variant if item[0] != setting)
        families[tuple(item for item in cell.key.items() if item[0] not in names), variant].append(cell)
    return [family for family in families.values() if len(family) > 1]


def _group_by_axis(cells: Sequence[PublishedCell]) -> Iterator[tuple[str, list[PublishedCell]]]:
    """Yields those of the cells that differ in one growing setting alone, the least work first, with its name."""
    for name in _GROWING:
        for family in _group_by(cells, name):
            size = attrgetter(f"setting.{name}")
            if all(map(size, family)) and len({*map(size, family)}) == len(family):
                yield name, sorted(family, key=size)


def unreadable(cells: Sequence[PublishedCell]) -> Found:
    """Finds cells that are nearly a number: a blank or a second point within it."""
    for cell in cells:
        for figure in cell.row.figures:
            is_own = dict(cell.variant).items() <= dict(figure.variant).items()
            is_refused = figure.value is None and "is no number" in (figure.remark or "")
            if is_own and is_refused and re.fullmatch(r"[\d.,\s]+", figure.text):
                yield [cell], doubt("unreadable", f"“{figure.text}” below “{figure.heading}” is no number.")


def negative_time(cells: Sequence[PublishedCell]) -> Found:
    for cell in cells:
        for (quantity, part), figure in cell.figures.items():
            if (quantity in _TIMES or quantity == "peak_memory") and (value := cell.value(quantity, part)) < 0:
                sentence = f"{figure.heading} is {figure.text}: nothing takes less than nothing. It is a difference."
                yield [cell], fault("negative_time", sentence, value=value)


def wrong_unit(cells: Sequence[PublishedCell]) -> Found:
    """Finds a value a hundred times those beside it, or a hundredth of them, beyond what the work grows by."""
    groups: dict[object, list[tuple[PublishedCell, PublishedFigure, float]]] = defaultdict(list)
    for cell in cells:
        ways = tuple(getattr(cell.setting, name) for name in _WAYS)
        for (quantity, part), figure in cell.figures.items():
            if quantity in _TIMES or quantity in _PEAKS:
                groups[quantity, part, ways, find_machine(cell)].append((cell, figure, abs(figure.value or 0.0)))
    for found in (found for found in groups.values() if len(found) > 2):
        values, work = sorted(value for *_, value in found), sorted(_work(cell) for cell, *_ in found)
        for cell, figure, value in found:
            (least, most), (less, more), own = _ends_beside(values, value), _ends_beside(work, _work(cell)), _work(cell)
            grown = SLIP * max(own / more, less / own, 1.0)
            if value >= grown * most > 0 or 0 < value * grown <= least:
                beside = ", ".join(one.text for other, one, _ in found[:4] if other is not cell)
                sentence = f"{figure.heading} is {figure.text} beside {beside}: another unit, or a slip of the pen."
                yield [cell], doubt("wrong_unit", sentence, value=value, least=least, most=most)


def _ends_beside(ordered: Sequence[float], own: float) -> tuple[float, float]:
    """Returns the least and the largest of the other values."""
    return (ordered[1] if own == ordered[0] else ordered[0]), (ordered[-2] if own == ordered[-1] else ordered[-1])


def _work(cell: PublishedCell) -> float:
    """Returns a bound of how work grows with the stated numbers."""
    s = cell.setting
    return float((cell.length or 1) ** 2 * (s.batch or 1) * (s.layers or 1) * (s.d_model or s.d_head or 1) ** 2)


def duplicate_key(cells: Sequence[PublishedCell]) -> Found:
    """Finds one cell twice, with different figures."""
    for same in (same for same in _group_by(cells, None) if same[0].key):
        for name, figure in same[0].figures.items():
            texts = [cell.figures[name].text for cell in same if name in cell.figures]
            if len({*texts}) > 1 and name[0] != "calls":
                said = " and ".join(texts[:4])
                sentence = f"{same[0].words} stands in the table more than once, with {said} below “{figure.heading}”."
                yield same, doubt("duplicate_key", sentence, rows=len(same))
                break


def time_not_monotonic(cells: Sequence[PublishedCell]) -> Found:
    for axis, family in _group_by_axis(cells):
        said: set[UUID] = set()
        for quantity in _PASSES:
            timed = [cell for cell in family if cell.value(quantity) > 0 and cell.row.row_id not in said]
            for small, large in pairwise(timed):
                a, b = small.value(quantity), large.value(quantity)
                known = [cell.stds[quantity] for cell in (small, large) if quantity in cell.stds]
                allowed = max(LOWER * a, 2 * math.hypot(*known)) if len(known) == 2 else LOWER_UNKNOWN * a
                if a - b > allowed:
                    sentence = (
                        f"{small.words} takes {format_ms(a)} and {large.words} {format_ms(b)} "
                        f"({quantity.replace('_', ' + ')}): less work cannot take longer. One of the two was "
                        "disturbed, cold or is another cell."
                    )
                    said |= {small.row.row_id, large.row.row_id}
                    odd = max(large, small, key=lambda cell: _find_distance(cell, timed, quantity, axis))
                    yield [odd], doubt("time_not_monotonic", sentence, small_ms=a, large_ms=b)


def _find_distance(cell: PublishedCell, timed: Sequence[PublishedCell], quantity: Quantity, axis: str) -> float:
    """Returns how far a cell is from the line through the two others next to it, in logarithms."""

    def point(one: PublishedCell) -> tuple[float, float]:
        return math.log(getattr(one.setting, axis)), math.log(one.value(quantity))

    (x, y), rest = point(cell), [point(other) for other in timed if other is not cell]
    if len(rest) < 2:
        return 0.0
    (x1, y1), (x2, y2) = sorted(rest, key=lambda other: abs(other[0] - x))[:2]
    return abs(y - y1 - (y2 - y1) * (x - x1) / (x2 - x1))


def peak_carried_over(cells: Sequence[PublishedCell]) -> Found:
    """Finds the peak of a larger cell again, to the digit, in the next line, or one that is far beyond a larger cell's.
    The least peak of a family may repeat: what does not depend on the axis, such as the optimizer's state, may set
    it."""
    for _, family in _group_by_axis(cells):
        for quantity in _PEAKS:
            peaks = [cell for cell in family if (quantity, "") in cell.figures]
            least = min((cell.value(quantity) for cell in peaks), default=0.0)
            for cell, larger in pairwise(peaks):
                peak, beside = cell.value(quantity), larger.value(quantity)
                is_again = larger.row.line < cell.row.line and peak == beside and peak > 1.01 * least
                of = f"of {larger.words}, which has more to hold"
                for finding in judge_peak(peak, beside, of=of, is_again=is_again):
                    yield [cell], finding


def no_effect(cells: Sequence[PublishedCell]) -> Found:
    """Finds half precision with the bytes of float32, where they grow with the work. Constant bytes say nothing."""
    alike: dict[object, list[tuple[PublishedCell, Finding, float]]] = defaultdict(list)
    for family in _group_by(cells, "precision"):
        base = next((cell for cell in family if cell.setting.precision in ("fp32", None)), None)
        for cell, name in ((one, name) for one in family for name in one.figures if name[0] in _PEAKS):
            size, wide = cell.value(*name), base.value(*name) if base else 0.0
            if same := judge_bytes(cell.setting.precision or "", size, wide):
                alike[name].append((cell, same, size))
    for found in alike.values():
        sizes = [size for *_, size in found]
        if max(sizes) > (1 + 10 * SAME_BYTES) * min(sizes):
            yield [cell for cell, *_ in found], found[-1][1]


def sum_off(cells: Sequence[PublishedCell]) -> Found:
    """Finds a sum that is less than one of its parts, or that does not add up where the table's other rows do."""
    for total, names in _SUMS.items():
        rows = []
        for cell in cells:
            parts = [cell.figures[name, ""] for name in names if (name, "") in cell.figures]
            whole, values = cell.figures.get((total, "")), [part.value or 0.0 for part in parts]
            if whole and len(parts) > 1 and parts[0].quantity == "forward":
                exact = sum(map(_find_last_digit, (whole, *parts)))
                said = f"{whole.heading} is {whole.text}, and its parts are {' + '.join(part.text for part in parts)}"
                rows.append((cell, cell.value(total), sum(values), max(values), exact, said))
        adding = sum(abs(value - added) <= exact for _, value, added, _, exact, _ in rows)
        for cell, value, added, largest, exact, said in rows:
            off = abs(value - added) > max(exact, SUM_OFF * added) and adding > 1 and 2 * adding > len(rows)
            if off or value < largest - exact:
                sentence = f"{said} = {format_ms(added)}."
                yield [cell], doubt("sum_off", sentence, stated_ms=value, added_ms=added)


def ratio_off(cells: Sequence[PublishedCell]) -> Found:
    """Finds a stated speedup or ratio that no two times of its row have, each rounded or cut at its last digit."""
    by_row: dict[UUID, list[PublishedCell]] = defaultdict(list)
    for cell in cells:
        by_row[cell.row.row_id].append(cell)
    for own in by_row.values():
        # Times, how far their last digits leave them open, and their texts.
        known: dict[str, list[tuple[float, float, str]]] = {
            name: [(cell.value(name), _find_last_digit(one := cell.figures[name, ""]), one.text)
                   for cell in own if cell.value(name) > 0]
            for name in _PASSES
        }  # fmt: skip
        both = zip(known["forward"], known["backward"], strict=False)
        known["sum"] = [(a[0] + b[0], a[1] + b[1], f"{a[0] + b[0]:.4g}") for a, b in both]
        for figure in (one for one in own[0].row.figures if one.quantity in ("speedup", "ratio") and one.value):
            of = [known[part]] if (part := figure.variant.get("part")) in known else [*known.values()]
            if figure.quantity == "ratio" or max(map(len, of)) < 2:
                of = [[one for alike in of for one in alike]]
            stated, digit = figure.value or 0.0, _find_last_digit(figure)
            pairs = [pair for alike in of for pair in permutations(alike, 2)]
            least = [(a - x) / (b + y) - digit for (a, x, _), (b, y, _) in pairs]
            most = [(a + x) / (b - y) + digit if b > y else math.inf for (a, x, _), (b, y, _) in pairs]
            if pairs and not any(low <= stated <= high for low, high in zip(least, most, strict=True)):
                (a, _, dividend), (b, _, divisor) = min(pairs, key=lambda two: abs(two[0][0] / two[1][0] - stated))
                sentence = (
                    f"{figure.heading} is {figure.text}, and no two times of the row have that ratio; the nearest is "
                    f"{dividend} / {divisor} = {a / b:.3f}."
                )
                yield own, doubt("ratio_off", sentence, stated=stated)


@lru_cache(maxsize=1024)
def _find_gpu(words: str) -> str | None:
    """Returns the GPU whose data sheet bounds it: the fastest that the words can mean."""
    known = [name for name, model in _MODELS.items() if re.search(rf"\b{model}\b", words, re.IGNORECASE)]
    rates = {name: (hardware.peak_flops(name, "bf16") or 0.0, hardware.peak_bandwidth(name) or 0.0) for name in known}
    return max(rates, key=rates.__getitem__, default=None)


def find_machine(cell: PublishedCell) -> str | None:
    """Returns what a row, its table or its title says of the machine; None where they say nothing."""
    own = [text for name, text in cell.key.items() if cell.table.meanings.get(name) == "machine"]
    return own[0] if own else cell.table.machine or (cell.table.title if _find_gpu(cell.table.title) else None)


def count_flops(cell: PublishedCell) -> float | None:
    """Returns the least FLOPs of one forward pass: 2 for each weight in a product and token, and two products of
    attention under a causal mask. None where the size or the length is not stated."""
    s, batch, length = cell.setting, cell.setting.batch or 1, cell.length
    if not length:
        return None
    if cell.table.subject == "attention":
        width = s.d_head or s.d_model
        return 2.0 * batch * length**2 * width * (s.heads or 1) if width else None
    if s.d_model and s.layers:
        weights = s.layers * (4 * s.d_model**2 + 2 * s.d_model * (s.d_ff or 0))
        return batch * length * (2.0 * weights + 2.0 * s.layers * length * s.d_model)
    named = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MB])", s.name or "", re.IGNORECASE)
    count = s.parameters or (float(named[1]) * {"m": 1e6, "b": 1e9}[named[2].lower()] if named else 0)
    return 2.0 * IN_PRODUCTS * count * batch * length or None


def above_peak(cells: Sequence[PublishedCell]) -> Found:
    """Finds rates above the data sheet: TF32 called float32, times of which not all was timed, another unit."""
    for cell in cells:
        flops = (count_flops(cell) if cell.setting.device not in ("cpu", "mps") else None) or 0.0
        timed = {name: cell.value(name) for name in _PRODUCTS if cell.value(name) > 0}
        rate, name = max(((flops * _PRODUCTS[name] / ms * 1e3, name) for name, ms in timed.items()), default=(0.0, ""))
        gpu, precision = _find_gpu(find_machine(cell) or ""), cell.setting.precision or "bf16"
        sheet = hardware.peak_flops(gpu, precision) if gpu else None
        found = judge_rate(
            f"{name.replace('_', ' + ').capitalize()} is at least {format_quantity(rate, 'FLOP/s')},",
            rate,
            sheet or HIGHEST,
            of=f"the data sheet's {precision} of {gpu}" if sheet else "the fastest GPU",
            why="not all of it was timed, or the unit is another",
            tf32=hardware.peak_flops(gpu, "tf32") if gpu and precision == "fp32" else None,
        )
        yield from (([cell], finding) for finding in found)


def time_rules(cells: Sequence[PublishedCell]) -> Found:
    """Judges means, spreads and the ratio of both passes."""
    for cell in cells:
        means = {name: cell.value(name) for name in _PHASES if (name, "") in cell.figures}
        known = ((name, mean, cell.stds.get(name), cell.setting.steps) for name, mean in means.items())
        cold = islice(chain.from_iterable(starmap(judge_mean, known)), 1)
        many = "its first pass was counted, or the driver moved memory to the host"
        ratio = judge_passes(means.get("forward"), means.get("backward"), many=many)
        yield from (([cell], finding) for finding in (*ratio, *cold))


PUBLISHED_RULES: tuple[Callable[[Sequence[PublishedCell]], Found], ...] = (
    unreadable, negative_time, wrong_unit, peak_carried_over, duplicate_key, above_peak, time_rules,
    time_not_monotonic, no_effect, sum_off, ratio_off,
)  # fmt: skip
_EXPLAINING = frozenset({"negative_time", "wrong_unit", "duplicate_key", "impossible_ratio", "cold_step"})
#: What to do about each finding of a published row that a measured row does not have, or not so.
PUBLISHED_REMEDIES: Mapping[str, str] = {
    **REMEDIES,
    "cold_step": "Read the steady value in place of the mean, or ask for the median and each step's time.",
    "duplicate_key": "Ask what differed between the rows; until then use none of them.",
    "negative_time": "Use the two figures that it is the difference of.",
    "ratio_off": "Work the ratio out again from its two times.",
    "sum_off": "Use the parts, and ask how the sum was measured.",
    "tf32_as_fp32": "Read these rows as TF32, and the speedup of half precision over them as that over TF32.",
    "time_not_monotonic": "Use neither of the two rows.",
    "unreadable": "Correct the cell in the file, and import it again.",
    "wrong_unit": "Read the figure in the other unit, if the report bears it out.",
}


def count_published_grades(table: PublishedTable, findings: Sequence[PublishedFinding]) -> Counter[Grade | None]:
    """Returns how many rows of a table have each grade, None counting those without a result of which nothing is
    said."""
    found = {row.row_id: [one.finding for one in findings if row in one.rows] for row in table.rows}
    return Counter(grade(found[row.row_id]) if row.status == "ok" or found[row.row_id] else None for row in table.rows)
