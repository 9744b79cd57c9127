"""What Stepscope understands of a user's own model, in one screen.

python -m runner model nano.py:build --batch 8 --context 512

The model is built once, without data where that is possible, and two steps of it run on the device.
"""

from runner.cli.terminal import Terminal, new_grid
from runner.engines.local import LocalEngine
from runner.experiments import EXPERIMENTS
from runner.formats import format_quantity
from runner.job import OwnModelJob
from runner.schema import Model
from runner.schema.own import OwnModel, own_title, parse_spec
from runner.schema.sizes import KEY_DIGITS


def check_model(
    console: Terminal, text: str, *, device: str, batch: int, context: int, timeout_s: float, as_json: bool
) -> None:
    """Prints what was understood of a model, which experiments measure it and what does not apply. Raises BadModel for
    one that no cell could measure."""
    spec, engine = parse_spec(text), LocalEngine()
    machine = engine.describe(device)
    where = machine["device"] if device == "auto" else device
    job = OwnModelJob(spec=spec.text, device=where, points=((batch, context),), runs=True)
    found = engine.describe_model(job, timeout_s=timeout_s)
    flops, absent = next(iter(found.flops.values()), None), _list_absent(found)
    experiments = [one.name for one in EXPERIMENTS if any(issubclass(kind.cell, Model) for kind in one.kinds)]
    if as_json:
        known = {**vars(found), "reads": sorted(found.reads), "flops": flops and vars(flops), "device": where}
        console.dump({**known, "experiments": experiments, "absent": absent})
        return
    trained = "all trained" if found.trained == found.parameters else f"{found.trained:,} of them trained"
    counted = (
        f"forward {format_quantity(flops.forward, 'FLOP')}, backward {format_quantity(flops.backward, 'FLOP')}, by "
        "PyTorch's counter"
        if flops
        else f"counted in a real step, because the model needs its data: {found.missing}"
    )
    lines = [
        ("parameters", f"{found.parameters:,}, {trained}"),
        ("batch", f"{found.inputs}, of {batch} samples"),
        ("output", found.output or "known in a real step only"),
        ("loss", found.loss),
        ("blocks", found.blocks or "none repeats"),
        ("FLOPs of a step", counted),
        ("reads", ", ".join(sorted(found.reads)) or "device, batch and dtype alone"),
        ("experiments", ", ".join(experiments)),
        *(("does not apply", words) for words in absent),
    ]
    console.say(f"{own_title(spec.text, found.key[:KEY_DIGITS])}: built, and two steps ran on {where}.")
    console.print(new_grid("", "", rows=lines))
    console.say(f"Measure it: python -m runner sweep --model {spec.text}")


def _list_absent(found: OwnModel) -> list[str]:
    """Returns what does not apply to a model, and why."""
    absent = [
        "single-head attention and sums: they are not about a model",
        "the predicted peak, and frontier, which starts from it: the formula is ours",
    ]
    if "context" not in found.reads:
        absent.append("--contexts: the function never reads want.context, so a sample has no length")
    if "attention" not in found.reads:
        why = "transformers has no sdpa for it" if found.spec.startswith("hf:") else "the function never reads it"
        absent.append(f"--attention: {why}, so that rows say `own`: eager, or whatever the model computes")
    if not found.blocks:
        absent.append("compiled-block, --checkpoint and saved tensors by block: no block repeats")
    return absent
