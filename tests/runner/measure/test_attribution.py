"""Kernels of a synthetic GPU trace are attributed to the operator, phase and range that launched them."""

import itertools
from collections import Counter
from typing import Any

from runner.measure.device_time import union_ns
from runner.measure.kernels import ProfilerEvent, Trace, kernel_sums


def on_cuda() -> Trace:
    """Returns a forward and a backward pass on a GPU as the profiler reports it: times in ns, one kernel of 100 after
    the other, all of them later than the host's calls, and one kernel on a second stream."""
    host, autograd = 11, 12
    numbers = itertools.count(1)

    def call(name: str, start: int, end: int, **values: Any) -> ProfilerEvent:
        kind = values.pop("kind", "call")
        thread = values.pop("thread", host)
        given = {"torch_thread": 1 if thread == host else 2, "correlation": next(numbers), **values}
        return ProfilerEvent(kind=kind, name=name, start_ns=start, end_ns=end, thread=thread, **given)

    square = {"shapes": [[8, 8], [8, 8]], "dtypes": ["float", "float"], "values": [None, None]}
    softmax = {"shapes": [[8, 8], [], []], "dtypes": ["float", "Scalar", "Scalar"], "values": [None, -1, False]}
    forward = [
        call("step", 0, 1000, kind="range"),
        call("forward", 0, 100, kind="range"),
        call("attention scores", 10, 40, kind="range"),
        call("aten::bmm", 12, 38, sequence=5, **square),
        call("aten::ones", 40, 41, sequence=6),  # needs no backward, and has the sequence number of the next operator
        call("attention softmax", 50, 90, kind="range"),
        call("aten::softmax", 52, 88, sequence=6),
        call("aten::_softmax", 54, 86, sequence=6, **softmax),
        call("backward", 100, 200, kind="range"),
    ]
    node = {"kind": "node", "thread": autograd, "forward_thread": 1}
    backward = [
        call("autograd::engine::evaluate_function: SoftmaxBackward0", 110, 140, sequence=6, **node),
        call("SoftmaxBackward0", 111, 139, sequence=6, **node),
        call("aten::_softmax_backward_data", 112, 138, thread=autograd, **softmax),
        call("autograd::engine::evaluate_function: BmmBackward0", 140, 180, sequence=5, **node),
        call("aten::bmm", 142, 178, thread=autograd, **square),
        call("cudaLaunchKernel", 150, 155, thread=autograd, linked=13, correlation=900),
        call("cuLaunchKernel", 160, 165, thread=autograd, linked=0, correlation=901),
    ]
    by_name = {event.name: event.correlation for event in forward + backward if event.name.startswith("aten::_")}
    products = [event.correlation for event in forward + backward if event.name == "aten::bmm"]
    kernels = [
        ("sm90_gemm", 300, 400, products[0]),
        ("splitKreduce_kernel", 350, 450, products[0]),  # overlaps by 50
        ("softmax_warp_forward", 450, 550, by_name["aten::_softmax"]),
        ("softmax_warp_backward", 550, 650, by_name["aten::_softmax_backward_data"]),
        ("sm90_gemm", 650, 760, products[1]),
        ("triton_poi_fused_add_0", 760, 860, 0),  # launched without an operator; the driver's call identifies it
        ("nobody's", 860, 960, 0),
    ]
    # The profiler waits while the device's queue is full, and reports that with the number of an operator.
    backward.append(call("Command Buffer Full", 156, 158, thread=autograd, correlation=products[1]))
    correlation = {"sm90_gemm": 900, "triton_poi_fused_add_0": 901}
    device = [
        ProfilerEvent("kernel", name, start, end, thread=7, linked=linked, correlation=correlation.get(name, 999))
        for name, start, end, linked in kernels
    ]
    return Trace(forward + backward + device)


def test_kernels_belong_to_the_operator_that_launched_them_however_late_they_run() -> None:
    trace = on_cuda()
    work = list(trace.work())
    sums = kernel_sums(trace, work, list_bytes=4)
    assert {key: (found.calls, found.ns) for key, found in sums.items()} == {
        ("forward", "attention scores", "sm90_gemm"): (1, 100),
        ("forward", "attention scores", "splitKreduce_kernel"): (1, 100),
        ("forward", "attention softmax", "softmax_warp_forward"): (1, 100),
        ("backward", "attention softmax", "softmax_warp_backward"): (1, 100),
        ("backward", "attention scores", "sm90_gemm"): (1, 110),
        ("backward", "attention scores", "triton_poi_fused_add_0"): (1, 100),
        ("unknown", "", "nobody's"): (1, 100),
    }
    assert union_ns(work) == 960 - 300
    assert sums["backward", "attention scores", "sm90_gemm"].operators == Counter({"aten::bmm": 110})


def test_flops_of_an_operator_go_to_the_longest_of_its_kernels() -> None:
    sums = kernel_sums(on_cuda(), list(on_cuda().work()), list_bytes=4)
    counted = {(phase, kernel): found.total(0) for (phase, _, kernel), found in sums.items()}
    assert counted == {
        ("forward", "sm90_gemm"): 2 * 8**3,
        ("forward", "splitKreduce_kernel"): None,
        ("forward", "softmax_warp_forward"): 5 * 64,
        ("backward", "softmax_warp_backward"): 4 * 64,
        ("backward", "sm90_gemm"): 2 * 8**3,
        ("backward", "triton_poi_fused_add_0"): None,
        ("unknown", "nobody's"): None,
    }
