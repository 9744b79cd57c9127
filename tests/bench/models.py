"""Is our model fast? Compares its training step with two common implementations of the same shape.

    python -m tests.bench.models

Compares it with a nanoGPT-style model (LayerNorm, learned positions, one product for queries, keys and values, GELU)
and with the Transformers library's Llama, of the same width, depth, heads and vocabulary. All three get the same
settings (fused attention, torch.compile, bf16 autocast, fused AdamW) and the same loop, loss and tokens. Their matrix
products cost the same FLOPs, as counted and checked with PyTorch: a GELU network with two matrices is one and a half
times as wide as a gated one with three. The models are measured alternately, and the order is reversed each time. On
CUDA they are measured twice: once waiting for every step, and once with several steps in a row and a wait at the end,
as a training loop runs, so that the host's part of a step delays nothing. The C library keeps freed memory
(`ALLOCATOR`): otherwise it returns memory to the system and takes it again during other models' steps, which can make a
step on a CPU a fifth longer.
Limits: one shape on a CPU and three on CUDA, all with the compiler's CUDA graphs, because without them the host limits
the speed. Without the Transformers library, Llama is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from runner.analysis.statistics import summarize
from runner.engines.engine import ENVIRONMENT
from runner.models.transformer import Transformer
from runner.schema import StepCell
from runner.schema.sizes import SIZES
from tests.bench.result import Result

WARMUP, ROUNDS = 5, 40
#: Number of steps in a row -> how often a model is measured in a round.
TURNS = {"cpu": {1: 4}, "cuda": {1: 4, 10: 1}}
#: Settings of glibc: it returns nothing before 16 GiB are free, and a tensor below 4 GiB gets no mapping of its own.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
#: The largest relative difference of the models' FLOPs, and how much slower than another model ours may be at the lower
#: end of the interval.
SAME_FLOPS, GOAL = 0.01, 0.99

#: The FLOPs of a step, and for each number of steps in a row the seconds of a step, by round and repetition.
Measured = tuple[int, dict[str, list[list[float]]]]


class NanoBlock(nn.Module):
    """One layer as in nanoGPT: LayerNorm, one product for queries, keys and values, a GELU network."""

    def __init__(self, cell: StepCell) -> None:
        super().__init__()
        width, inner = cell.shape.d_model, 3 * cell.shape.d_ff // 2
        self.heads = cell.shape.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).contiguous().view(batch, time, width))
        return x + torch.as_tensor(self.down(F.gelu(self.up(self.norm_2(x)))))


class NanoGPT(nn.Module):
    """The whole model: learned positions, the layers, and an output head that is not tied to the embedding."""

    def __init__(self, cell: StepCell) -> None:
        super().__init__()
        self.tokens = nn.Embedding(cell.shape.vocabulary, cell.shape.d_model)
        self.positions = nn.Embedding(cell.context, cell.shape.d_model)
        self.blocks = nn.ModuleList(NanoBlock(cell) for _ in range(cell.shape.layers))
        self.norm = nn.LayerNorm(cell.shape.d_model, bias=False)
        self.head = nn.Linear(cell.shape.d_model, cell.shape.vocabulary, bias=False)
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(self.norm(x)))


class Llama(nn.Module):
    """Transformers' Llama of the cell's shape; returns its logits."""

    def __init__(self, cell: StepCell) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM  # a GPU image may not have it

        config = LlamaConfig(
            vocab_size=cell.shape.vocabulary,
            hidden_size=cell.shape.d_model,
            intermediate_size=cell.shape.d_ff,
            num_hidden_layers=cell.shape.layers,
            num_attention_heads=cell.shape.heads,
            max_position_embeddings=cell.context,
            use_cache=False,
            tie_word_embeddings=False,
        )
        self.inner = LlamaForCausalLM(config)
        assert config._attn_implementation == "sdpa", "uses fused attention, like the other models"

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(tokens).logits)


class Torchtune(nn.Module):
    """Layers of torchtune with the modules that its Llama 3 has, in the cell's shape; returns its logits."""

    def __init__(self, cell: StepCell) -> None:
        super().__init__()
        from torchtune import modules  # not one of our dependencies

        width, inner, heads = cell.shape.d_model, cell.shape.d_ff, cell.shape.heads

        def linear(inputs: int, outputs: int) -> nn.Module:
            return nn.Linear(inputs, outputs, bias=False)

        def layer() -> nn.Module:
            attention = modules.MultiHeadAttention(
                embed_dim=width,
                num_heads=heads,
                num_kv_heads=heads,
                head_dim=width // heads,
                **{name: linear(width, width) for name in ("q_proj", "k_proj", "v_proj", "output_proj")},
                pos_embeddings=modules.RotaryPositionalEmbeddings(width // heads, max_seq_len=cell.context),
                max_seq_len=cell.context,
            )
            mlp = modules.FeedForward(
                gate_proj=linear(width, inner), down_proj=linear(inner, width), up_proj=linear(width, inner)
            )
            norms = {name: modules.RMSNorm(width) for name in ("sa_norm", "mlp_norm")}
            found: nn.Module = modules.TransformerSelfAttentionLayer(attention, mlp, **norms)
            return found

        self.tokens = nn.Embedding(cell.shape.vocabulary, width)
        self.blocks = nn.ModuleList(layer() for _ in range(cell.shape.layers))
        self.norm, self.head = modules.RMSNorm(width), linear(width, cell.shape.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(self.norm(x)))


def ours(cell: StepCell) -> nn.Module:
    return Transformer(cell, device="cpu")


MODELS: dict[str, Callable[[StepCell], nn.Module]] = {"ours": ours, "nanoGPT": NanoGPT}
if find_spec("transformers"):
    MODELS["Llama"] = Llama


def compared(device: str) -> Iterator[tuple[str, str, StepCell]]:
    """Yields what is measured on this device: a name, the mode of torch.compile and the shape."""
    asked = {"mode": "train", "precision": "bf16", "attention": "sdpa"}
    if device == "cuda":
        for size, context in (("small", 512), ("small", 1024), ("large", 512)):
            cell = StepCell(**SIZES[size].numbers, context=context, **asked)  # type: ignore[arg-type]
            yield f"{size} at {context}, CUDA graphs", "reduce-overhead", cell
    else:
        shape = {"d_model": 256, "d_ff": 704, "layers": 4, "heads": 4, "vocabulary": 2048}
        yield "256 wide at 256", "default", StepCell(**shape, context=256, **asked)  # type: ignore[arg-type]


def step_flops(model: nn.Module, tokens: Tensor) -> int:
    """Returns the matrix-product FLOPs of forward and backward as PyTorch counts them. Attention is unfused, because
    PyTorch cannot count the FLOPs of the CPU's fused kernel."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    model.zero_grad()
    return int(counter.get_total_flops())


def training_step(model: nn.Module, tokens: Tensor, *, mode: str) -> Callable[[], None]:
    """Returns the body of a training loop with every setting on. On CUDA it waits for nothing."""
    run = torch.compile(model, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    device = tokens.device.type

    def step() -> None:
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(run(inputs).flatten(0, 1), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def seconds_a_step(step: Callable[[], None], *, row: int, device: str) -> float:
    """Returns the mean seconds of `row` steps that run one after the other, with a wait at the end."""
    began = time.perf_counter()
    for _ in range(row):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / row


def measured(cell: StepCell, *, device: str, mode: str) -> dict[str, Measured]:
    """Returns every model's FLOPs of a step and the seconds of its steps, in rounds that all models share."""
    torch.manual_seed(0)
    tokens = torch.randint(cell.shape.vocabulary, (cell.batch, cell.context + 1), device=device)
    models = {name: build(cell).to(device) for name, build in MODELS.items()}
    flops = {name: step_flops(model, tokens[:, :-1]) for name, model in models.items()}
    steps = {name: training_step(model, tokens, mode=mode) for name, model in models.items()}
    for step in steps.values():
        for _ in range(WARMUP):
            step()
    found: dict[str, Measured] = {name: (count, {}) for name, count in flops.items()}
    names = list(steps)
    for row, turns in TURNS[device].items():
        for number in range(ROUNDS * turns):
            for name in names:
                rounds = found[name][1].setdefault(str(row), [])
                if number % turns == 0:
                    rounds.append([])
                rounds[-1].append(seconds_a_step(steps[name], row=row, device=device))
            names.reverse()
    return found


def run() -> list[Result]:
    """Runs the measurement in a process with a worker's environment, which must be set before torch is imported."""
    command = [sys.executable, "-m", "tests.bench.models", "--inside"]
    environment = {**os.environ, **ENVIRONMENT, **ALLOCATOR}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, dict[str, Measured]] = json.loads(done.stdout.splitlines()[-1])
    return [result for name, models in found.items() for result in results(name, models)]


def results(name: str, models: Mapping[str, Measured]) -> Iterator[Result]:
    """Yields the ratio of each other model's time to ours: the median of the rounds' ratios, because a machine that
    slows down for a while slows both models. Fails where their FLOPs differ."""
    flops, own = models["ours"]
    for other, (other_flops, by_row) in models.items():
        assert abs(other_flops / flops - 1) <= SAME_FLOPS, f"{other} has {other_flops} FLOPs a step, ours {flops}"
        for row, rounds in by_row.items() if other != "ours" else ():
            pairs = zip(rounds, own[row], strict=True)
            ratio = summarize([statistics.median(theirs) / statistics.median(mine) for theirs, mine in pairs])
            assert ratio.low is not None
            ms = statistics.median(seconds for one in own[row] for seconds in one) * 1e3
            interval = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            yield Result(
                name=f"{other}'s step / ours, {name}{f', {row} in a row' if int(row) > 1 else ''}",
                figure=f"{interval}, ours {ms:.1f} ms, {flops / 1e9:.1f} GFLOP",
                goal=f"at least 1: lower end at least {GOAL}",
                met=ratio.low >= GOAL,
            )


def inside() -> None:
    """Measures everything in this process and prints it as JSON."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {}
    for name, mode, cell in compared(device):
        found[name] = measured(cell, device=device, mode=mode)
        for result in results(name, found[name]):
            print(result, file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Our model's training step against others of the same shape.")
    parser.add_argument("--inside", action="store_true", help="measure in this very process and print the times")
    if parser.parse_args().inside:
        inside()
    else:
        for result in run():
            print(result)
