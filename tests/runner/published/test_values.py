"""The text of a cell as a number in base units, or the reason why it is not a number."""

import time

import pytest

from runner.published.headings import parse_setting
from runner.published.values import CellValue, Dimension, is_oom, parse_cell, strip_markup


@pytest.mark.parametrize(
    ("text", "dimension", "unit", "values"),
    [
        ("12.3", "time", "ms", (12.3,)),
        ("0.0123", "time", "s", (12.3,)),
        ("867.8 μs", "time", "ms", (0.8678,)),
        ("867.8µs", "time", None, (0.8678,)),
        ("870 ns", "time", None, (0.00087,)),
        ("83.312 ms", "time", "s", (83.312,)),
        ("1.5 min", "time", None, (90_000.0,)),
        ("1.08077e-05", "time", "s", (0.0108077,)),
        ("-0.00274821", "time", "s", (-2.74821,)),
        ("\u22122.5", "time", "ms", (-2.5,)),
        ("12.3 ± 0.4", "time", "ms", (12.3, 0.4)),
        ("12.3 +/- 0.4 s", "time", "ms", (12_300.0, 400.0)),
        ("12.3ms ± 400us", "time", "s", (12.3, 0.4)),
        ("(12.3 ± 0.4) ms", "time", None, (12.3, 0.4)),
        ("12.3 ms (± 0.4)", "time", None, (12.3, 0.4)),
        ("**12.3**", "time", "ms", (12.3,)),
        ("36,592", "time", "ms", (36_592.0,)),
        ("1,234,567.5", "plain", None, (1_234_567.5,)),
        ("512", "bytes", "MiB", (512 * 2**20,)),
        ("1.5 GiB", "bytes", "MiB", (1.5 * 2**30,)),
        ("80GB", "bytes", None, (80e9,)),
        ("128M", "count", None, (128e6,)),
        ("2.36B", "count", None, (2.36e9,)),
        ("22.696", "count", "M", (22.696e6,)),
        ("1.73x", "plain", None, (1.73,)),
        ("1.73×", "plain", None, (1.73,)),
        ("70.9", "share", "%", (0.709,)),
        ("70.9%", "share", None, (0.709,)),
        ("312 TFLOP/s", "flops/s", None, (312e12,)),
        ("45.2 ktok/s", "tokens/s", None, (45_200.0,)),
        ("~12.3", "time", "ms", (12.3,)),
        ("12.3*", "time", "ms", (12.3,)),
    ],
)
def test_numbers(text: str, dimension: Dimension, unit: str | None, values: tuple[float, ...]) -> None:
    read = parse_cell(text, dimension=dimension, unit=unit)
    assert read.values == values
    assert not (read.remark or "").startswith("Refused")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("26. 4", "is no number"),
        ("26 .4", "is no number"),
        ("12 345", "is no number"),
        ("1.2.3", "is no number"),
        ("12..5", "is no number"),
        ("12ms34", "is no number"),
        ("12-15", "is no number"),
        ("<0.1", "is no number"),
        ("O.5", "is no number"),
        ("1e", "has the unit “e”"),
        ("12,5", "has a comma that may be a decimal point"),
        ("1.234,5", "has a comma that may be a decimal point"),
        ("0,123", "has a comma that may be a decimal point"),
        ("12.3 (0.4)", "has a second number in parentheses"),
        ("12.3 ± -0.4", "has a negative standard deviation"),
        ("12.3 MiB", "has the unit “MiB”, which is none of s, ms"),
        ("1e40", "is too large"),
        ("9" * 300, "is no number"),
    ],
)
def test_text_that_is_not_a_number_is_refused_and_not_read_as_another(text: str, why: str) -> None:
    read = parse_cell(text, dimension="time", unit="ms")
    assert read.values == ()
    assert (read.remark or "").startswith("Refused")
    assert why in (read.remark or "")


def test_assumptions_are_reported() -> None:
    assert parse_cell("36,592", dimension="time", unit="ms").remark == "The comma was read as a separator of thousands."
    assert "powers of 1,000" in (parse_cell("80 GB", dimension="bytes").remark or "")
    assert parse_cell("12.3†", dimension="time", unit="ms").remark == "The mark † was left out."
    assert parse_cell("36,592", dimension="time", unit="ms", commas="doubtful").values == ()
    assert parse_cell("1.234,5 ± 0,5", dimension="time", unit="ms", commas="decimal").values == (1234.5, 0.5)
    assert parse_cell("12.3 (0.4)", dimension="time", unit="ms", pair=True).values == (12.3, 0.4)
    assert parse_cell("12.3", dimension="time").remark == "Refused: “12.3” has no unit, and neither has its heading."


@pytest.mark.parametrize("text", ["", "nan", "NaN", "N/A", "-", "—", "None", "inf"])
def test_a_missing_value_is_neither_a_number_nor_refused(text: str) -> None:
    assert parse_cell(text, dimension="time", unit="ms") == CellValue()


@pytest.mark.parametrize(
    "text",
    ["OOM", "oom", "**OOM**", "CUDA OOM", "out of memory", "Out-of-memory", "OOM (backward)", "OutOfMemoryError",
     "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 2 is free."],
)  # fmt: skip
def test_memory_ran_out(text: str) -> None:
    assert parse_cell(text, dimension="time", unit="ms").is_oom


@pytest.mark.parametrize("text", ["no OOM", "without OOM", "room", "did not run out of memory", "0 OOM", "boom"])
def test_memory_did_not_run_out(text: str) -> None:
    assert not is_oom(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch", "4", 4),
        ("context", "1,024", 1024),
        ("d_model", "768.0", 768),
        ("d_model", "nan", None),
        ("d_model", "-1", None),
        ("d_model", "76 8", None),
        ("parameters", "128.6M", 128_600_000),
        ("precision", "torch.bfloat16", "bf16"),
        ("precision", "FP32", "fp32"),
        ("backend", "True", "compiled"),
        ("backend", "no", "eager"),
        ("mode", "fwd + bwd", "backward"),
        ("mode", "Forward + Backward + Optimizer", "train"),
        ("mode", "full training step", "train"),
        ("mode", "inference", "inference"),
        ("device", "CUDA", "cuda"),
        ("name", "`2.7B`", "2.7B"),
        ("name", "-", None),
    ],
)
def test_settings(name: str, text: str, value: object) -> None:
    assert parse_setting(name, text)[0] == value


def test_no_text_takes_long() -> None:
    began = time.monotonic()
    for piece in ("1,", "(", "± ", "{", "\\text{", "$", "~", "a/", "oom ", "1.", "\\textbf{\\textbf{", "*"):
        text = piece * (10_000 // len(piece))
        parse_cell(text, dimension="time", unit="ms")
        parse_cell(text[:190], dimension="time", unit="ms")
        strip_markup(text)
        is_oom(text)
    assert time.monotonic() - began < 5
