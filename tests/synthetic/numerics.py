"""Synthetic rows of numerics: toy-64 at 128 tokens, where bf16 is twice as fast as fp32 and its gradients have an error
of 0.5%, and one sum that is measured.

store(path)
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.schema import (
    AccumulationCell,
    AccumulationRow,
    DtypeRow,
    NormalisationRow,
    NumericsRow,
    PartialSumRow,
    new_id,
)
from runner.store.spool import Spool
from runner.sweep.loop import ingest_all
from tests.runner.measure import test_accumulation
from tests.runner.measure.test_numerics import cell
from tests.synthetic import rows


def store(db: Path) -> Path:
    """Writes steps of toy-64 in fp32 and, twice as fast, bf16; synthetic rows of numerics for them; one sum by hand."""
    rows.store(db, of := rows.run(), [rows.ok(of, rows.asked(precision=name)) for name in ("fp32", "bf16")])
    for name, error in (("fp32", 5e-7), ("bf16", 5e-3)):
        asked = cell(**rows.TOYS["toy-64"], context=128, batch=4, precision=name)
        ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
        row = NumericsRow(**rows.key_of(asked), **ids, cell_key=asked.key, status="ok", reference="fp64", loss=7.6,
                          loss_error=error / 100, logits_error=error / 2, gradient_error=error)  # fmt: skip
        wide = {"bf16": "bfloat16"}.get(name, "float32")
        seen = [("parameter", "first.weight", "float32"), ("output", "first", wide),
                ("output", "layer_norm", "float32"), ("logits", "", wide)]  # fmt: skip
        read_off = [DtypeRow(**ids, position=at, model="toy", part=part, module=module, dtype=dtype)
                    for at, (part, module, dtype) in enumerate(seen)]  # fmt: skip
        statistics = [NormalisationRow(**ids, layer=0, statistic="mean of squares", computed_in=kind, scale=scale,
                                       error=None if kind == "fp16" and scale > 1 else 1e-3,
                                       overflowed_share=0.75 if kind == "fp16" and scale > 1 else 0.0,
                                       underflowed_share=0.0)
                      for kind in ("fp32", "bf16", "fp16") for scale in (1.0, 1024.0)]  # fmt: skip
        Spool(db).write({"runs": [of], "numerics": [row], "dtypes": read_off, "normalisation": statistics},
                        str(ids["cell_id"]))  # fmt: skip
    sum_asked = AccumulationCell(accumulator="fp16", addend="fp16")
    found, ids = test_accumulation.measured(sum_asked), {"run_id": of.run_id, "cell_id": new_id()}
    total = AccumulationRow(**rows.key_of(sum_asked), **ids, cell_key=sum_asked.key, status="ok", **found.values)
    partial = [replace(point, **ids) for point in found.details["partial_sums"] if isinstance(point, PartialSumRow)]
    Spool(db).write({"runs": [of], "accumulation": [total], "partial_sums": partial}, str(total.cell_id))
    ingest_all(db)
    return db
