"""A whole report: the head, every question with its answer, and what stays open, in any form of `markdown`.

    text = write_document(document, MARKDOWN)

Questions of the course's handout come first, in its order, then the others. Limits: tables are cut after MAX_LINES.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.answers import QUESTIONS
from runner.answers.answer import Answer, View
from runner.plan.commands import sweep_commands
from runner.render.markdown import HTML, LATEX, Form, write

#: The questions of the handout by their ids, in short.
COURSE = {
    "B1": "Forward, backward and optimizer time of each size",
    "B2": "Is the variability small?",
    "B3": "What happens with 0, 1, 2 and 5 warm-up steps, and why?",
    "K1": "Total forward time in the profiler; does it match the clock?",
    "K2": "Which kernel takes the most GPU time, and how often is it called?",
    "K3": "Which kernels besides matrix products matter?",
    "K4": "How does the share of matrix products change from inference to a full step?",
    "K5": "Softmax against matrix products inside attention: time and FLOPs",
    "P1": "Four accumulations of 1000 × 0.01",
    "P2": "dtypes under autocast",
    "P3": "fp32 against bf16 for every size, forward and backward",
    "M1": "Memory timeline of inference and of a full training step",
    "M2": "Peak memory, forward and full step, per context",
    "M3": "The same under mixed precision",
    "M4": "Size of one residual-stream activation",
    "M5": "The largest allocations and the line of code they come from",
    "M6": "Bytes saved for backward by one block; effect of checkpointing",
    "A1": "Time of single-head attention by head width and length",
    "A2": "Memory before backward, its growth, and what runs out",
    "A3": "How to be rid of that memory",
    "C1": "Attention compiled against eager",
    "C2": "The whole model compiled against eager",
}
#: Answers that a document leaves out: its head gives the runs in short, and whether a step will fit is a prediction.
LEFT_OUT = ("runs", "fit")
#: The parts of the handout that lie outside of what is measured here.
OUTSIDE = "writing FlashAttention or a distributed training step of one's own"
#: The facts of a brief document.
BRIEF_FACTS = ("Reference", "Machine", "Trust")
#: The most lines of a table, and the most views of a question that is not the handout's.
MAX_LINES, VIEWS_BESIDE = 10, 1


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report. `facts` describe the machine and how far the rows can be trusted, under short names."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]


def order_questions() -> list[str]:
    """Returns the names of all questions: those of the handout in its order, then the others."""
    ids = list(COURSE)
    places = {
        name: min((ids.index(one) for one in question.course if one in ids), default=len(ids))
        for name, question in QUESTIONS.items()
    }
    return sorted(QUESTIONS, key=lambda name: (places[name], name))


def list_unanswered(answers: Sequence[Answer]) -> list[str]:
    """Returns the ids of the handout's questions that no answer with a view covers."""
    covered = {one for answer in answers if answer.views for one in QUESTIONS[answer.question].course}
    return [one for one in COURSE if one not in covered]


def _without_remarks(view: View) -> View:
    """Returns the view without the long columns of its table."""
    return replace(view, columns=tuple(name for name in view.columns if not view.field(name).is_long))


def write_document(document: Document, form: Form, *, brief: bool = False) -> str:
    """Returns the document; a brief one has the first view of each answer and no commands."""
    facts = [(name, text) for name, text in document.facts if not brief or name in BRIEF_FACTS]
    if facts and not brief:
        unanswered = list_unanswered(document.answers)
        covered = [one for one in COURSE if one not in unanswered]
        text = f"answered here: {', '.join(covered) or 'none'} of its {len(COURSE)} questions about measuring"
        text += f"; not answered: {', '.join(unanswered)}" if unanswered else ""
        facts.append(("Handout", f"{text}. Outside of what Stepscope measures: {OUTSIDE}."))
    parts = [form.heading(form.escape(document.title), 1)]
    parts += [form.paragraph(form.bold(form.escape(f"{name}.")) + " " + form.escape(text)) for name, text in facts]
    for answer in document.answers:
        if answer.views and answer.question not in LEFT_OUT:
            question = QUESTIONS[answer.question]
            ids = f" ({', '.join(question.course)})" if question.course else ""
            most = 1 if brief else None if question.course else VIEWS_BESIDE
            views = tuple(map(_without_remarks, answer.views[:most]))
            shown = replace(answer, views=views, more="" if brief else answer.more)
            words = f"{question.words}{ids}"
            parts.append(write(shown, form, words=words, commands=not brief, max_lines=MAX_LINES).rstrip())
    if not brief:
        parts += _write_open(document, form)
    body = "\n\n".join(parts) + "\n"
    if form is HTML:
        head = f"<meta charset=utf-8><title>{HTML.escape(document.title)}</title><style>{_STYLE}</style>"
        return f"<!doctype html><html lang=en>{head}\n{body}"
    if form is LATEX:
        packages = ("[T1]{fontenc}", "{booktabs}", "[margin=2cm]{geometry}")
        head = "\n".join([r"\documentclass{article}", *(rf"\usepackage{package}" for package in packages)])
        return f"{head}\n\\begin{{document}}\n{body}\\end{{document}}\n"
    return body


def _write_open(document: Document, form: Form) -> list[str]:
    """Returns the section on what is missing: the handout's questions first, then what answers lack."""
    parts = []
    unanswered = list_unanswered(document.answers)
    lacking = [(answer, one) for answer in document.answers for one in answer.missing]
    if unanswered or lacking:
        parts.append(form.heading(form.escape("Open questions"), 2))
    if unanswered:
        words = "; ".join(f"{one}: {COURSE[one]}" for one in unanswered)
        parts.append(form.paragraph(form.escape(f"Of the handout, these rows do not answer {words}.")))
    for answer, missing in lacking:
        parts.append(form.paragraph(form.escape(f"{QUESTIONS[answer.question].words} Missing: {missing.words}.")))
        if commands := sweep_commands(missing.cells, fresh=False):
            parts.append(form.code(commands))
    return parts


_STYLE = """:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto } th, td { padding: .2rem .6rem; text-align: left }
th { border-bottom: 1px solid } .n { text-align: right } pre { overflow-x: auto }"""
