"""The model: sizes, values compared with NumPy, causality, every attention implementation, compiling, checkpointing."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from runner.analysis.costs import attention
from runner.errors import UsageError
from runner.models.attention import ATTENTION, causal_blocks, unavailable
from runner.models.transformer import Transformer, apply_rope, fill_truncated_normal, rotary_tables
from runner.schema import Attention, StepCell
from tests.runner.models import reference_model

HERE = [name for name in ATTENTION if unavailable(name, "cpu") is None]


def make_cell(**changes: Any) -> StepCell:
    shape = {"d_model": 48, "d_ff": 80, "layers": 3, "heads": 4, "vocabulary": 61, "batch": 2, "context": 12}
    return StepCell(**{**shape, "mode": "train", "precision": "fp32", **changes})


def random_tokens(cell: StepCell) -> Tensor:
    return torch.randint(cell.shape.vocabulary, (cell.batch, cell.context))


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(1)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("d_model", "d_ff", "layers", "heads", "parameters"),
    [
        (768, 3072, 12, 12, 128_625_408),
        (1024, 4096, 24, 16, 423_183_360),
        (1280, 5120, 36, 20, 969_411_840),
        (1600, 6400, 48, 25, 1_998_235_200),
        (2560, 10240, 32, 32, 3_406_809_600),
        (4608, 12288, 50, 36, 12_832_823_808),
    ],
)
def test_sizes_have_the_published_parameters(d_model: int, d_ff: int, layers: int, heads: int, parameters: int) -> None:
    cell = make_cell(d_model=d_model, d_ff=d_ff, layers=layers, heads=heads, vocabulary=10_000, context=128)
    model = Transformer(cell, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model.rope_2te.numel() == 2 * 128 * (d_model // heads)


def test_logits_equal_numpy_in_float64() -> None:
    """Float32 against float64: three layers of products 48 to 80 long differ by about 1e-6 on logits of size 1."""
    cell = make_cell()
    model, tokens = Transformer(cell), random_tokens(cell)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain"):  # with gains of 1 a missing gain would not be noticed
                parameter.uniform_(0.5, 1.5)
        got = model(tokens).numpy()
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    expected = reference_model.logits(weights, tokens.numpy(), heads=cell.shape.heads)
    assert got.shape == (2, 12, 61)
    assert expected[:, 1:].std() > 0.3
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_the_gradient_of_rotary_positions_is_the_rotation_back() -> None:
    cosine, sine = rotary_tables(context=5, head_width=6).double()
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    towards = torch.randn_like(x)
    (got,) = torch.autograd.grad(apply_rope(x, cosine, sine), x, towards)
    torch.testing.assert_close(got, apply_rope(towards, cosine, -sine), rtol=0, atol=1e-15)


@pytest.mark.parametrize("attention", HERE)
def test_a_later_token_does_not_change_earlier_logits(attention: str) -> None:
    cell = make_cell(attention=attention)
    model, tokens = Transformer(cell), random_tokens(cell)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % cell.shape.vocabulary
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :7], before[:, :7], rtol=0, atol=1e-6)
    assert (after[:, 7:] - before[:, 7:]).abs().amax(dim=-1).min() > 1e-4


def test_every_attention_of_the_contract_exists() -> None:
    assert set(ATTENTION) == set(get_args(Attention))
    assert {"naive", "sdpa", "sdpa-math", "sdpa-flash"} <= set(HERE)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", [name for name in HERE if name != "naive"])
def test_attention_agrees_with_naive_in_outputs_and_gradients(name: str, causal: bool) -> None:
    inputs = [torch.randn(2, 3, 20, 16) for _ in range(3)]
    upstream = torch.randn(2, 3, 20, 16)
    results = []
    for attend in (ATTENTION[name], ATTENTION["naive"]):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        output = attend(*leaves, causal=causal)
        results.append([output, *torch.autograd.grad(output, leaves, upstream)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most", [1024, 3])
@pytest.mark.parametrize("length", [1, 100, 128, 200, 512, 1000])
def test_the_blocks_of_flex_equal_pytorchs(length: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field agrees, also if the last block is not full or if few blocks a row make the blocks larger."""
    monkeypatch.setattr(attention, "MAX_FLEX_BLOCKS", most)
    causal_blocks.cache_clear()
    ours = causal_blocks(length, torch.device("cpu"))
    block = {(512, 3): 256, (1000, 3): 512}.get((length, most), 128)
    theirs = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu", BLOCK_SIZE=block)
    found, expected = ours.as_tuple(), theirs.as_tuple()
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        elif not callable(wanted):
            assert got == wanted


# flex compiles itself, and the compiler's own imports emit warnings.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.soak
def test_implementations_said_to_be_missing_really_fail() -> None:
    for name in set(ATTENTION) - set(HERE):
        assert "only for cuda" in (unavailable(name, "cpu") or "")
        missing = r"No viable backend|does not support backward|No module named 'flash_attn"
        with pytest.raises((RuntimeError, ModuleNotFoundError), match=missing):
            ATTENTION[name](*(torch.randn(1, 1, 8, 8, requires_grad=True) for _ in range(3)), causal=True)
    assert unavailable("sdpa-flash", "cuda", dtype=torch.bfloat16) is None
    assert "not float32" in (unavailable("sdpa-flash", "cuda", dtype=torch.float32) or "")


def check_compiled(model: Transformer, compiled: Any, cell: StepCell, *, error: float) -> None:
    """Asserts that the compiled model has the logits of the eager one and, where gradients are on, every gradient."""
    device, found = next(model.parameters()).device, []
    tokens = random_tokens(cell).to(device)
    for forward in (model, compiled):
        with torch.autocast(device.type, torch.bfloat16, enabled=cell.precision == "bf16"):
            logits = forward(tokens)
        found.append({"logits": logits})
        if torch.is_grad_enabled():
            model.zero_grad()
            logits.float().square().mean().backward()
            found[-1] |= {name: part.grad for name, part in model.named_parameters()}
    for name, expected in found[0].items():
        assert (found[1][name] - expected).norm() < error * expected.norm(), name


@pytest.mark.soak
@pytest.mark.parametrize(
    ("attention", "checkpoint_blocks", "precision", "grad_mode"),
    [
        ("naive", 2, "fp32", torch.enable_grad),
        ("sdpa-flash", 0, "fp32", torch.enable_grad),
        ("naive", 0, "bf16", torch.enable_grad),
        ("sdpa-flash", 1, "bf16", torch.enable_grad),
        ("naive", 0, "bf16", torch.no_grad),
        ("naive", 1, "bf16", torch.inference_mode),
    ],
)
def test_the_whole_model_compiles_without_a_graph_break(
    attention: str, checkpoint_blocks: int, precision: str, grad_mode: type[AbstractContextManager[None]]
) -> None:
    """Every parameter's gradient is compared too: PyTorch 2.11 returns zeros for some own backwards."""
    cell = make_cell(attention=attention, checkpoint_blocks=checkpoint_blocks, precision=precision)
    model = Transformer(cell)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with grad_mode():
        check_compiled(model, compiled, cell, error=1e-5 if precision == "fp32" else 0.05)  # bfloat16 keeps 8 bits


@pytest.mark.soak
# PyTorch hides this warning itself, but not if warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_blocks_compile_one_by_one() -> None:
    cell = make_cell()
    model, tokens = Transformer(cell), random_tokens(cell)
    expected = model(tokens)
    for block in model.blocks:
        block.compile(fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(model(tokens), expected)


@pytest.mark.parametrize("checkpoint_blocks", [1, 2, 9])
def test_checkpointing_changes_no_gradient(checkpoint_blocks: int) -> None:
    plain = Transformer(make_cell())
    thrifty = Transformer(make_cell(checkpoint_blocks=checkpoint_blocks))
    thrifty.load_state_dict(plain.state_dict())
    tokens = random_tokens(make_cell())
    for model in (plain, thrifty):
        model(tokens).square().mean().backward()
    for got, expected in zip(thrifty.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=0, atol=0)


def test_autocast_and_low_precision_weights() -> None:
    cell = make_cell()
    model, tokens = Transformer(cell), random_tokens(cell)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(tokens).dtype == torch.bfloat16
        assert model.blocks[0](model.embedding(tokens), model.rope_2te).dtype == torch.float32
    low = Transformer(make_cell(weights_dtype="bf16"))
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    assert low(tokens).dtype == torch.bfloat16
    assert low.rope_2te.dtype == torch.float32
    assert "rope_2te" not in low.state_dict()
    low.load_state_dict(model.state_dict())
    # Bfloat16 has 8 bits: 0.4% for each rounding, and a few percent after three layers.
    torch.testing.assert_close(low(tokens).float(), model(tokens), rtol=0, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_initial_weights_are_a_truncated_normal(dtype: torch.dtype) -> None:
    """A normal distribution cut at 3 has variance 1 - 6 phi(3) / (2 Phi(3) - 1) = 0.97334, a std of 0.98658."""
    weight = torch.empty(400, 500, dtype=dtype)
    fill_truncated_normal(weight, std=0.2)
    values = weight.double() / 0.2
    assert 2.97 < values.abs().max() < 3.01  # the bound of 0.6 itself is 0.6016 in bfloat16
    assert values.std().item() == pytest.approx(0.98658, abs=0.006)
    assert values.mean().item() == pytest.approx(0, abs=0.009)


def test_each_kind_of_weight_has_its_own_spread() -> None:
    model = Transformer(make_cell(d_model=128, d_ff=384, heads=2, vocabulary=1000))
    spread = {name: parameter.std().item() for name, parameter in model.named_parameters() if parameter.dim() == 2}
    expected = {
        "embedding.weight": 1.0,
        "blocks.0.attention.query.weight": math.sqrt(2 / (128 + 128)),
        "blocks.2.feed_forward.down.weight": math.sqrt(2 / (128 + 384)),
        "head.weight": math.sqrt(2 / (128 + 1000)),
    }
    for name, std in expected.items():
        assert spread[name] == pytest.approx(0.98658 * std, rel=0.02), name
    assert set(model.final_norm.gain.tolist()) == {1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "does not divide into 5 heads"),
        ({"d_model": 12}, "3 wide. Expected an even head width"),
        ({"layers": 0}, "layers is 0"),
        ({"checkpoint_blocks": -1}, "checkpoint_blocks is -1"),
        ({"attention": "flash"}, "No attention implementation is called 'flash'"),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Transformer(make_cell(**changes))


def test_more_tokens_than_built_for_are_refused() -> None:
    model = Transformer(make_cell())
    assert model(torch.zeros(1, 5, dtype=torch.int64)).shape == (1, 5, 61)
    with pytest.raises(UsageError, match=r"Got 13 tokens a sequence\. Expected at most 12"):
        model(torch.zeros(1, 13, dtype=torch.int64))
