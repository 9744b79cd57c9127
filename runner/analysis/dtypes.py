"""Groups the formats of a pass's tensors, read as `DtypeRow`s, by what a practitioner calls each part of the model.

formats_of(rows)          # {"parameters": ["fp32"], "first linear's output": ["bf16"], …}
"""

from collections.abc import Iterable

from runner.schema import DtypeRow

_SHORT = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
#: Parts of the model by the last part of a module's path; other modules go by their path.
_PARTS = {
    "embedding": "embedding",
    "attention_norm": "normalization",
    "feed_forward_norm": "normalization",
    "final_norm": "normalization",
    "query": "queries, keys and values",
    "key": "queries, keys and values",
    "value": "queries, keys and values",
    "attention": "attention's output",
    "gate": "gate and up products",
    "up": "gate and up products",
    "feed_forward": "feed-forward's output",
    "0": "residual stream",
    "first": "first linear's output",
    "relu": "ReLU's output",
    "layer_norm": "layer norm's output",
}
#: Modules whose output is another part already: the product at a part's end, and the logits.
_SAME = {"output", "down", "head", "last"}


def part_of(row: DtypeRow) -> str | None:
    """Returns the part of the model that the row is about, None for one that another row covers."""
    if row.part in ("logits", "loss"):
        return row.part
    if row.part in ("parameter", "gradient"):
        return f"{row.part}s"
    last = row.module.rsplit(".", 1)[-1]
    return None if last in _SAME else _PARTS.get(last, row.module)


def formats_of(rows: Iterable[DtypeRow]) -> dict[str, list[str]]:
    """Returns the formats in which each part was read, parts in the order of the pass."""
    found: dict[str, list[str]] = {}
    for row in rows:
        part, name = part_of(row), _SHORT.get(row.dtype, row.dtype)
        if part is not None and name not in found.setdefault(part, []):
            found[part].append(name)
    return found
