"""The work of an operator, from the shapes of its arguments, compared with sums done by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from runner.analysis.costs.operations import CAUSAL, Arguments, flops, moved_bytes


@pytest.mark.parametrize("name", CAUSAL)
def test_the_argument_that_makes_attention_causal(name: str) -> None:
    for suffix, place in zip(("", "_backward"), CAUSAL[name], strict=True):
        schema = getattr(torch.ops.aten, name + suffix).default._schema
        assert schema.arguments[place].name == "is_causal"


def asked(operator: str, *arguments: tuple[Any, str], values: Sequence[Any] = ()) -> Arguments:
    return Arguments(
        operator=operator,
        shapes=[shape for shape, _ in arguments],
        dtypes=[dtype for _, dtype in arguments],
        values=values or [None] * len(arguments),
        list_bytes=2,
    )


def test_bytes_count_inputs_and_outputs_once() -> None:
    wide, half = ([2, 3, 4], "float"), ([4], "c10::BFloat16")
    scalar: tuple[list[int], str] = ([], "Scalar")
    cases = [
        (asked("aten::mm", ([2, 3], "c10::BFloat16"), ([3, 5], "c10::BFloat16")), 2 * (6 + 15 + 10)),
        (asked("aten::addmm", ([5], "float"), ([2, 3], "float"), ([3, 5], "float")), 4 * (5 + 6 + 15 + 10)),
        (asked("aten::mul", wide, half), 24 * 4 + 4 * 2 + 24 * 4),
        (asked("aten::add_", wide, scalar), 2 * 24 * 4),
        (asked("aten::lt", wide, wide), 2 * 24 * 4 + 24),
        (asked("aten::copy_", ([8], "float"), ([8], "c10::Half")), 8 * 4 + 8 * 2),
        (asked("aten::fill_", wide, scalar), 24 * 4),
        (asked("aten::mean", wide, ([], "ScalarList"), values=[None, [-1], True, None]), 24 * 4 + 6 * 4),
        (asked("aten::sum", wide), 24 * 4 + 4),
        (asked("aten::_softmax", ([8, 8], "c10::BFloat16"), scalar, scalar, values=[None, -1, True]), 64 * 2 + 64 * 4),
        (asked("aten::_foreach_add_", ([[3], [5]], "TensorList"), ([[3], [5]], "TensorList")), 2 * (8 + 8 + 8)),
        (asked("aten::einsum", ([], ""), ([[2, 3]], "TensorList")), None),
        (asked("aten::mul", ([4], "a type of tomorrow"), scalar), None),
    ]
    for call, expected in cases:
        assert moved_bytes(call) == expected, call
    assert flops(asked("aten::mul", wide, half)) == 24
    assert flops(asked("aten::exp", wide)) is None
