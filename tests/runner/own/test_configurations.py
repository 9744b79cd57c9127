"""Models of `transformers` from configurations of each kind: the class, its inputs and labels, and its loss by hand."""

import json
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from runner.errors import BadModel, Skipped
from runner.job import OwnModelJob
from runner.measure.own import describe_own
from runner.models.given import load
from runner.models.workload import Built
from runner.schema.own import parse_spec
from tests.some import some

TINY = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BART = {"vocab_size": 128, "d_model": 32} | {
    f"{side}_{name}": number
    for side in ("encoder", "decoder")
    for name, number in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 64))
}
TALK = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 32, "pad_token_id": 0, "eos_token_id": 2}
#: A configuration of each kind, the class that it is, what its labels are of, and whether its attention can be chosen.
KINDS: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    "llama": (TINY, "LlamaForCausalLM", "next", True),
    "mamba": (TINY | {"state_size": 4}, "MambaForCausalLM", "next", False),
    "mamba2": (TINY | {"num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 4, "chunk_size": 10},
               "Mamba2ForCausalLM", "next", False),
    "bert": (TINY, "BertForMaskedLM", "masked", True),
    "deberta": (TINY, "DebertaForMaskedLM", "masked", False),
    "t5": ({"vocab_size": 128, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
           "T5ForConditionalGeneration", "behind", True),
    "bart": (BART, "BartForConditionalGeneration", "behind", True),
    "whisper": (BART | TALK, "WhisperForConditionalGeneration", "behind", True),
    "vit": (TINY | {"image_size": 16, "patch_size": 8, "num_labels": 10}, "ViTForImageClassification", "class", True),
    "resnet": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 10},
               "ResNetForImageClassification", "class", False),
    "roberta": (TINY | {"architectures": ["RobertaForSequenceClassification"], "num_labels": 10},
                "RobertaForSequenceClassification", "class", True),
}  # fmt: skip


def configure(folder: Path, model_type: str, fields: dict[str, Any]) -> str:
    """Writes a configuration, and returns the value for `--model`."""
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **fields}))
    return f"hf:{folder}"


def build(spec: str, attention: Any = "sdpa") -> Built:
    """Builds the model with two samples of 20 tokens."""
    return load(parse_spec(spec)).build(torch.device("cpu"), batch=2, context=20, attention=attention)


#: These go the way of another one.
LIKE_OTHERS = ("mamba2", "deberta", "bart", "resnet")


@pytest.mark.parametrize("kind", some(KINDS, KINDS.keys() - LIKE_OTHERS))
def test_each_kind_gets_its_inputs_and_the_loss_of_its_labels(tmp_path: Path, kind: str) -> None:
    fields, name, labelled, reads_attention = KINDS[kind]
    spec = configure(tmp_path, kind, fields)
    found = describe_own(OwnModelJob(spec=spec, device="cpu", points=((2, 20),), runs=True))
    fixed = 10 * 32 if kind == "whisper" else 0  # the sinusoids of the encoder's positions
    assert found.trained == found.parameters - fixed
    own = None if reads_attention else "own"
    assert ("attention" in found.reads, found.fixed.get("attention")) == (reads_attention, own)
    workload = build(spec).workload
    assert type(workload.model).__name__ == name
    output, given = workload.run(), workload.keywords
    logits, labels = output["logits"], given["labels"]
    if labelled == "next":
        assert torch.equal(labels, given["input_ids"])
        logits, labels = logits[:, :-1], labels[:, 1:]
    elif labelled == "masked":  # three of every twenty places
        assert (labels != -100).sum() == 2 * 3
        assert labels.shape == given["input_ids"].shape
    elif labelled == "behind":
        assert torch.equal(given["decoder_input_ids"][:, 1:], labels[:, :-1])
    else:
        assert labels.shape == (2,)
    by_hand = cross_entropy(logits.flatten(0, -2), labels.flatten())
    assert workload.loss(output).item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert by_hand.item() == pytest.approx(log(logits.shape[-1]), abs=1)


def test_a_configuration_without_a_known_loss_names_what_there_is(tmp_path: Path) -> None:
    spec = configure(tmp_path, "bert", TINY | {"architectures": ["BertModel"]})
    with pytest.raises(BadModel, match=r"loss of BertModel is not known.*BertForMaskedLM.*architectures=null"):
        build(spec)
    assert type(build(f"{spec},architectures=null").workload.model).__name__ == "BertForMaskedLM"
    for kind, fields, said in (("wav2vec2", {}, "loss of wav2vec2"), ("speech_to_text", BART, "takes input_features")):
        with pytest.raises(BadModel, match=rf"{said}.*--model FILE.py:build"):
            build(configure(tmp_path, kind, fields))


def test_flex_is_skipped_where_transformers_has_none(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="no flex attention for GPT2LMHeadModel"):
        build(configure(tmp_path, "gpt2", {}), "flex")
