"""Audits published sums and dtypes against those that arithmetic and autocast give.

    [found for rule in NUMERIC_RULES for found in rule(report)]

1,000 times 0.01, added up (IEEE 754, rounding to nearest): in float32 10.0001335; in float16 9.953125; a float32 sum
of float16 addends, cast before or while they are added, 10.0021362. Under CUDA's autocast (PyTorch's table of
operators) products give half precision, layer norm and the loss float32, and parameters and gradients stay float32.
Each rule's name is its findings' code.
"""

import re

from runner.analysis.audit.findings import fault
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import PublishedReport

#: The sums by the words of their case: the dtype of the accumulator, and that of the addends.
_FP32, _FP16, _BOTH = 10.0001335, 9.953125, 10.0021362
_HALF = re.compile(r"fp16|float16|half")
_FULL = re.compile(r"fp32|float32|single|mixed|cast")
#: The components by their words, in this order, and whether autocast leaves them in float32.
_COMPONENTS = (
    (r"grad", True),
    (r"param|weight", True),
    (r"loss", True),
    (r"norm|\bln\b", True),
    (r"logit|fc1|fc2|linear|feed.?forward|relu", False),
)


def wrong_accumulation(report: PublishedReport) -> Found:
    for reading in report.of("accumulation"):
        figure = next((f for f in reading.figures if f.quantity == "result"), None)
        case = (reading.key.part or reading.setting.name or "").lower()
        expected = _expected_sum(case)
        if figure is None or figure.value is None or expected is None:
            continue
        digits = len(figure.text.strip().partition(".")[2])
        if abs(figure.value - expected) > 0.51 * 10.0**-digits + 5e-7:
            sentence = f"1,000 times 0.01 in this way is {expected}, and {figure.text} is printed."
            yield touching([reading], fault("wrong_accumulation", sentence, printed=figure.value, expected=expected))


def _expected_sum(case: str) -> float | None:
    has_half, has_full = bool(_HALF.search(case)), bool(_FULL.search(case))
    if has_half or "mixed" in case or "cast" in case:
        return _BOTH if has_full else _FP16
    return _FP32 if has_full else None


def wrong_dtype(report: PublishedReport) -> Found:
    for reading in report.of("dtypes"):
        figure = next((f for f in reading.figures if f.quantity == "dtype"), None)
        part = (reading.key.part or "").lower()
        if figure is None:
            continue
        stays = next((full for words, full in _COMPONENTS if re.search(words, part)), None)
        is_half = bool(re.search(r"16|half", figure.text.lower()))
        if stays is None or stays != is_half:
            continue
        expected = "float32" if stays else "half precision"
        sentence = f"Under autocast this is {expected} ({reading.key.part}), and {figure.text} is printed."
        yield touching([reading], fault("wrong_dtype", sentence, printed=figure.text, expected=expected))


NUMERIC_RULES = (wrong_accumulation, wrong_dtype)
