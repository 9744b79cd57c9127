"""What a sentence says of one compiled cell, and of several."""

from typing import Any, cast

from pages.torch_compile.answers import graph_answer
from pages.torch_compile.speedups import CompileSpeedup
from runner.results.cells import CompileCost
from tests.synthetic import rows


def compiled(**known: Any) -> CompileSpeedup:
    """Returns a compiled cell of which only this is known; the sentence does not use its times."""
    unknown: dict[str, Any] = dict.fromkeys(
        ("torch", "cold_seconds", "warm_seconds", "shared_seconds", "compiled_at_once", "graphs", "graph_breaks",
         "recompiles", "compiled_gradient_error", "fallback")
    )  # fmt: skip
    cost = CompileCost(**(unknown | {"machine": "node1", "cell": rows.asked()} | known))
    return CompileSpeedup(variant="compiled", step=cast("Any", None), cost=cost)


def test_one_cell_is_spoken_of_in_the_singular() -> None:
    assert graph_answer([compiled(graph_breaks=0, compiled_gradient_error=0.012)]) == (
        "Of the one compiled cell: no graph break in the one that counts them; none was compiled again; "
        "each parameter's gradient is within 1.20% of eager's in the one that compares them."
    )
    assert "1 graph break in the one that counts them" in graph_answer([compiled(graph_breaks=1)])


def test_several_cells_are_counted() -> None:
    found = graph_answer([compiled(graph_breaks=0), compiled(graph_breaks=2), compiled(graph_breaks=1)])
    assert found == "Of 3 compiled cells: 3 graph breaks in 2 of the 3 that count them; none was compiled again."
