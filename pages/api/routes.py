"""Read-only HTTP routes for programs, on the same server as the pages.

    curl 'http://localhost:8501/api/v1'                                                  tables, columns and filters
    curl 'http://localhost:8501/api/v1/rows.csv?table=steps&mode=train&precision=bf16'   .csv, .json or .parquet
    curl 'http://localhost:8501/api/v1/answers'                                          the questions there are
    curl 'http://localhost:8501/api/v1/answers/precision?clock=latency'                as `runner show --json` prints it
    curl 'http://localhost:8501/api/v1/state'                                            changes when rows or plans do
    curl 'http://localhost:8501/healthz'                                                 200, or 503 and why

Filters have the names and values of a page's address; without filters all rows are returned. Limits: an answer holds at
most `MAX_ROWS` rows (`limit`, `offset`; X-Total-Count is the number of matching rows). `AT_ONCE` answers are made at
once; other requests wait for up to `PATIENCE_S`, then get 503 with Retry-After. With STEPSCOPE_API_TOKEN set, rows need
`Authorization: Bearer <token>`. With sign-in configured and no token set, only the pages give access to rows. Where
there are no rows yet, those of the reference are given, and `reference` (X-Stepscope-Reference) is true.
"""

import asyncio
import contextlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pages.api.files import FORMATS, encode_rows
from pages.api.parameters import (
    FILTERS,
    PARAMETERS,
    check_choices,
    list_names,
    parse_count,
    parse_parameters,
    parse_selection,
    parse_table,
)
from pages.live import ADDRESS, BASE, choose_shown_state
from pages.sign_in import signs_in
from runner.answers import QUESTIONS, ask, check_chosen
from runner.errors import DatabaseBusy, StepscopeError, StoreError, UsageError
from runner.places import default_path, list_files
from runner.render.json import dump
from runner.schema import TABLES, Status
from runner.store.database import fingerprint, look_through, plan_fingerprint
from runner.store.packing import choose_file, is_reference
from runner.store.read import read
from runner.store.read.runs import Contents, load_contents
from runner.store.read.selection import REPEATABLE
from runner.store.read.tables import MAX_ROWS, Window, list_filters, load_health, load_rows

#: The number of answers made at once, of requests that wait for one, and the longest wait (s).
AT_ONCE, MAX_WAITING, PATIENCE_S = 4, 256, 30.0
#: The number of rows of an answer without `limit`.
USUAL_ROWS = 10_000

_turns = asyncio.BoundedSemaphore(AT_ONCE)
_waiting: set[Request] = set()


async def _serve_document(make: Callable[[], Any], request: Request) -> Response:
    return _refuse_parameters(request) or await _serve(lambda _: JSONResponse(make()), request)


async def _serve_health(request: Request) -> Response:
    if refusal := _refuse_parameters(request):
        return refusal
    return await run_in_threadpool(_check_health, everything=_refuse_access(request) is None)


async def _serve_state(request: Request) -> Response:
    if refusal := _refuse_parameters(request):
        return refusal
    path = default_path()
    state = {
        "rows": await run_in_threadpool(choose_shown_state, path),
        "plan": await run_in_threadpool(plan_fingerprint, path),
    }
    return JSONResponse(state, headers={"Cache-Control": "no-store"})


async def _serve_nothing(request: Request) -> Response:
    rows = (f"{BASE}/api/v1/rows.{kind}" for kind in FORMATS)
    there = [f"{BASE}/api/v1", f"{BASE}/api/v1/answers", ADDRESS, *rows, f"{BASE}/healthz"]
    return _error(UsageError(f"Nothing is at {request.url.path[:200]}.", expected=list_names(there)), status=404)


async def _serve(work: Callable[[Request], Response], request: Request) -> Response:
    """Returns the result of `work`, which runs in a thread, or an error as JSON with got, expected, do."""
    if refusal := _refuse_access(request):
        return refusal
    if not await _wait_for_turn(request):
        busy = UsageError("Too many answers are asked for at once.", expected="a little patience", do="Ask again.")
        return _error(busy, status=503, headers=_AGAIN)
    try:
        return await run_in_threadpool(work, request)
    except UsageError as error:
        return _error(error, status=400)
    except StoreError as error:
        return _error(error, status=503, headers=_AGAIN if isinstance(error, DatabaseBusy) else None)
    finally:
        _turns.release()


async def _wait_for_turn(request: Request) -> bool:
    """Waits for one of the turns. Returns False after PATIENCE_S, and at once behind too many others."""
    if len(_waiting) >= MAX_WAITING:
        return False
    _waiting.add(request)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _turns.acquire()
    except TimeoutError:
        return False
    finally:
        _waiting.discard(request)
    return True


#: The header of an error that passes by itself, unlike a file that is missing or foreign.
_AGAIN = {"Retry-After": "1"}


def _error(error: StepscopeError, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": _describe_error(error)}, status_code=status, headers=headers)


def _describe_error(error: StepscopeError) -> dict[str, str]:
    """Returns the message without the folder of the file, which clients must not learn."""
    files = list[Path]()
    with contextlib.suppress(StoreError):
        files += list_files(default_path())
        files += list_files(choose_file())
    message = {"got": error.got, "expected": error.expected, "do": error.do}
    for folder in {parent for file in files for parent in (file.absolute().parent, file.parent)}:
        message = {name: text.replace(f"{folder}{os.sep}", "") for name, text in message.items()}
    return message


def _refuse_parameters(request: Request) -> Response | None:
    """Returns an error for a request with parameters, where there are none."""
    unknown = next(iter(request.query_params), None)
    if not unknown:
        return None
    got, do = f"The parameter “{unknown}”.", f"Rows have {list_names(PARAMETERS)}."
    return _error(UsageError(got, expected="none here", do=do), status=400)


def _refuse_access(request: Request) -> Response | None:
    """Returns an error for a request that may not read rows."""
    if token := os.environ.get("STEPSCOPE_API_TOKEN"):
        given = request.headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return None
        expected = "the header Authorization: Bearer <token>"
        error = UsageError("No valid token.", expected=expected, do="Ask who runs this server.")
        return _error(error, status=401, headers={"WWW-Authenticate": "Bearer"})
    if signs_in():
        error = UsageError(
            "This server asks people to sign in, and has no token for programs.",
            expected="STEPSCOPE_API_TOKEN in the server's environment",
            do="Ask who runs this server to set one.",
        )
        return _error(error, status=403)
    return None


def _answer(request: Request) -> Response:
    """Returns the answer to one question by the choices of the request. Raises UsageError, StoreError."""
    name = request.path_params["name"]
    if name not in QUESTIONS:
        raise UsageError(f"No question is called {name[:100]}.", expected=list_names(QUESTIONS))
    asked = dict(request.query_params)
    path = choose_file()
    contents = _load_contents(path, fingerprint(path))
    selection = parse_selection({key: [asked[key]] for key in ("machine", "run") if key in asked}, contents)
    selection = replace(selection, hidden=tuple(sorted(contents.notes.hidden)))
    if not QUESTIONS[name].of_file and selection.machine is None:
        selection = replace(selection, machine=next(iter(contents.machines), None))
    answer = ask(name, read(path, selection, {*QUESTIONS[name].needs, "audited"}), asked)
    check_chosen(answer, {key: value for key, value in asked.items() if key not in ("machine", "run", "data")})
    headers = {"X-Stepscope-Data": contents.edition, "Cache-Control": "no-store"}
    return Response(dump(answer), media_type="application/json", headers=headers)


def _encode_request(request: Request) -> Response:
    """Returns the rows that a request asks for. Raises UsageError, StoreError."""
    kind = request.path_params["format"]
    if kind not in FORMATS:
        raise UsageError(f"rows.{kind}.", expected=list_names([f"rows.{known}" for known in FORMATS]))
    asked = parse_parameters(request.query_params.multi_items())
    table, path = parse_table(asked), choose_file()
    held = _load_contents(path, fingerprint(path))
    window = Window(
        statuses=check_choices("status", asked.get("status", ()), get_args(Status)),
        limit=parse_count(asked, "limit", usual=USUAL_ROWS, most=MAX_ROWS),
        offset=parse_count(asked, "offset", usual=0, most=2**62),
    )
    page = load_rows(path, table.name, parse_selection(asked, held), window)
    headers = {
        "X-Total-Count": str(page.total),
        "X-Stepscope-Data": held.edition,
        "X-Stepscope-Reference": json.dumps(is_reference(path)),
        "Cache-Control": "no-store",
        "Content-Disposition": f'inline; filename="stepscope-{table.name}.{kind}"',
    }
    content = encode_rows(table, page, kind, is_reference=is_reference(path))
    return Response(content, media_type=FORMATS[kind], headers=headers)


@lru_cache(maxsize=4)
def _load_contents(path: Path, state: str) -> Contents:
    """Returns the contents of the file, once for each `state` of it."""
    return load_contents(path)


def _describe() -> dict[str, Any]:
    return {
        "reference": is_reference(choose_file()),
        "rows": [f"{BASE}/api/v1/rows.{kind}" for kind in FORMATS],
        "answers": f"{BASE}/api/v1/answers",
        "state": ADDRESS,
        "health": f"{BASE}/healthz",
        "parameters": {
            "table": "one of the tables below",
            **dict.fromkeys(FILTERS, f"as in a page's address; {', '.join(REPEATABLE)} may be repeated"),
            "status": f"any of {', '.join(get_args(Status))}; may be repeated",
            "limit": f"rows of this answer: {USUAL_ROWS} unless stated, at most {MAX_ROWS}",
            "offset": "rows to leave out before them, newest first; the header X-Total-Count says how many match",
            "data": "ignored, so that a copied link's parameters can be used; the header X-Stepscope-Data is its like",
        },
        "tables": {
            table.name: {
                "meaning": table.doc,
                "filters": list_filters(table),
                "columns": [
                    {"name": c.name, "type": c.sql_type, "label": c.label, "unit": c.unit, "meaning": c.doc}
                    for c in table.columns
                ],
            }
            for table in TABLES.values()
        },
    }


def _check_health(*, everything: bool) -> Response:
    """Returns the document of /healthz, and with `everything` the number of rows and the time of the newest."""
    try:
        version = metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        version = None
    path = default_path()
    answer: dict[str, Any] = {"ok": True, "version": version, "file": path.name, "present": _is_present(path)}
    try:
        path = choose_file()
        answer |= {"file": path.name, "reference": is_reference(path), "present": _is_present(path)}
        rows, newest_at = load_health(path)
    except StoreError as error:
        answer |= {"ok": False, "error": _describe_error(error)}
        return JSONResponse(answer, status_code=503, headers=_AGAIN if isinstance(error, DatabaseBusy) else None)
    if everything:
        if answer["present"]:
            known = look_through(path)
            answer |= {"rows_left_out": dict(known.left_out)}
            answer |= {"files_left_out": sorted(known.broken)} if known.broken else {}
        answer |= {"rows": rows, "newest_row_at": newest_at.isoformat() + "Z" if newest_at else None}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _is_present(path: Path) -> bool:
    with contextlib.suppress(StoreError):
        return any(map(os.path.exists, list_files(path)))
    return False


ROUTES = (
    Route(f"{BASE}/api/v1", partial(_serve_document, _describe)),
    Route(ADDRESS, _serve_state),
    Route(f"{BASE}/api/v1/rows.{{format}}", partial(_serve, _encode_request)),
    Route(f"{BASE}/api/v1/answers", partial(_serve_document, lambda: list(QUESTIONS))),
    Route(f"{BASE}/api/v1/answers/{{name}}", partial(_serve, _answer)),
    Route(f"{BASE}/healthz", _serve_health),
    Route(f"{BASE}/api", _serve_nothing),
    Route(f"{BASE}/api/{{rest:path}}", _serve_nothing),
)
