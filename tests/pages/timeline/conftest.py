"""A results file with a timeline that can be computed by hand, for the queries and the page.

The timeline of four blocks (`by_hand`) is, in MiB over µs: weights 8 from 0 on; an activation 16 in 100–700, another 4
in 200–600, a temporary 2 in 300–400. So the total is 8, 24, 28, 30 (the peak, at 300), 28, 24 at 600, and 8 at 700.
"""

from pathlib import Path

import pytest

from runner.schema import Category, TimelineRow
from tests.synthetic import rows, timelines
from tests.synthetic.timelines import HOSTILE, KIB, MIB, Step

BY_HAND, TRAIN, INFERENCE = "by hand", "toy-256 · 128 · train · fp32", "toy-256 · 128 · inference · fp32"


def by_hand() -> Step:
    """Returns the timeline of four blocks; one more of 1 KiB exists from 500 to 510."""
    made = Step(mode="train")
    made.allocate(8 * MIB, "parameter", module="blocks.0.weight")
    made.begin("forward")
    births: dict[int, tuple[int, Category, str | None]] = {
        100: (16 * MIB, "activation", "blocks.0.attn"), 200: (4 * MIB, "activation", "blocks.0.ffn"),
        300: (2 * MIB, "temporary", None), 500: (KIB, "temporary", HOSTILE),
    }  # fmt: skip
    deaths = {400: 3, 510: 4, 600: 2, 700: 1}
    for made.now_us in sorted(births | deaths):
        if made.now_us == 400:
            made.begin("backward")
        if made.now_us in births:
            size, category, module = births[made.now_us]
            made.allocate(size, category, module=module)
        else:
            made.free(deaths[made.now_us])
    made.now_us = 1000
    return made


@pytest.fixture(scope="module")
def written(module_db: Path) -> tuple[Path, TimelineRow]:
    of = rows.run()
    timelines.write(module_db, of, timelines.step(mode="inference"))
    timelines.write(module_db, of, timelines.step(mode="train"))
    return module_db, timelines.write(module_db, of, by_hand(), title=BY_HAND)
