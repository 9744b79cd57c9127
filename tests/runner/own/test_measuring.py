"""Measuring a user's own models, compared with our Transformer, with figures computed by hand and with bare code."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from runner.analysis.costs import steps
from runner.job import Job, Measurement
from runner.measure.device import Device
from runner.measure.kernels import measure_kernels, star_numbers
from runner.measure.limits import growth_per_step
from runner.measure.memory import measure_memory
from runner.measure.model_step import ModelStep, take_gradients
from runner.measure.numerics import measure_numerics
from runner.measure.step import count_cell, measure_step
from runner.models.workload import find_blocks
from runner.schema import Cell, MemoryCell, NumericsCell, ProfileCell, StepCell
from tests.command import make_job
from tests.runner.own.build import LLAMA, MIXTRAL, MLP, NANO, our_model, own_file, own_memory, own_step

CPU = Device("cpu")
SHAPE: dict[str, Any] = {"d_model": 32, "d_ff": 64, "layers": 2, "heads": 2, "vocabulary": 64}


def measured(measure: Callable[[Job, Callable[[str], None]], Measurement], cell: Cell) -> Measurement:
    return measure(make_job(cell), lambda phase: None)


@pytest.mark.soak
@pytest.mark.parametrize(("mode", "precision"), [("train", "fp32"), ("train", "bf16"), ("forward", "fp32")])
def test_our_model_through_build_takes_the_same_bytes(tmp_path: Path, mode: Any, precision: Any) -> None:
    asked = {"mode": mode, "precision": precision, "attention": "naive", "context": 16, "batch": 2}
    theirs = measured(measure_memory, own_memory(own_file(tmp_path, our_model(SHAPE)), **asked)).values
    ours = measured(measure_memory, MemoryCell(**SHAPE, **asked)).values
    names = [name for name in ours if name.endswith("_bytes")]
    assert {name: theirs[name] for name in names} == {name: ours[name] for name in names}
    assert theirs["residual_bytes"] == 0
    assert theirs["residual_stream_bytes"] == 2 * 16 * 32 * 4


@pytest.mark.soak
def test_our_model_through_build_has_the_same_loss_and_operations(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"attention": "naive", "context": 16, "batch": 2, "mode": "train", "precision": "fp32"}
    theirs = measured(measure_step, own_step(own_file(tmp_path, our_model(SHAPE)), **asked))
    ours = measured(measure_step, StepCell(**SHAPE, **asked, min_steps=3, max_steps=3, warmup_steps=1))
    for name in ("loss", "parameters", "step_flops", "logits_dtype"):
        assert theirs.values[name] == ours.values[name], name
    assert theirs.values["flops_source"] == "counter"
    assert ours.values["flops_source"] == "formula"
    assert [row.phase for row in theirs.details["timings"]] == [row.phase for row in ours.details["timings"]]  # type: ignore[attr-defined]


def test_operations_of_a_small_network_by_hand() -> None:
    """64 → 256 → 10 with 2 images: 2·2·(64·256 + 256·10) forward. Backward has two products for each, except for the
    input's gradient, which is not needed: twice as much minus 2·2·64·256."""
    counted = count_cell(own_step(MLP, context=0, attention="own"), None)
    assert counted
    assert counted.forward == 4 * (64 * 256 + 256 * 10)
    assert counted.backward == 2 * counted.forward - 4 * 64 * 256


def test_operations_of_a_decoder_by_hand_with_attention_and_recomputation() -> None:
    """Width 128, 3 blocks, 2048 tokens in the vocabulary: 12·d² weights a block, and 4·B·T²·d for attention."""
    cell = own_step(NANO, attention="own")
    tokens, block = 2 * 16, 12 * 128 * 128
    forward = 3 * (2 * tokens * block + 4 * 2 * 16 * 16 * 128) + 2 * tokens * 128 * 2048
    counted, again = count_cell(cell, None), count_cell(replace(cell, checkpoint_blocks=1), None)
    assert counted
    assert again
    assert (counted.forward, counted.backward) == (forward, 2 * forward)
    # The last product of each block is not run again, because its output is not needed.
    repeated = 3 * (2 * tokens * (block - 4 * 128 * 128) + 4 * 2 * 16 * 16 * 128)
    assert again.forward + again.backward == 3 * forward + repeated


@pytest.mark.soak
def test_a_mixture_of_experts_is_counted_with_its_data() -> None:
    """Each token uses two of eight experts of 3·d·f weights each; the router has 8·d, attention 3·d², in two blocks."""
    values = measured(measure_step, own_step(MIXTRAL, mode="inference", precision="fp32")).values
    tokens, d, f = 2 * 16, 32, 48
    attention = 2 * tokens * (2 * d * d + 2 * d * d // 2) + 4 * 2 * 16 * 16 * d
    experts = 2 * tokens * (8 * d + 2 * 3 * d * f)
    assert values["step_flops"] == 2 * (attention + experts) + 2 * tokens * d * 64
    assert values["flops_source"] == "counter"


def test_a_llama_from_its_configuration_equals_that_of_transformers() -> None:
    step = ModelStep(own_step(LLAMA), CPU)
    step(lambda: None)
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=64, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-05, rope_theta=500000.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(64, (2, 16))
    assert step.loss is not None
    assert step.loss.item() == pytest.approx(model(input_ids=tokens, labels=tokens).loss.item(), rel=1e-6)
    assert step.workload.blocks == ("model.layers.0", "model.layers.1")


@pytest.mark.soak
def test_checkpointed_blocks_give_the_same_gradients_and_keep_less(tmp_path: Path) -> None:
    gradients, kept = [], []
    for blocks in (0, 1):
        step = ModelStep(own_step(NANO, mode="backward", attention="own", checkpoint_blocks=blocks), CPU)
        gradients.append(step.gradients())
        kept.append(measured(measure_memory, own_memory(NANO, attention="own", checkpoint_blocks=blocks)).values)
    torch.testing.assert_close(gradients[0], gradients[1])
    assert kept[1]["saved_bytes"] < kept[0]["saved_bytes"] / 2
    assert kept[0]["block_saved_bytes"] == kept[1]["block_saved_bytes"]


@pytest.mark.soak
def test_kernels_belong_to_phases_and_modules() -> None:
    fields = {name: getattr(own_step(NANO, attention="own"), name) for name in ProfileCell.names()}
    rows = measured(measure_kernels, ProfileCell(**fields)).details["kernels"]
    scopes: dict[str, set[str]] = {}
    for row in rows:
        scopes.setdefault(row.phase, set()).add(row.scope)  # type: ignore[attr-defined]
    assert {"wte", "h.*", "h.*.c_attn", "h.*.mlp.*", "ln_f", "lm_head"} <= scopes["forward"]
    assert {"h.*.c_attn", "h.*.mlp.*", "lm_head"} <= scopes["backward"]


def test_the_path_of_equal_blocks_has_asterisks() -> None:
    assert star_numbers("model.layers.11.mlp.0") == "model.layers.*.mlp.*"
    assert star_numbers("0.conv1") == "*.conv1"
    assert star_numbers("layer4.2") == "layer4.*"


@pytest.mark.soak
def test_numerics_computes_the_reference_in_float64_throughout(tmp_path: Path) -> None:
    """The model itself casts to float32, which would round the reference to seven digits."""
    body = """
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.full((1,), 1 / 3))
            def forward(self, x):
                return (x.to(torch.float32) * self.weight.float()).pow(3).sum(dtype=torch.float32)
        def build(want):
            return Own(), torch.full((want.batch, 4), 0.1)
        """
    spec = own_file(tmp_path, body)
    fields = {name: getattr(own_step(spec, context=0, attention="own"), name) for name in NumericsCell.names()}
    values = measured(measure_numerics, NumericsCell(**fields)).values
    weight, x = (torch.tensor(number, dtype=torch.float32).double().item() for number in (1 / 3, 0.1))
    assert values["reference"] == "fp64"
    assert values["reference_loss"] == pytest.approx(8 * (weight * x) ** 3, rel=1e-14)
    assert values["logits_error"] is None  # the model returns only its loss


def test_the_blocks_of_a_nested_model_are_those_with_the_most_parameters() -> None:
    def block(width: int) -> nn.Module:
        return nn.TransformerEncoderLayer(width, 1, dim_feedforward=8, batch_first=True)

    model = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)), "b": nn.ModuleList()})
    model["b"].extend(block(4) for _ in range(3))  # type: ignore[operator]
    assert find_blocks(model) == ("b.0", "b.1", "b.2")
    assert find_blocks(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == ()


def test_weights_in_bf16_and_inputs_that_go_with_them() -> None:
    step = ModelStep(own_step(MLP, context=0, attention="own", precision="bf16", weights_dtype="bf16"), CPU)
    assert {parameter.dtype for parameter in step.model.parameters()} == {torch.bfloat16}
    assert step.workload.inputs[0].dtype == torch.bfloat16


def test_compiled_gradients_of_a_model_with_dropout_are_not_compared(tmp_path: Path) -> None:
    body = """
        def build(want):
            model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
            return model, torch.randn(want.batch, 8), lambda out: out.square().mean()
        """
    step = ModelStep(own_step(own_file(tmp_path, body), context=0, attention="own", mode="backward"), CPU)
    first, second = (step.gradients() for _ in range(2))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert take_gradients(step.model).keys() == first.keys()


@pytest.mark.soak
def test_a_step_that_leaks_memory_is_found(tmp_path: Path) -> None:
    body = """
        KEPT = []
        def loss(out):
            KEPT.append(torch.ones(2 ** 20))  # 4 MiB
            return out.sum()
        def build(want):
            return nn.Linear(4, 4), torch.ones(want.batch, 4), loss
        """
    cell = replace(own_step(own_file(tmp_path, body), context=0, attention="own"), min_steps=40, max_steps=40)
    assert measured(measure_step, cell).values["memory_growth_bytes"] == pytest.approx(2**22, rel=0.25)


def test_growth_is_measured_in_the_second_half() -> None:
    assert growth_per_step({1: 10, 2: 100, 4: 1000, 8: 1200, 10: 1300}) == (1300 - 1000) / 6
    assert growth_per_step({1: 10, 3: 70}) is None


def test_the_formula_and_the_counter_agree_on_our_transformer(tmp_path: Path) -> None:
    spec = own_file(tmp_path, our_model(SHAPE))
    for mode, context in (("inference", 8), ("backward", 24)):
        asked: dict[str, Any] = {"mode": mode, "context": context, "batch": 3, "attention": "naive"}
        counted = count_cell(own_step(spec, **asked), None)
        assert counted is not None
        assert counted.of_mode(mode) == steps.step_flops(StepCell(**SHAPE, **asked, precision="fp32"))
