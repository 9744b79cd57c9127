"""A user's own models for tests: their files and their cells."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from runner.models.given import load
from runner.schema import MemoryCell, StepCell
from runner.schema.axes import SHAPE
from runner.schema.own import parse_spec

HERE = Path(__file__).parents[2] / "own"
NANO, MLP = f"{HERE}/nano.py:build", f"{HERE}/mlp.py:build"
#: A Llama and a Mixtral of a few thousand parameters.
TINY = (
    "hidden_size=32,intermediate_size=48,num_hidden_layers=2,num_attention_heads=2,num_key_value_heads=1,vocab_size=64"
)
LLAMA, MIXTRAL = f"hf:{HERE}/llama.json,{TINY},head_dim=16", f"hf:{HERE}/mixtral.json,{TINY}"


def own_file(folder: Path, body: str, *, name: str = "mine.py") -> str:
    """Writes a file with a function `build`, and returns the value for `--model`."""
    head = "import torch\nfrom torch import nn\nfrom torch.nn import functional\n\n"
    path = folder / name
    path.write_text(head + dedent(body))
    return f"{path}:build"


def own_step(spec: str, **asked: Any) -> StepCell:
    """Returns the cell of a training step of an own model, in fp32, with two samples of 16 tokens."""
    return StepCell(**_fields(spec, asked), min_steps=3, max_steps=3, warmup_steps=1)


def own_memory(spec: str, **asked: Any) -> MemoryCell:
    """Returns the cell of that step's memory."""
    return MemoryCell(**_fields(spec, asked))


def _fields(spec: str, asked: dict[str, Any]) -> dict[str, Any]:
    usual = {"context": 16, "batch": 2, "mode": "train", "precision": "fp32", "attention": "sdpa"}
    key = load(parse_spec(spec)).key
    return {**dict.fromkeys(SHAPE), **usual, "model": spec, "model_key": key, **asked}
