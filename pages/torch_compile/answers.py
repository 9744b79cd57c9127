"""The sentences of the page torch.compile."""

import math
from collections.abc import Sequence
from statistics import geometric_mean

from pages.figures.frame import format_error
from pages.torch_compile.figures import format_steps
from pages.torch_compile.speedups import CompileSpeedup
from pages.ui.answers import describe_speedup, remarks
from pages.ui.frame import Frame
from runner.analysis.compare.break_even import PaidAfter
from runner.formats import at_tokens, format_number


def name_of(frame: Frame, item: CompileSpeedup) -> str:
    """Returns `small at 512 tokens, bf16`."""
    cell = item.step.named.cell
    return f"{frame.size_of(cell)}{at_tokens(cell.context)}, {cell.precision}"


def answer(frame: Frame, items: Sequence[CompileSpeedup]) -> str:
    """Says the speedup of the best backend, and when the cell that gains most pays off; `items` is not
    empty. CUDA graphs, which compile nothing, count where nothing else does."""
    compiled, best = _select_compiled(items), find_best_backend(items)
    ratios = [item.step for item in compiled if item.variant == best]
    slower = sum(item.step.outcome == "worse" for item in compiled)
    most = max(compiled, key=lambda item: item.step.ratio)
    parts = [describe_speedup(ratios, start=f"**{best}** makes the step", end="than eager")]
    text = remarks(ratios).strip()
    parts += [text] if text else []
    if slower:
        cells = "cells" if compiled is items else "compiled cells"
        verb = "is" if slower == 1 else "are"
        parts.append(f"{slower} of all {len(compiled)} {cells} {verb} significantly slower than eager.")
    return " ".join([*parts, paid_answer(frame, most)])


def _select_compiled(items: Sequence[CompileSpeedup]) -> Sequence[CompileSpeedup]:
    """Returns the items that compile anything, or all where none does."""
    return [item for item in items if item.cost is not None] or items


def find_best_backend(items: Sequence[CompileSpeedup]) -> str:
    """Returns the backend with the largest mean speedup; `items` is not empty."""
    compiled = _select_compiled(items)
    ratios = {name: [item.step.ratio for item in compiled if item.variant == name]
              for name in dict.fromkeys(item.variant for item in compiled)}  # fmt: skip
    return max(ratios, key=lambda name: geometric_mean(ratios[name]))


def paid_answer(frame: Frame, item: CompileSpeedup) -> str:
    """Says after how many steps one compiled cell pays off."""
    known = item.costs()
    if not known:
        return ""
    start = f"{name_of(frame, item)}, {item.variant}: compiling takes "
    costs = {
        "cold": "{} s with an empty cache",
        "warm": "{} s with a warm one",
        "as found": "{} s with the cache as it was found",
    }
    text = " and ".join(costs[kind].format(format_number(seconds)) for kind, (seconds, _) in known.items())
    first = next(iter(known.values()))[1]
    if first.is_never:
        return f"{start}{text}, and **never pays off**: the compiled step is no faster."
    after = " and ".join(f"**{format_paid(paid)}**" for _, paid in known.values())
    word = " respectively" if len(known) > 1 else ""
    if first.is_undecided:
        why = (
            "no saving was measured"
            if math.isinf(first.steps)
            else f"after {after} steps{word} by the medians, or never"
        )
        return f"{start}{text}; **whether it pays off is undecided**: {why}."
    return f"{start}{text}; it pays off after {after} steps{word}."


def format_paid(paid: PaidAfter) -> str:
    """Formats steps: `941`, or `never`."""
    return "never" if math.isinf(paid.steps) else format_steps(paid.steps)


def when_answer(items: Sequence[CompileSpeedup]) -> str:
    """Says how many compiled cells pay off."""
    paid = [next(iter(item.costs().values()))[1] for item in items]
    never, undecided = sum(found.is_never for found in paid), sum(found.is_undecided for found in paid)
    if not never and not undecided:
        return "Every compiled cell here pays off."
    parts = [f"{len(paid) - never - undecided} of {len(paid)} compiled cells pay off"]
    parts += [f"{never} never"] if never else []
    parts += [f"{undecided} undecided"] if undecided else []
    return f"{', '.join(parts)}."


def graph_answer(items: Sequence[CompileSpeedup]) -> str:
    """Says whether the compiler took each model whole, compiled it once, and kept its results."""
    costs = [(item, item.cost) for item in items if item.cost is not None]
    known = [(item, cost) for item, cost in costs if cost.graph_breaks is not None]
    broken = [cost for _, cost in known if cost.graph_breaks]
    again = [cost for _, cost in costs if cost.recompiles]
    gave_up = [cost for _, cost in costs if cost.fallback]
    parts = []
    if known:
        breaks = sum(cost.graph_breaks or 0 for cost in broken)
        many = "no graph break" if not breaks else f"{breaks} graph {'break' if breaks == 1 else 'breaks'}"
        some = f"{len(broken)} of " if broken and len(known) > 1 else ""
        parts.append(f"{many} in {some}{_those(len(known), 'count')} them")
    parts.append(f"{len(again)} compiled again inside the measured steps" if again else "none was compiled again")
    if gave_up:
        parts.append(f"in {len(gave_up)} the compiler gave up and ran a part eagerly")
    errors = [cost.compiled_gradient_error for _, cost in costs if cost.compiled_gradient_error is not None]
    if errors:
        within = f"within {format_error(max(errors))} of eager's"
        parts.append(f"each parameter's gradient is {within} in {_those(len(errors), 'compare')} them")
    cells = "the one compiled cell" if len(costs) == 1 else f"{len(costs)} compiled cells"
    return f"Of {cells}: {'; '.join(parts)}."


def _those(count: int, verb: str) -> str:
    """Returns `the one that counts` or `the 3 that count`."""
    return f"the one that {verb}s" if count == 1 else f"the {count} that {verb}"
