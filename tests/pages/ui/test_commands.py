"""The commands that a page prints measure all cells that it draws, each once, and no others."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from streamlit.testing.v1 import AppTest

from pages.navigation import OPEN
from pages.ui import card
from runner.cli.main import app
from runner.experiments import kind_of
from runner.experiments.grid import Grid
from runner.plan.commands import sweep_commands
from runner.plan.presets import QUESTIONS
from runner.schema import SUMS, AttentionCell, Cell, MemoryCell, NumericsCell, ProfileCell, StepCell
from runner.sweep.frontier import make_questions
from tests.command import ROOT, planned, tiny
from tests.synthetic import roofline_rows

SHAPE: dict[str, Any] = {"d_model": 8, "d_ff": 16, "layers": 1, "heads": 2, "vocabulary": 32}


def planned_keys(cells: Sequence[Cell]) -> list[str]:
    """Returns the keys of the cells that the commands for `cells` would measure."""
    return sorted(key for command in sweep_commands(cells) for key in keys_of(command))


@pytest.mark.parametrize(
    "cell",
    [
        tiny(),
        tiny(d_model=96, heads=6, vocabulary=500),
        tiny(mode="inference", precision="fp16", attention="sdpa-math", backend="compiled-max-autotune"),
        tiny(precision="bf16", weights_dtype="bf16", optimizer="fused", checkpoint_blocks=2, batch=3),
        tiny(warmup_steps=0, min_steps=20, max_steps=4000, max_seconds=0.125),
        tiny(max_seconds=0.0, max_steps=2_000_000),
        AttentionCell(
            implementation="naive", seq_len=96, d_head=16, precision="bf16", backend="compiled", causal=False
        ),
        AttentionCell(
            implementation="sdpa", seq_len=96, d_head=16, precision="fp32", batch=2, min_steps=3, max_steps=7
        ),
        MemoryCell(**SHAPE, context=16, mode="forward", precision="bf16", checkpoint_blocks=1),
        MemoryCell(**SHAPE, context=16, mode="train", precision="fp32", timeline=True),
    ],
)
def test_the_command_for_one_cell_plans_that_cell(cell: Cell) -> None:
    assert planned_keys([cell]) == [cell.key]


def test_the_command_for_a_product_plans_the_product() -> None:
    grid = Grid.of(
        StepCell,
        sizes=("toy-64", "small"),
        shape=("d_model=96,d_ff=160,layers=3,heads=6", "d_model=8,d_ff=8,layers=1,heads=2"),
        contexts=(16, 128),
        modes=("inference", "train"),
        precisions=("fp32", "bf16"),
        warmup=(0, 5),
    )
    cells: list[Any] = list(grid.cells())
    assert len(cells) == 4 * 2 * 2 * 2 * 2
    assert planned_keys(cells) == sorted(cell.key for cell in cells)


def keys_of(command: str, *, device: str = "cpu") -> list[str]:
    """Returns the keys that a sweep's command plans, as `--dry-run` does."""
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "runner", "sweep"]
    experiments = () if "--experiment" in words else [word for name in QUESTIONS for word in ("--experiment", name)]
    cells = planned(*experiments, *words[4:], device=device, memory=2**40)
    for item in cells:
        kind_of(item.cell).check(item.cell)
    return [item.cell.key for item in cells]


def test_cells_that_are_not_a_product_take_several_commands() -> None:
    """Weights in bf16 are possible only with precision bf16, so no product of the axes contains both cells and nothing
    else."""
    ways: tuple[dict[str, Any], ...] = (
        {}, {"precision": "bf16"}, {"precision": "bf16", "weights_dtype": "bf16"}, {"optimizer": "fused"},
        {"precision": "bf16", "backend": "compiled", "compile_cache": "empty"}, {"context": 32},
    )  # fmt: skip
    cells = [tiny(**way) for way in ways]
    assert planned_keys(cells) == sorted(cell.key for cell in cells)
    assert len(sweep_commands(cells)) < len(cells), "cells that differ in one axis alone take one command"


def test_limits_and_timelines_belong_to_a_command_and_not_to_a_product() -> None:
    cells: list[Cell] = [tiny(), tiny(max_seconds=2.0), tiny(min_steps=1), tiny(max_steps=9, context=32)]
    cells += [MemoryCell(**SHAPE, context=16, mode="train", precision="fp32", timeline=on) for on in (True, False)]
    cells += [NumericsCell(**SHAPE, context=16, precision="bf16"), *SUMS.values()]
    cells += [ProfileCell(**SHAPE, context=16, mode="train", precision="bf16", backend="compiled")]
    assert planned_keys([*cells, cells[0]]) == sorted(cell.key for cell in cells)


def test_eager_and_compiled_without_a_cache_take_one_command() -> None:
    cells = [tiny(), tiny(backend="compiled", compile_cache="empty")]
    assert len(sweep_commands(cells)) == 1
    assert planned_keys(cells) == sorted(cell.key for cell in cells)


def test_commands_leave_out_defaults() -> None:
    (command,) = sweep_commands([tiny(warmup_steps=5, batch=4)])
    assert command == (
        "python -m runner sweep --experiment benchmark --fresh --sizes toy-64 --contexts 16 --modes train "
        "--precisions fp32 --steps 3 --max-steps 3 --max-seconds 10"
    )
    assert "--fresh" not in sweep_commands([tiny()], fresh=False)[0]


def test_a_cell_with_an_incomplete_key_has_no_command() -> None:
    unstated: Any = None
    assert sweep_commands([replace(tiny(), batch=unstated)]) == []


# ------------------------------------------------------------------------------------------------ the commands of pages


def check_commands(cells: Iterable[Cell]) -> None:
    """Asserts that the commands of a card plan the cells that it draws, on any device."""
    drawn: list[Any] = [item.asked()(**{name: getattr(item, name) for name in item.names()}) for item in cells]
    for device in ("cpu", "cuda"):
        keys = [key for command in sweep_commands(drawn) for key in keys_of(command, device=device)]
        assert sorted(keys) == sorted({cell.key for cell in drawn})


def test_the_commands_of_roofline_plan_exactly_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cards have weights in bf16 and also precision fp32. test_evidence tests the commands of other pages."""
    monkeypatch.setenv("STEPSCOPE_DB", str(roofline_rows.store(tmp_path / "results.duckdb")))
    page = AppTest.from_file(str(ROOT / "pages/main.py"), default_timeout=60)
    page.session_state[OPEN] = "roofline"
    page.session_state["changes-share"] = True
    with patch.object(card, "_chart", wraps=card._chart) as drawn:
        page.run()
    cards = {call.args[0].key: call.args[0].cells for call in drawn.call_args_list}
    for cells in cards.values():
        check_commands(cells)
    assert len({cell.weights_dtype for cell in cards["changes"]}) == 2
    shown = [node.value for node in page.code if node.value.startswith("python -m runner sweep")]
    assert shown == ["\n\n".join(sweep_commands(cards["changes"]))]


#: Commands that are written in the pages' source, whatever rows there are.
WRITTEN = sorted({
    found.replace("{}", "context").strip()
    for path in (ROOT / "pages").rglob("*.py")
    for found in re.findall(r"""python -m runner (?:sweep|frontier)(?:[^`"'{]|{})*(?=[`"'])""", path.read_text())
})  # fmt: skip


@pytest.mark.parametrize("command", WRITTEN)
def test_a_command_written_in_a_page_runs(command: str) -> None:
    """It is planned as far as possible without the machine."""
    if command.startswith("python -m runner sweep"):
        assert all(keys_of(command, device=device) for device in ("cpu", "cuda"))
        return
    with patch("runner.cli.main.explore", side_effect=_Stopped) as stopped, pytest.raises(_Stopped):
        app(shlex.split(command)[3:], standalone_mode=False)
    assert make_questions(stopped.call_args.args[0], limit_bytes=1)


class _Stopped(Exception):
    """Raised to stop the command before it measures."""
