"""A model of `transformers` from a configuration on this disk, with random weights. Nothing is downloaded.

    key, build = load_configuration(parse_spec("hf:llama/config.json,num_hidden_layers=2"))

Options replace fields of the configuration. The model is the configuration's first architecture, else a causal language
model; its loss is its own. Code that comes with a configuration runs only with `trust_remote_code=true`.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.errors import BadModel
from runner.models.source import MAX_REASON
from runner.models.workload import (
    SEED,
    Built,
    Wanted,
    Workload,
    default_loss,
    find_blocks,
    place_parameters,
)
from runner.places import explain_place
from runner.schema.own import OwnSpec

#: The names of our attention implementations in `transformers`; fused kernels are its sdpa with one backend allowed.
_ATTENTION = {"naive": "eager", "sdpa": "sdpa", "flex": "flex_attention"}
_BACKENDS = {
    "sdpa-math": SDPBackend.MATH,
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
}
#: Fields that say nothing about the model.
_NO_PART = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
#: Where configurations name the numbers of a shape; the first that is there counts.
_NUMBERS = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "d_ff": ("intermediate_size", "n_inner", "d_ff"),
    "heads": ("num_attention_heads", "n_head"),
    "vocabulary": ("vocab_size",),
}
TRUST = "trust_remote_code"


def load_configuration(spec: OwnSpec) -> tuple[str, Callable[[Wanted], Built]]:
    """Returns the key of a configuration with its options, and what builds it. Raises BadModel."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    file = Path(spec.where) / "config.json" if Path(spec.where).is_dir() else Path(spec.where)
    try:
        if why := explain_place(file):
            raise ValueError(why)
        fields = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise BadModel(
            f"{spec.where} cannot be read: {error}.",
            expected="a config.json on this disk, or a folder that holds one",
            do="Nothing is downloaded: fetch the configuration first.",
        ) from None
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise BadModel(f"{file} has no model_type.", expected="a configuration of transformers")
    options = {name: value for name, value in spec.options.items() if name != TRUST}
    if unknown := sorted(options.keys() - fields.keys() - {"num_hidden_layers"}):
        raise BadModel(f"{file} has no {', '.join(unknown)}.", expected=f"fields among {', '.join(sorted(fields))}")
    fields = {name: value for name, value in (fields | options).items() if name not in _NO_PART}
    trusted = spec.options.get(TRUST) is True
    sources = sorted(file.parent.glob("*.py")) if trusted else []
    text = json.dumps(fields, sort_keys=True) + "".join(path.read_text() for path in sources)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return key, lambda want: _build(spec, fields, want, folder=file.parent if trusted else None)


def _build(spec: OwnSpec, fields: Mapping[str, Any], want: Wanted, *, folder: Path | None) -> Built:
    try:
        import transformers
    except ImportError:
        raise BadModel("hf: needs the package transformers.", do="Install it: pip install 'stepscope[hf]'.") from None
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    config = _make_config(spec, fields, folder=folder)
    config.use_cache = False
    attention = want.attention
    config._attn_implementation = _ATTENTION.get(attention, "sdpa")
    torch.manual_seed(SEED)
    with torch.device(want.device):
        try:
            model: nn.Module = _choose_model_class(config, folder=folder)(config)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
            raise BadModel(f"transformers cannot build {spec.text}: {reason}") from error
        place_parameters(model, want)
        batch = _make_batch(spec, model, config, want)
    if attention in _BACKENDS:
        _allow(model, _BACKENDS[attention])
    tokens = batch.get("input_ids")
    workload = Workload(
        model=model,
        keywords=batch,
        loss=lambda output: default_loss(output, tokens),
        inputs=list(batch.values()),
        blocks=find_blocks(model),
    )
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    numbers = {
        column: next((n for name in names if isinstance(n := getattr(text_config, name, None), int)), None)
        for column, names in _NUMBERS.items()
    }
    return Built(workload=workload, reads=frozenset(want.read), numbers=numbers)


def _make_config(spec: OwnSpec, fields: Mapping[str, Any], *, folder: Path | None) -> Any:
    from transformers import AutoConfig

    try:
        if folder is not None and "auto_map" in fields:
            return AutoConfig.from_pretrained(str(folder), trust_remote_code=True, local_files_only=True)
        given = {name: value for name, value in fields.items() if name not in ("model_type", "auto_map")}
        return AutoConfig.for_model(fields["model_type"], **given)
    except Exception as error:
        do = "It comes with code of its own, which runs with ,trust_remote_code=true." if "auto_map" in fields else ""
        raise BadModel(
            f"transformers does not know {spec.text} ({fields['model_type']}): {str(error)[:MAX_REASON]}",
            expected="a model type of the installed transformers",
            do=do,
        ) from error


def _choose_model_class(config: Any, *, folder: Path | None) -> Callable[[Any], nn.Module]:
    """Returns the class of a configuration's model: its first architecture, else a causal language model."""
    import transformers

    if folder is not None and getattr(config, "auto_map", None):
        return partial(transformers.AutoModelForCausalLM.from_config, trust_remote_code=True)
    names = getattr(config, "architectures", None) or ()
    known = next((getattr(transformers, name) for name in names if hasattr(transformers, name)), None)
    return known or transformers.AutoModelForCausalLM.from_config


def _make_batch(spec: OwnSpec, model: nn.Module, config: Any, want: Wanted) -> dict[str, Tensor]:
    """Returns random tokens that are their own labels, or random images with labels."""
    main = getattr(model, "main_input_name", "input_ids")
    if main == "input_ids":
        text = config.get_text_config()
        tokens = torch.randint(text.vocab_size, (want.batch, want.context))
        return {"input_ids": tokens, "labels": tokens}
    if main == "pixel_values" and getattr(config, "image_size", None):
        size = config.image_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        images = torch.randn(want.batch, getattr(config, "num_channels", 3), height, width, dtype=want.dtype)
        return {"pixel_values": images, "labels": torch.randint(config.num_labels, (want.batch,))}
    raise BadModel(
        f"{spec.text} takes {main}, and what that is cannot be told from its configuration.",
        do="Write a function that makes the model and its batch: --model FILE.py:build.",
    )


def _allow(model: nn.Module, backend: SDPBackend) -> None:
    """Makes the model compute attention with one kernel only."""
    forward = model.forward

    @wraps(forward)
    def run(*arguments: Any, **keywords: Any) -> Any:
        with sdpa_kernel(backend):
            return forward(*arguments, **keywords)

    model.forward = run
