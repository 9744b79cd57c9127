"""An answer as JSON: every view with its columns, units and raw rows, how it is drawn, and the commands."""

import json
from typing import Any

from runner.answers.answer import Answer, View, split_bold
from runner.plan.commands import sweep_commands


def dump(answer: Answer, **how: Any) -> str:
    return to_text(as_json(answer), **how)


def to_text(document: Any, **how: Any) -> str:
    return json.dumps(document, ensure_ascii=False, default=str, **how)


def as_json(answer: Answer) -> dict[str, Any]:
    return {
        "question": answer.question,
        "sentence": "".join(split_bold(answer.sentence)),
        "more": "".join(split_bold(answer.more)),
        "chosen": {one.name: {"value": one.chosen, "options": one.options} for one in answer.choices},
        "views": [_view(view) for view in answer.views],
        "doubts": [{**vars(one), "cells": sorted(map(str, one.cells))} for one in answer.doubts],
        "missing": [one.words for one in answer.missing],
        "commands": sweep_commands(answer.cells.values()),
    }


def _view(view: View) -> dict[str, Any]:
    return {
        "name": view.name,
        "title": view.title,
        "about": view.about,
        "note": view.note,
        "columns": [vars(item) for item in view.fields],
        "rows": [
            {**dict(zip(view.names, row.values, strict=True)), "cells": [str(one) for one in row.cells]}
            for row in view.rows
        ],
        "draw": {
            **{name: value for name, value in vars(view.draw).items() if value and name != "guides"},
            **{end: name for end in ("low", "high") if (name := view.of_role(end))},
        },
        "guides": [{**vars(guide), "power": guide.power and vars(guide.power)} for guide in view.draw.guides],
    }
