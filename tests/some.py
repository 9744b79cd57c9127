"""Which of many cases that go the same way `make test` runs; `make soak` runs all of them.

@pytest.mark.parametrize("address", some(PAGES))
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

#: Of so many cases, one is in `make test`: a prime, so that all values of several parameters have their turn.
EVERY = 5


def some(cases: Iterable[Any], keep: Collection[Any] = ()) -> list[Any]:
    """Returns the cases as parameters, of which all but those of `keep`, or else but the first of every five, are left
    to soak."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if (case in keep if keep else place % EVERY == 0) else [pytest.mark.soak],
        )
        for place, case in enumerate(cases)
    ]
