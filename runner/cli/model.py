"""What Stepscope understands of a user's own model, in one screen.

python -m runner model check nano.py:build --batch 8 --context 512

The model is built once, without data where that is possible, and two steps of it run on the device.
"""

from typing import Annotated

import typer

from runner.cli.terminal import Terminal, new_grid
from runner.engines.local import LocalEngine
from runner.experiments import EXPERIMENTS
from runner.formats import format_quantity
from runner.job import OwnModelJob
from runner.schema import Model
from runner.schema.own import OwnModel, own_title, parse_spec
from runner.schema.sizes import KEY_DIGITS


def make_group(console: Terminal) -> typer.Typer:
    """Returns the commands about own models, which print to this console."""
    group = typer.Typer(no_args_is_help=True, epilog="Example: stepscope model check train.py:build")

    @group.callback()
    def about() -> None:
        """Models of your own: what is understood of one before it is measured.

        `FILE.py:build` or `package.module:build` is a function of one argument. It returns a module and a batch (a
        tensor, a tuple of arguments or a dictionary of keywords) and, if wanted, a function from the module's output to
        a loss:

        def build(want): return MyModel(), torch.randint(50257, (want.batch, want.context))

        `want` has device, dtype, batch, context, attention and option(name, default), which `FILE.py:build,name=value`
        sets. `hf:CONFIG` is a config.json of transformers on this disk, or its folder: random weights, nothing
        downloaded.
        """

    @group.command(name="check", epilog="Example: stepscope model check nano.py:build --batch 8 --context 512")
    def check(
        spec: Annotated[str, typer.Argument(help="FILE.py:build, package.module:build or hf:CONFIG.", metavar="MODEL")],
        batch: Annotated[int, typer.Option(help="Samples in one step.", min=1)] = 4,
        context: Annotated[int, typer.Option(help="Tokens of each sequence.", min=1)] = 128,
        device: Annotated[str, typer.Option(help="auto, cuda, cuda:1, mps or cpu.")] = "auto",
        timeout: Annotated[
            float, typer.Option(help="Seconds until a model that is not built yet is given up.", min=1)
        ] = 60,
    ) -> None:
        """Build a model once, run two steps, and say what was understood: parameters, batch, blocks, FLOPs, and which
        experiments apply."""
        check_model(console, spec, device=device, batch=batch, context=context, timeout_s=timeout)

    return group


def check_model(console: Terminal, text: str, *, device: str, batch: int, context: int, timeout_s: float) -> None:
    """Prints what was understood of a model, which experiments measure it and what does not apply. Raises BadModel for
    one that no cell could measure."""
    spec, engine = parse_spec(text), LocalEngine()
    machine = engine.describe(device)
    where = machine["device"] if device == "auto" else device
    points = ((batch, context),)
    job = OwnModelJob(spec=spec.text, device=where, points=points, runs=True)
    found = engine.describe_model(job, timeout_s=timeout_s)
    console.say(f"{own_title(spec.text, found.key[:KEY_DIGITS])}: built, and two steps ran on {where}.")
    console.print(new_grid("", "", rows=_describe(found, batch=batch)))
    console.say(f"Measure it: python -m runner sweep --model {spec.text}")


def _describe(found: OwnModel, *, batch: int) -> list[tuple[str, str]]:
    """Returns a line for each thing, with its name."""
    trained = "all trained" if found.trained == found.parameters else f"{found.trained:,} of them trained"
    flops = next(iter(found.flops.values()), None)
    counted = (
        f"forward {format_quantity(flops.forward, 'FLOP')}, backward {format_quantity(flops.backward, 'FLOP')}, by "
        "PyTorch's counter"
        if flops
        else f"counted in a real step, because the model needs its data: {found.missing}"
    )
    apply = [one.name for one in EXPERIMENTS if any(issubclass(kind.cell, Model) for kind in one.kinds)]
    lines = [
        ("parameters", f"{found.parameters:,}, {trained}"),
        ("batch", f"{found.inputs}, of {batch} samples"),
        ("output", found.output or "known in a real step only"),
        ("blocks", found.blocks or "none repeats"),
        ("FLOPs of a step", counted),
        ("reads", ", ".join(sorted(found.reads)) or "device, batch and dtype alone"),
        ("experiments", ", ".join(apply)),
    ]
    return lines + [("does not apply", text) for text in _list_absent(found)]


def _list_absent(found: OwnModel) -> list[str]:
    """Returns what does not apply to a model, and why."""
    absent = [
        "single-head attention and sums: they are not about a model",
        "the predicted peak, and frontier, which starts from it: the formula is ours",
    ]
    if "context" not in found.reads:
        absent.append("--contexts: the function never reads want.context, so a sample has no length")
    if "attention" not in found.reads:
        absent.append("--attention: the function never reads want.attention, so the model has its own")
    if not found.blocks:
        absent.append("compiled-block, --checkpoint and saved tensors by block: no block repeats")
    return absent
