"""What limits each step, as shares of its time, and what share of the peak each step reaches.

draw_shares(frame, profiles, limits)
draw_used(frame, cells, limits)
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pages.roofline.answers import place_of
from pages.roofline.limits import DeviceLimits
from pages.roofline.share_figures import BOUNDS, BoundBar, UsedShare, bound_bars, utilization_dots
from pages.ui.card import Card, draw
from pages.ui.chosen import rows_of
from pages.ui.evidence import of_cells, of_details, of_rows, say
from pages.ui.frame import Frame
from pages.ui.marks import key_columns
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from pages.ui.states import suggest
from runner.analysis.roofline import Utilization, shares, utilization
from runner.results import Profiled, StepResult
from runner.schema import Precision
from runner.store.queries.roofline import load_profiles

#: More bars than these are not one picture any more.
MAX_SHOWN = 24
#: The sentence leaves out steps with a larger unknown share.
MAX_UNKNOWN = 0.1


def profiles_of(frame: Frame) -> list[Profiled]:
    """Returns the profiled steps that the sidebar's filters leave."""
    loaded = frame.ask(load_profiles, rows_of(frame))
    mode = frame.selection.mode
    return [one for one in loaded if mode in (None, one.row.mode) and frame.selection.holds(one.row.step())]


def draw_shares(frame: Frame, profiles: Sequence[Profiled], limits: DeviceLimits) -> None:
    draw_heading(frame, "What limits a step?", anchor="bounds")
    if not profiles:
        suggest(
            f"No profiled step {frame.among} has a result, so what limits it is not known. This profiles them:",
            frame.sweep("--experiment kernels"),
        )
        return
    bars = []
    for profile in profiles:
        roof = limits.roof(profile.row.precision)
        split = shares(profile.row, profile.kernels, ridge=roof.ridge if roof else None)
        place = place_of(frame, profile.row.step())
        bars.append(
            BoundBar(
                place=place,
                cell_id=str(profile.row.cell_id),
                shares={str(bound): share for bound, share in split.items()},
            )
        )
    words = describe_bounds(bars)
    listed = of_details(frame, "kinds of work", [profile.row.cell_id for profile in profiles])
    say(frame, words, listed, of_rows(frame, [profile.row for profile in profiles]), key="bounds")
    cut = f" The first {MAX_SHOWN} of {len(bars)} are drawn." if len(bars) > MAX_SHOWN else ""
    card = Card(
        key="bounds",
        title="What limits the time of a step",
        note="A kernel is compute-bound where its operations per byte reach the ridge of its precision's roof, and "
        "memory-bound below it. Where they are not known, kernels that do a few operations for each number "
        f"count as memory-bound, others as unknown. {_describe_host(profiles)}{cut}",
        alt=f"Bars of shares. {words}",
        rows=[
            {**key_columns(frame, profile.row.step()), **_label_shares(bar.shares)}
            for profile, bar in zip(profiles, bars, strict=True)
        ],
        cells=[profile.row for profile in profiles],
    )
    draw(frame, card, lambda: bound_bars(_sort(bars[:MAX_SHOWN])))


def _sort(bars: Sequence[BoundBar]) -> list[BoundBar]:
    """Returns steps of one size and context together, the plainest precision first."""
    groups, precisions = [bar.place.partition("<br>")[0] for bar in bars], get_args(Precision)

    def order(bar: BoundBar) -> tuple[int, int, str]:
        group, _, rest = bar.place.partition("<br>")
        return groups.index(group), precisions.index(rest.split(" · ")[0]), rest

    return sorted(bars, key=order)


def describe_bounds(bars: Sequence[BoundBar]) -> str:
    """Says the largest share of the smallest and of the largest step for which it is known."""
    known = [bar for bar in bars if bar.shares.get("unknown", 0.0) <= MAX_UNKNOWN] or bars
    ends = [known[0], known[-1]] if len(known) > 1 else [known[0]]
    parts = []
    for bar in ends:
        bound, share = max(bar.shares.items(), key=lambda item: item[1])
        words = {"launch": "waits for the host", "unknown": "has no known limit"}.get(bound, f"is {BOUNDS[bound][0]}")
        parts.append(f"**{bar.place.replace('<br>', ' · ')}** {words} for {share:.0%} of its time")
    return "; ".join(parts) + "."


def _describe_host(profiles: Sequence[Profiled]) -> str:
    if all(profile.row.host_bound_share is None for profile in profiles):
        return "On a CPU nothing waits for a host; what lies between operators is unknown."
    return "While no kernel runs, the device waits for the host to launch one."


def _label_shares(split: Mapping[str, float]) -> dict[str, float]:
    return {words: split.get(bound, 0.0) for bound, (words, _) in BOUNDS.items()}


def draw_used(frame: Frame, cells: Sequence[StepResult], limits: DeviceLimits) -> None:
    """Draws MFU of every step against the measured peak and the datasheet's; the table has all conventions."""
    known = [cell for cell in cells if limits.roof(cell.cell.precision)]
    if not known:
        return
    longest = sorted(known, key=lambda cell: -cell.times["step"].median_ms)[:MAX_SHOWN]
    drawn = [cell for cell in known if cell in longest]  # in one order, whatever was measured: size, context, precision
    shares = [
        UsedShare(
            place=place_of(frame, cell.cell),
            entity=cell.cell.precision,
            cell_id=str(cell.cell_id),
            **{name: used.mfu if used else None for name, used in _compute_utilization(cell, limits).items()},
        )
        for cell in drawn
    ]
    words = describe_utilization(shares)
    draw_heading(frame, "How much of the peak is used?", anchor="utilization")
    cut = (
        f" The {MAX_SHOWN} longest of {len(known)} steps are drawn; all are in the table."
        if len(known) > MAX_SHOWN
        else ""
    )
    card = Card(
        key="utilization",
        folded=True,
        title="Model FLOPs utilization",
        answer=words,
        evidence=[of_cells(frame, [drawn[at] for at, share in enumerate(shares) if _choose_share(share) is not None])],
        note="MFU counts the model's matrix products, the square of attention whole and nothing computed twice, as "
        "`mfu` of the file does. The table adds causal MFU, which counts the half of that square that a causal "
        f"mask leaves, and HFU, which counts what checkpointing computes again.{cut}",
        alt=f"Share of the peak that every step reaches. {words}",
        rows=[_make_row(frame, cell, limits) for cell in known],
        cells=[cell.cell for cell in known],
    )
    draw(frame, card, lambda: utilization_dots(shares), on_click=pin)


def describe_utilization(shares: Sequence[UsedShare]) -> str:
    """Says which step reaches most of its peak, and which least; of equals the one with the shortest name."""
    known = [share for share in shares if _choose_share(share) is not None]
    known.sort(key=lambda share: (_choose_share(share) or 0.0, -len(share.place), share.place))
    if not known:
        return ""
    parts = [f"**{share.place.replace('<br>', ' · ')}** reaches **{_choose_share(share):.0%}**" for share in known]
    least = f"; {parts[0]}, the least" if len(known) > 1 else ""
    return f"{parts[-1]} of the peak of its precision{', the most here' if len(known) > 1 else ''}{least}."


def _choose_share(share: UsedShare) -> float | None:
    """Returns the share of the measured peak, or of the datasheet's where none was measured."""
    return share.measured if share.measured is not None else share.promised


def _compute_utilization(cell: StepResult, limits: DeviceLimits) -> dict[str, Utilization | None]:
    """Returns the utilization by source; None where the peak is not known."""
    precision, step_ms = cell.cell.precision, cell.times["step"].median_ms
    roofs = {"measured": limits.measured(precision), "promised": limits.promised(precision)}
    return {
        source: utilization(cell.cell, step_ms=step_ms, peak_flops_per_s=roof.flops_per_s) if roof else None
        for source, roof in roofs.items()
    }


def _make_row(frame: Frame, cell: StepResult, limits: DeviceLimits) -> dict[str, Any]:
    row = key_columns(frame, cell.cell)
    for source, used in _compute_utilization(cell, limits).items():
        of = "of measured" if source == "measured" else "of datasheet"
        row |= {f"{name} {of}": getattr(used, key) if used else None
                for name, key in (("MFU", "mfu"), ("Causal MFU", "causal_mfu"), ("HFU", "hfu"))}  # fmt: skip
    return row
