"""Does a step of a user's own model take as long under the runner as in a bare loop? Measured in ABBA order.

    python -m tests.bench.own                          # reduced configurations on a CPU
    python -m tests.bench.own --device cuda --full     # as published, in bf16

Each model is built twice in one process: by the runner from `--model`, and by a few lines as in the model's own
documentation. Limits: there is only one process, so the interval does not include differences between processes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runner.analysis.statistics import summarize
from runner.engines.environment import ENVIRONMENT
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.steps.model import ModelStep
from runner.measure.timing import timing
from runner.models.own import load
from runner.schema import PHASES, StepCell
from runner.schema.axes import SHAPE
from runner.schema.own import parse_spec
from tests.bench.result import Result

HERE = Path(__file__).parents[1] / "own"
PAIRS, WARMUP, GOAL = 200, 5, 1.05
_SMALL = "hidden_size=128,intermediate_size=344,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2"
#: Each model: the value of `--model` on a CPU, the value at full size, and the tokens of a sequence.
MODELS: dict[str, tuple[str, str, int]] = {
    "llama": (f"hf:{HERE}/llama.json,{_SMALL},vocab_size=2048,head_dim=32", f"hf:{HERE}/llama.json", 1024),
    "qwen": (f"hf:{HERE}/qwen.json,{_SMALL},vocab_size=2048", f"hf:{HERE}/qwen.json", 1024),
    "mixtral": (f"hf:{HERE}/mixtral.json,{_SMALL},vocab_size=2048", f"hf:{HERE}/mixtral.json", 1024),
    "nano": (f"{HERE}/nano.py:build", f"{HERE}/nano.py:build,width=768,layers=12", 1024),
    "vit": (f"{HERE}/vision.py:vit,size=64,width=128,layers=2", f"{HERE}/vision.py:vit", 0),
    "resnet": (f"{HERE}/vision.py:resnet,size=64", f"{HERE}/vision.py:resnet", 0),
}


def own_cell(text: str, *, context: int, device: str, batch: int = 4, **asked: Any) -> StepCell:
    """Returns the cell of a training step of a user's own model, in bf16 on CUDA."""
    found: dict[str, Any] = {"precision": "bf16" if device == "cuda" else "fp32", "attention": "sdpa", **asked}
    key = load(parse_spec(text)).key
    sizes: dict[str, Any] = {**dict.fromkeys(SHAPE), "model": text, "model_key": key}
    return StepCell(**sizes, context=context, batch=batch, mode="train", **found)


def bare_step(text: str, cell: StepCell, device: Device) -> Callable[[], None]:
    """Returns the body of a training loop without any code of the runner; the model is built as its documentation
    says."""
    torch.manual_seed(0)
    spec = parse_spec(text)
    with torch.device(device.torch):
        if spec.kind == "hf":
            import transformers

            fields = json.loads(Path(spec.where).read_text()) | dict(spec.options)
            config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
            config.use_cache = False
            model: Any = getattr(transformers, (config.architectures or [""])[0])._from_config(
                config, attn_implementation="sdpa"
            )
            tokens = torch.randint(config.vocab_size, (cell.batch, cell.context))

            def find_loss() -> torch.Tensor:
                found: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
                return found
        elif spec.where.endswith("nano.py"):
            from tests.own.nano import GPT

            model = GPT(2048, cell.context, int(spec.options.get("width", 128)), 4, int(spec.options.get("layers", 3)))  # type: ignore[arg-type,no-untyped-call]
            tokens = torch.randint(2048, (cell.batch, cell.context))

            def find_loss() -> torch.Tensor:
                logits = model(tokens)
                return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        else:
            import torchvision

            size, width = int(spec.options.get("size", 224)), int(spec.options.get("width", 768))  # type: ignore[arg-type]
            if spec.function == "resnet":
                model = torchvision.models.resnet50()
            else:
                layers = int(spec.options.get("layers", 12))  # type: ignore[arg-type]
                model = torchvision.models.VisionTransformer(size, 16, layers, width // 64, width, 4 * width)
            images, labels = torch.randn(cell.batch, 3, size, size), torch.randint(1000, (cell.batch,))

            def find_loss() -> torch.Tensor:
                return torch.nn.functional.cross_entropy(model(images), labels)

    model.train().to(device.torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, foreach=True)
    half = cell.precision == "bf16"

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = find_loss()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        device.synchronize()

    return step


def runner_step(cell: StepCell, device: Device) -> Callable[[], None]:
    """Returns the step as a worker measures it, with its marks and the work between steps."""
    step = ModelStep(cell, device)

    def timed() -> None:
        step.between()
        timing.time_step(step, device, phases=len(PHASES[cell.mode]))

    return timed


def compare(name: str, *, device: Device, is_full: bool, pairs: int) -> list[list[float]]:
    """Returns the seconds of the runner's steps and of the bare ones."""
    reduced, full, context = MODELS[name]
    text = full if is_full else reduced
    cell = own_cell(text, context=context and (context if is_full else 64), device=device.type)
    precision.apply(cell.precision, device)
    ours, bare = runner_step(cell, device), bare_step(text, cell, device)
    for _ in range(WARMUP):
        ours()
        bare()
    times: dict[Callable[[], None], list[float]] = {ours: [], bare: []}
    for _ in range(pairs // 2):
        for step in (ours, bare, bare, ours):
            device.synchronize()
            began = time.perf_counter()
            step()
            times[step].append(time.perf_counter() - began)
    return [times[ours], times[bare]]


def run(*, device: str = "cpu", is_full: bool = False, pairs: int = PAIRS) -> list[Result]:
    """Compares each model in its own process with a worker's environment. Leaves out models whose library is
    missing."""
    results = []
    for name in MODELS:
        words = [name, "--device", device, "--pairs", str(pairs), *["--full"] * is_full]
        command = [sys.executable, "-m", "tests.bench.own", "--inside", *words]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
        if done.returncode:
            figure = (done.stderr.strip().splitlines() or ["it died"])[-1][:90]
            results.append(Result(name=f"{name}, own model over a bare loop", figure=figure, goal="", met=None))
            continue
        a, b = map(summarize, json.loads(done.stdout.splitlines()[-1]))
        assert a.low
        assert a.high
        assert b.low
        assert b.high
        ratio, low, high = a.median / b.median, a.low / b.high, a.high / b.low
        results.append(
            Result(
                name=f"{name}, own model over a bare loop",
                figure=f"{ratio:.3f}× ({low:.3f} to {high:.3f}), {b.median * 1e3:.2f} ms, {pairs} pairs",
                goal=f"interval holds 1, or below {GOAL}×",
                met=low <= 1 or high <= GOAL,
            )
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Own models beside bare loops.")
    parser.add_argument("name", nargs="?")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--inside", action="store_true")
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(compare(given.name, device=Device(given.device), is_full=given.full, pairs=given.pairs)))
        return
    for result in run(device=given.device, is_full=given.full, pairs=given.pairs):
        print(result.name, result.figure, result.met, sep="  ")


if __name__ == "__main__":
    main()
