"""A second implementation of the model in NumPy and float64, from its formulas, with which transformer.py is compared.

    logits_btv = logits(weights, tokens_bt, heads=2)

`weights` are arrays by the names in the PyTorch model's state, each of shape (outputs, inputs). The code loops over
positions and heads instead of indexing cleverly and uses nothing from `runner`, so that the two share no mistake.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def logits(weights: Mapping[str, Array], tokens: NDArray[np.int64], *, heads: int) -> Array:
    """Returns logits of shape (batch, time, vocabulary) for tokens of shape (batch, time)."""
    return np.stack([_sequence(weights, sequence, heads) for sequence in tokens])


def _sequence(weights: Mapping[str, Array], tokens: NDArray[np.int64], heads: int) -> Array:
    x = weights["embedding.weight"][tokens]
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for layer in range(layers):
        block = {name.split(".", 2)[2]: value for name, value in weights.items() if name.startswith(f"blocks.{layer}.")}
        x = x + _attention(block, _norm(x, block["attention_norm.gain"]), heads)
        normed = _norm(x, block["feed_forward_norm.gain"])
        gate = normed @ block["feed_forward.gate.weight"].T
        hidden = gate / (1 + np.exp(-gate)) * (normed @ block["feed_forward.up.weight"].T)
        x = x + hidden @ block["feed_forward.down.weight"].T
    return _norm(x, weights["final_norm.gain"]) @ weights["head.weight"].T


def _norm(x: Array, gain: Array) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * gain)


def _attention(block: Mapping[str, Array], x: Array, heads: int) -> Array:
    time, width = x.shape
    size = width // heads
    out = np.zeros((time, width))
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        q, k, v = (x @ block[f"attention.{name}.weight"][rows].T for name in ("query", "key", "value"))
        q, k = _turn(q), _turn(k)
        for now in range(time):
            scores = np.array([q[now] @ k[before] for before in range(now + 1)]) / np.sqrt(size)
            shares = np.exp(scores - scores.max())
            out[now, rows] = shares / shares.sum() @ v[: now + 1]
    return out @ block["attention.output.weight"].T


def _turn(x: Array) -> Array:
    """Multiplies pair i of position t, as a complex number, by exp(j t / 10,000^(2 i / size))."""
    time, size = x.shape
    turned = np.zeros_like(x)
    for t in range(time):
        for i in range(size // 2):
            number = complex(x[t, 2 * i], x[t, 2 * i + 1]) * np.exp(1j * t / 10_000 ** (2 * i / size))
            turned[t, 2 * i], turned[t, 2 * i + 1] = number.real, number.imag
    return turned
