"""The presets: named plans. Each experiment declares its own grids by preset.

    python -m runner list presets

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runner.experiments import EXPERIMENTS
from runner.experiments.grid import Grid, Variants


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named plan. `fitting` leaves out cells that are predicted not to fit the device's memory."""

    name: str
    doc: str
    fitting: bool = False

    @property
    def grids(self) -> Mapping[str, tuple[Grid | Variants, ...]]:
        """The preset's grids by experiment."""
        return {experiment.name: experiment.grids.get(self.name, ()) for experiment in EXPERIMENTS}


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="laptop",
            doc="Three toy shapes, fp32 and bf16, eager; the largest also compiled block by block. A few minutes.",
        ),
        Preset(
            name="standard",
            doc="Every size that fits the GPU, fp32, tf32 and bf16, eager and compiled. About half an hour.",
            fitting=True,
        ),
        Preset(
            name="cs336-2025",
            doc="Edition 2025 of the assignment: its sizes at contexts 128, 256, 512 and 1024; "
            "5 warm-up and 10 measured steps.",
        ),
        Preset(name="cs336-2026", doc="Edition 2026: its sizes at context 512, the optimizer step timed too."),
    )
}
#: The question of each experiment.
QUESTIONS: Mapping[str, str] = {experiment.name: experiment.question for experiment in EXPERIMENTS}


def preset_for(device: str) -> str:
    """Returns the preset of a sweep that names none: `standard` on CUDA, `laptop` elsewhere."""
    return "standard" if device == "cuda" else "laptop"
