"""A model of `transformers` from a configuration on this disk, with random weights. Nothing is downloaded.

    key, build = load_configuration(parse_spec("hf:llama/config.json,num_hidden_layers=2"))

Options replace fields of the configuration. The model is the configuration's first architecture, else the first head of
`_HEADS` that its type has; its loss is its own. A model for which `transformers` has no sdpa, one without attention
included, computes eagerly and does not read which attention is wanted. Code that comes with a configuration runs only
with `trust_remote_code=true`.
"""

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.errors import BadModel, Skipped
from runner.models.attention import BACKENDS
from runner.models.source import MAX_REASON
from runner.models.workload import SEED, Built, Wanted, Workload, default_loss, find_blocks, place_parameters
from runner.places import explain_place
from runner.schema.own import OwnSpec

#: The names of our attention implementations in `transformers`; fused kernels are its sdpa with one backend allowed.
_ATTENTION = {"naive": "eager", "sdpa": "sdpa", "flex": "flex_attention"}
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
_DO_WRITE = "Write a function that makes the model and its batch: --model FILE.py:build."
#: Kinds of models whose labels are known. The first that a type has is chosen where no architecture is named: encoders
#: have causal heads as well, and so have decoders without their encoders.
_HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "CAUSAL_LM", "IMAGE_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION",
)  # fmt: skip


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
    of_text = config.get_text_config()
    config.use_cache = of_text.use_cache = False
    head, model_class = _choose_head(spec, config, folder=folder)
    attention = want.attention if getattr(model_class, "_supports_sdpa", True) else "naive"
    if attention == "flex" and not getattr(model_class, "_supports_flex_attn", True):
        raise Skipped(f"transformers has no flex attention for {model_class.__name__}.")
    config._attn_implementation = _ATTENTION.get(attention, "sdpa")
    torch.manual_seed(SEED)
    with torch.device(want.device):
        try:
            model: nn.Module = model_class(config)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
            raise BadModel(f"transformers cannot build {spec.text}: {reason}") from error
        place_parameters(model, want)
        batch = _make_batch(spec, model, head, config, want)
    if attention in BACKENDS:
        _allow(model, BACKENDS[attention])
    tokens = batch.get("input_ids")
    workload = Workload(
        model=model,
        keywords=batch,
        loss=lambda output: default_loss(output, tokens),
        inputs=list(batch.values()),
        blocks=find_blocks(model),
    )
    numbers = {
        column: next((n for name in names if isinstance(n := getattr(of_text, name, None), int)), None)
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


def _choose_head(spec: OwnSpec, config: Any, *, folder: Path | None) -> tuple[str, Any]:
    """Returns the kind of a configuration's model, and its class. Raises BadModel where there is none with a loss."""
    import transformers

    if folder is not None and getattr(config, "auto_map", None):
        return "CAUSAL_LM", partial(transformers.AutoModelForCausalLM.from_config, trust_remote_code=True)
    heads: dict[str, tuple[str, Any]] = {}
    for head in _HEADS:
        found = getattr(transformers, f"MODEL_FOR_{head}_MAPPING").get(type(config), ())
        for one in found if isinstance(found, tuple) else (found,):
            heads.setdefault(one.__name__, (head, one))
    named = [name for name in config.architectures or () if hasattr(transformers, name)]
    chosen = next((heads[name] for name in named or heads if name in heads), None)
    if chosen is None:
        raise BadModel(
            f"{spec.text}: the loss of {named[0] if named else config.model_type} is not known.",
            expected=f"architectures among {', '.join(heads)}" if heads else "a model of text, speech or images",
            do="Add ,architectures=null for the first." if named and heads else _DO_WRITE,
        )
    return chosen


def _make_batch(spec: OwnSpec, model: nn.Module, head: str, config: Any, want: Wanted) -> dict[str, Tensor]:
    """Returns random tokens, images or spectra with labels for the model's own loss: classes; the tokens, of which a
    decoder behind an encoder reads each predecessor; or other tokens at 15% of the places of a masked model."""
    main = getattr(model, "main_input_name", "input_ids")
    if head == "IMAGE_CLASSIFICATION" and main == "pixel_values":
        size = getattr(getattr(config, "vision_config", config), "image_size", None) or 224
        height, width = size if isinstance(size, list | tuple) else (size, size)
        images = torch.randn(want.batch, getattr(config, "num_channels", 3), height, width, dtype=want.dtype)
        return {main: images, "labels": torch.randint(config.num_labels, (want.batch,))}
    tokens = torch.randint(config.get_text_config().vocab_size, (want.batch, want.context))
    batch = {"input_ids": tokens, "labels": tokens}
    if head == "SPEECH_SEQ_2_SEQ" and main == "input_features" and hasattr(config, "num_mel_bins"):
        frames = 2 * config.max_source_positions  # the one length that Whisper's encoder takes
        batch = {main: torch.randn(want.batch, config.num_mel_bins, frames, dtype=want.dtype), "labels": tokens}
    elif main != "input_ids":
        raise BadModel(
            f"{spec.text} takes {main}, and what that is cannot be told from its configuration.", do=_DO_WRITE
        )
    if head == "MASKED_LM":
        batch["labels"] = tokens.roll(1, 1).where(torch.arange(want.context) % 20 < 3, -100)
    elif head.endswith("CLASSIFICATION"):
        shape = tokens.shape if head == "TOKEN_CLASSIFICATION" else (want.batch,)
        batch["labels"] = torch.randint(config.num_labels, shape)
    elif "decoder_input_ids" in inspect.signature(model.forward).parameters:
        batch["decoder_input_ids"] = tokens.roll(1, 1)
    return batch


def _allow(model: nn.Module, backend: SDPBackend) -> None:
    """Makes the model compute attention with one kernel only."""
    forward = model.forward

    @wraps(forward)
    def run(*arguments: Any, **keywords: Any) -> Any:
        with sdpa_kernel(backend):
            return forward(*arguments, **keywords)

    model.forward = run
