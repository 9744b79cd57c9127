"""Which pages `make test` visits, where every page goes the same way; `make soak` visits all.

@pytest.mark.parametrize("address", some(PAGES))
"""

from collections.abc import Iterable
from typing import Any

import pytest

#: Of so many pages, one is visited in `make test`.
EVERY = 4


def some(addresses: Iterable[str]) -> list[Any]:
    """Returns the addresses as parameters, of which all but the first of every four are left to soak."""
    return [
        pytest.param(address, marks=[pytest.mark.soak] if place % EVERY else [])
        for place, address in enumerate(addresses)
    ]
