"""A module that a fork server imports: in its children, describing the machine fails as CUDA does after a fork."""

from typing import NoReturn

from runner.engines import worker


def refuse(device: str) -> NoReturn:
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")


worker.describe = refuse
