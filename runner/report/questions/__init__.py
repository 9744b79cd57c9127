"""The questions, one declaration each, in the order of the assignment.

for question in QUESTIONS:
    print(question.id, question.answer(rows).sentence)
"""

from runner.report.document import Question
from runner.report.questions import (
    attention,
    attention_ways,
    block,
    compiled,
    inside_attention,
    kernel_classes,
    kernels,
    memory,
    precision,
    tensors,
    times,
    variability,
    warmup,
)
from runner.report.rows import Rows

QUESTIONS: tuple[Question[Rows], ...] = (
    *times.QUESTIONS,
    *variability.QUESTIONS,
    *warmup.QUESTIONS,
    *kernels.QUESTIONS,
    *kernel_classes.QUESTIONS,
    *inside_attention.QUESTIONS,
    *precision.QUESTIONS,
    *memory.QUESTIONS,
    *tensors.QUESTIONS,
    *block.QUESTIONS,
    *attention.QUESTIONS,
    *attention_ways.QUESTIONS,
    *compiled.QUESTIONS,
)
