"""Which of many cases that go the same way `make test` runs; `make soak` runs all of them.

@pytest.mark.parametrize("address", some(PAGES))
"""

from collections.abc import Iterable
from typing import Any

import pytest

#: Of so many cases, one is in `make test`: a prime, so that all values of several parameters have their turn.
EVERY = 5


def some(cases: Iterable[Any]) -> list[Any]:
    """Returns the cases as parameters, of which all but the first of every five are left to soak."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.soak] if place % EVERY else [])
        for place, case in enumerate(cases)
    ]
