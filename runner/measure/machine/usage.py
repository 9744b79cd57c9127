"""What the operating system did for this process so far: pages handed out, and times that it was off its core.

    before = read_usage(); ...; usage_per_step(before, read_usage(), steps=10)

Page faults are minor and major ones, context switches voluntary and involuntary ones, of all threads together
(getrusage(2), RUSAGE_SELF). Limits: children are not counted, and Windows has no such call.
"""

import sys
from collections.abc import Mapping

if sys.platform != "win32":
    import resource


def read_usage() -> Mapping[str, int]:
    """Returns the counts since this process began, by column of the row; nothing on Windows."""
    if sys.platform == "win32":
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "page_faults": usage.ru_minflt + usage.ru_majflt,
        "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
    }


def usage_per_step(before: Mapping[str, int], after: Mapping[str, int], *, steps: int) -> dict[str, float]:
    """Returns how much each count grew, per step."""
    return {name: (count - before[name]) / steps for name, count in after.items()}
