"""The section of Mixed precision on the cost of precision: its sentences and charts.

Its rows are synthetic: toy-64 at 128 tokens, where bf16 is twice as fast as fp32 and its gradients have an error of
0.5%.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

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
from runner.sweep.storing import ingest_all
from tests.browser import Site, opened, said, traces, unfold
from tests.runner.measure import test_accumulation
from tests.runner.measure.test_numerics import cell
from tests.synthetic import rows


def written(db: Path) -> Path:
    """Writes steps of toy-64 in fp32 and, twice as fast, bf16; synthetic rows of numerics for them; one sum by hand."""
    of = rows.run()
    rows.store(db, of, [rows.ok(of, rows.asked(precision=name)) for name in ("fp32", "bf16")])
    for name, error in (("fp32", 5e-7), ("bf16", 5e-3)):
        asked = cell(**rows.TOYS["toy-64"], context=128, batch=4, precision=name)
        ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
        row = NumericsRow(**_key(asked), **ids, cell_key=asked.key, status="ok", reference="fp64", loss=7.6,
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
    _write_sum(db, of)
    ingest_all(db)
    return db


def _write_sum(db: Path, of: Any) -> None:
    found = test_accumulation.measured(AccumulationCell(accumulator="fp16", addend="fp16"))
    asked = AccumulationCell(accumulator="fp16", addend="fp16")
    ids = {"run_id": of.run_id, "cell_id": new_id()}
    row = AccumulationRow(**_key(asked), **ids, cell_key=asked.key, status="ok", **found.values)
    partial = [replace(point, **ids) for point in found.details["partial_sums"] if isinstance(point, PartialSumRow)]
    Spool(db).write({"runs": [of], "accumulation": [row], "partial_sums": partial}, str(row.cell_id))


def _key(asked: Any) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in type(asked).names()}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, browser: Browser, site: Site) -> Iterator[Page]:
    db = written(tmp_path_factory.mktemp("numerics") / "results.duckdb")
    toy = "dtypes-of=toy%3A+linear%2C+ReLU%2C+layer+norm%2C+linear"
    with site.showing(db) as address, opened(browser, f"{address}/mixed-precision?{toy}") as visit:
        expect(visit.page.get_by_role("heading", name="What in normalization")).to_be_visible()
        yield visit.page


def test_the_page_states_the_cost_of_precision(page: Page) -> None:
    words = said(page)
    assert (
        "Cost in accuracy: gradients are off by 0.500% and the loss by 0.00500% (one pass of toy-64 · 128 tokens"
        in words
    )
    assert "off from fp64 by fp32 5.00×10⁻⁷, bf16 0.500% (2.00× the speed of fp32)" in words
    assert "near 9.95, fp16's numbers are 0.0078125 apart, so that adding 0.0100021362 adds 0.0078125" in words
    assert (
        "Under bf16 autocast, fp32 holds parameters, layer norm's output; the lower precision holds first linear's"
        in words
    )
    assert "in fp16 it is off by 0.100% at 1×; at 1,024× it overflows for 75% of tokens" in words
    assert page.get_by_test_id("stException").count() == 0


def test_the_charts_of_the_section(page: Page) -> None:
    prices = traces(page, "precision-price")
    assert prices["gradients"]["x"] == pytest.approx([5e-7, 5e-3])
    assert prices["loss"]["x"] == pytest.approx([5e-9, 5e-5])
    assert prices["speedup"]["x"] == pytest.approx([2.0], rel=1e-3)
    drift = traces(page, "accumulation")["fp16 += fp16"]
    assert drift["y"][-1] == pytest.approx(-0.046875)
    assert drift["x"][-1] == 1000
    lost = traces(page, "normalization")["lost"]
    assert lost["x"] == [1024]
    unfold(page, "dtypes")
    expect(page.locator(".st-key-card-dtypes .js-plotly-plot")).to_have_count(1)
