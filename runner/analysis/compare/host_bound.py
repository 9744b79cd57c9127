"""Which pairs of a comparison are bound by the host, and how do their device times compare?

    found = [HostShare(bounds=(pair.base.bound, pair.other.bound), device=device_ratio(pair)) for pair in pairs]
    print(describe_shares(found))      # 2 of the 6 pairs are bound by the host on one side or both: by device time …

A host-bound time does not show how fast the device is: the ratio of two such times compares the hosts.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from runner.analysis.statistics import Ratio
from runner.formats import format_number
from runner.schema import Bound


@dataclass(frozen=True, kw_only=True)
class HostShare:
    """What bounds the two sides of a pair, and the ratio of their device times, None where one is not known."""

    bounds: tuple[Bound | None, Bound | None]
    device: Ratio | None

    @property
    def sides(self) -> int:
        """How many of the two sides the host bounds."""
        return self.bounds.count("host")


def describe_share(share: HostShare) -> str:
    """Returns which sides of one pair are host-bound, for a tooltip; empty if neither is."""
    if not share.sides:
        return ""
    where = "both sides" if share.sides == 2 else "one side"
    known = f"{format_number(share.device.ratio)}×" if share.device else "not known"
    return f"bound by the host on {where}; by device time: {known}"


def describe_shares(shares: Sequence[HostShare]) -> str:
    """Returns how many pairs have a host-bound side, and how their device times compare; empty if none has."""
    bound = [share for share in shares if share.sides]
    if not bound:
        return ""
    known = [share.device for share in bound if share.device]
    if len(shares) == 1:
        start = f"The pair is bound by the host on {'both sides' if bound[0].sides == 2 else 'one side'}"
    else:
        start = f"{len(bound):,} of the {len(shares):,} pairs {'is' if len(bound) == 1 else 'are'} bound by the host"
        start += " on one side or both"
    if not known:
        return f"{start}; what the device needs is not known."
    mean = math.exp(statistics.fmean(math.log(found.ratio) for found in known))
    return f"{start}: by device time the ratio is {format_number(mean)}×{_describe_spread(known)}."


def _describe_spread(ratios: Sequence[Ratio]) -> str:
    """Returns the range of several ratios or, of a single one, its interval where that is known."""
    if len(ratios) > 1:
        least, most = (pick(found.ratio for found in ratios) for pick in (min, max))
        return f" (geometric mean of {len(ratios)}, {format_number(least)}× to {format_number(most)}×)"
    (one,) = ratios
    if one.low is None or one.high is None:
        return ""
    return f" (95% interval {format_number(one.low)}–{format_number(one.high)}×)"
