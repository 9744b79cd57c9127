"""Whether a training step fits on a GPU, before there is one: the answer `fit` for several models.

python -m runner fit --sizes small,large --gpu "RTX 4090"
python -m runner fit nano.py:build --context 512 --json
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.answers import check_chosen
from runner.answers.answer import Answer
from runner.answers.fit import COUNTED, QUESTION, Errors, Step, answer_counted, check_size, list_gpus, measure_errors
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.job import FitJob
from runner.render.text import print_answer
from runner.results.rows import Rows
from runner.schema.own import UNREAD, own_title, parse_spec
from runner.schema.sizes import KEY_DIGITS, size_named
from runner.store.read import load_shipped, read
from runner.store.read.runs import load_contents


def fit(
    console: Terminal,
    models: str,
    shapes: Sequence[str],
    gpu: str,
    asked: Mapping[str, str],
    *,
    is_own: bool,
    db: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Prints the answer for one model of the user's own, or for each of these sizes and shapes. Raises UsageError."""
    asked = {**asked, "gpu": find_gpu(gpu)}
    if is_own:
        if asked["checkpoint"] not in ("0", "1"):
            do = "The blocks of an own model are recomputed one at a time."
            raise UsageError(f"--checkpoint got {asked['checkpoint']!r}.", expected="0 or 1", do=do)
        _predict(Rows(), asked, "small")  # refuses what cannot be chosen
        answers, errors = [_count(models, asked, timeout_s=timeout_s)], COUNTED
    else:
        of = load_contents(db).select() if db else None
        rows = read(db, replace(of, machine=None), QUESTION.needs) if db and of else Rows(shipped=tuple(load_shipped()))
        names = models.split(",") if models else [] if shapes else ["small"]
        sizes = [size_named(one.strip()).name for one in names] + list(shapes)
        answers = [_predict(rows, asked, one) for one in sizes]
        errors = measure_errors(rows, asked["attention"], asked["optimizer"])
    if as_json:
        found = [_make_json(one, errors) for one in answers]
        console.dump(found if len(found) > 1 else found[0])
        return
    for one in answers:
        print_answer(console, one)


def find_gpu(name: str) -> str:
    """Returns the GPU of this name, or the only one that has it as a part. Raises UsageError with the nearest names."""
    known = {one.casefold(): one for one in list_gpus()}
    found = [one for lower, one in known.items() if name.casefold() in lower]
    if name.casefold() in known or len(found) == 1:
        return known.get(name.casefold(), found[0])
    if found:
        names = f"{', '.join(found[:4])}{', …' if len(found) > 4 else ''}"
        raise UsageError(f"--gpu got {name!r}, which {len(found)} GPUs have in their name.", expected=f"one of {names}")
    near = [known[one] for one in difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0)]
    raise UsageError(f"There is no GPU called {name!r}.", expected=f"a part of a name such as {', '.join(near)}")


def _predict(rows: Rows, asked: Mapping[str, str], size: str) -> Answer:
    blocks = asked["checkpoint"] if asked["checkpoint"].isdecimal() else "0"
    check_size(size, checkpoint=blocks, precision=asked["precision"], weights=asked["weights"])
    answer: Answer = QUESTION.answer(rows, {**asked, "size": size})
    check_chosen(answer, asked, got="--{} got {!r}.")
    return answer


def _count(text: str, asked: Mapping[str, str], *, timeout_s: float) -> Answer:
    spec, batch, context = parse_spec(text), int(asked["batch"]), int(asked["context"])
    job = FitJob(spec=spec.text, context=context, attention=asked["attention"], optimizer=asked["optimizer"])
    counted = LocalEngine().count_step(job, timeout_s=timeout_s)
    attention = asked["attention"] if counted.has_attention else UNREAD["attention"]
    step = Step(
        title=own_title(spec.text, counted.key[:KEY_DIGITS]),
        way="bf16 weights" if asked["weights"] == "bf16" else asked["precision"],
        checkpoint=min(int(asked["checkpoint"]), 1) if counted.has_blocks else 0,
        batch=batch,
        context=context,
        kind=f"{attention} attention, {asked['optimizer']} AdamW",
    )
    return answer_counted(counted, step, asked["gpu"])


def _make_json(answer: Answer, errors: Errors) -> dict[str, Any]:
    """Returns the peak by five parts, which add up to it: autocast's copies are activations; the data, buffers and
    cuBLAS's workspace temporaries."""
    *largest, peak = answer.views
    sizes = dict(zip(peak.column("part"), peak.column("size_bytes"), strict=True))
    total, needed = sizes.pop("peak"), sizes.pop("reserved by PyTorch")
    parts = {name: sizes.pop(name, 0) for name in ("parameters", "gradients")}
    parts["optimizer"] = sizes.pop("optimizer state", 0)
    parts["activations"] = sizes.pop("activations", 0) + sizes.pop("autocast copies", 0)
    parts["temporaries"] = sum(sizes.values())
    found: dict[str, Any] = {}
    for view in largest:
        for row in view.rows:
            way, checkpointing, *numbers = row.values
            ways = found.setdefault(view.name.removeprefix("fit-largest-"), {}).setdefault(way, {})
            ways[checkpointing] = dict(zip(("largest", "low", "high"), numbers, strict=True))
    fits = needed <= (peak.draw.guides[0].at or 0)
    return {"peak_bytes": total, "parts": parts, "fits": fits, "error": errors.peak, "largest": found}
