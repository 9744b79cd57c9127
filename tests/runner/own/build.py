"""A user's own models for tests: their files and their cells."""

from collections.abc import Mapping
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
TINY = "intermediate_size=48,num_hidden_layers=2,num_attention_heads=2,num_key_value_heads=1,vocab_size=64"
LLAMA = f"hf:{HERE}/llama.json,hidden_size=32,{TINY},head_dim=16"
MIXTRAL = f"hf:{HERE}/mixtral.json,hidden_size=32,{TINY}"


def own_file(folder: Path, body: str, *, name: str = "mine.py") -> str:
    """Writes a file with a function `build`, and returns the value for `--model`."""
    head = "import torch\nfrom torch import nn\nfrom torch.nn import functional\n\n"
    path = folder / name
    path.write_text(head + dedent(body))
    return f"{path}:build"


def our_model(shape: Mapping[str, int]) -> str:
    """Returns our Transformer as an own model: from `build`, with our own loss."""
    return f"""
from runner.models.transformer import Transformer
from runner.schema import StepCell

def build(want):
    weights = {{torch.float32: "fp32", torch.bfloat16: "bf16"}}[want.dtype]
    cell = StepCell(**{shape}, batch=want.batch, context=want.context, mode="train", precision="fp32",
        weights_dtype=weights, attention=want.attention)
    model = Transformer(cell, device=want.device)
    tokens = torch.randint({shape["vocabulary"]}, (want.batch, want.context + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    return model, inputs, lambda logits: functional.cross_entropy(logits.flatten(0, 1), targets)
"""


def own_step(spec: str, **asked: Any) -> StepCell:
    """Returns the cell of a training step of an own model, in fp32, with two samples of 16 tokens."""
    return StepCell(**_fields(spec, asked), min_steps=3, max_steps=3, warmup_steps=1)


def own_memory(spec: str, **asked: Any) -> MemoryCell:
    """Returns the cell of that step's memory."""
    return MemoryCell(**_fields(spec, asked))


def _fields(spec: str, asked: dict[str, Any]) -> dict[str, Any]:
    usual = {"context": 16, "batch": 2, "mode": "train", "precision": "fp32", "attention": "sdpa"}
    return {**dict.fromkeys(SHAPE), **usual, "model": spec, "model_key": load(parse_spec(spec)).key, **asked}
