"""Models of the same shape as Stepscope's Transformer, as own models: nanoGPT's style, transformers' Llama,
and layers of torchtune, where it is installed.

    python -m runner model check tests/own/same_shape.py:llama,width=768,inner=3072,layers=12,heads=12

The options are the numbers of the shape; `inner` is the width of the gated feed-forward network. Tokens and loss are
those of Stepscope's Transformer, so that no model has to copy its logits for the loss. Limits: attention is always
PyTorch's `scaled_dot_product_attention`; these models' keys do not know the modules that lie in `tests.bench.models`.
"""

import torch
from torch import nn
from torch.nn import functional

from runner.schema import StepCell
from tests.bench.models import Llama, NanoGPT, Torchtune


class Causal(nn.Module):
    """Transformers' Llama, its layers called without a mask, so that attention is causal by its own argument.

    Under the compiler the library (5.17 and 5.23) makes a mask out of the positions, in case several texts are packed
    into one, and fused attention with a mask cannot be FlashAttention."""

    def __init__(self, llama):
        super().__init__()
        self.inner, self.head = llama.inner.model, llama.inner.lm_head

    def forward(self, tokens):
        x = self.inner.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        rotary = self.inner.rotary_emb(x, position_ids=positions)
        for layer in self.inner.layers:
            x = layer(x, attention_mask=None, position_ids=positions, position_embeddings=rotary)
        return self.head(self.inner.norm(x))


def nano(want):
    return NanoGPT(read_shape(want)), *make_data(want)


def llama(want):
    """Builds Llama as the library runs it. To make its mask it looks at numbers, which the meta device has not got:
    there it gets none, and has the same products."""
    model = Llama(read_shape(want))
    return Causal(model) if want.device.type == "meta" else model, *make_data(want)


def llama_causal(want):
    return Causal(Llama(read_shape(want))), *make_data(want)


def torchtune(want):
    return Torchtune(read_shape(want)), *make_data(want)


def read_shape(want):
    """Returns a cell of the shape in the options, by default that of toy-64."""
    assert want.attention == "sdpa", f"these models have no attention {want.attention}"
    return StepCell(
        d_model=want.option("width", 64),
        d_ff=want.option("inner", 192),
        layers=want.option("layers", 2),
        heads=want.option("heads", 2),
        vocabulary=want.option("vocabulary", 2048),
        batch=want.batch,
        context=want.context,
        mode="train",
        precision="bf16",
    )


def make_data(want):
    """Returns random tokens, and the loss of predicting the next one."""
    tokens = torch.randint(want.option("vocabulary", 2048), (want.batch, want.context + 1))
    targets = tokens[:, 1:].reshape(-1)
    return tokens[:, :-1].contiguous(), lambda logits: functional.cross_entropy(logits.flatten(0, 1), targets)
