"""Measures with one thread: several spin while they wait, which here only slows down other processes."""

from collections.abc import Iterator

import pytest
import torch

from runner.engines.local import LocalEngine


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine()
