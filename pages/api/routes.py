"""The rows for programs: read-only HTTP routes beside the pages, on the same server.

    curl 'http://localhost:8501/api/v1'                                                  what there is to ask
    curl 'http://localhost:8501/api/v1/rows.csv?table=steps&mode=train&precision=bf16'   .csv, .json or .parquet
    curl 'http://localhost:8501/api/v1/state'                                            changes when rows or plans do
    curl 'http://localhost:8501/healthz'                                                 200, or 503 and why

Filters have the names and values that they have in a page's address; without one, all rows. Limits: `MAX_ROWS` rows an
answer (`limit`, `offset`; X-Total-Count says how many match); `AT_ONCE` answers are made at once, others wait
for up to `PATIENCE_S`, then 503 with Retry-After. With STEPSCOPE_API_TOKEN set, rows need `Authorization: Bearer
<token>`; where sign-in is configured and no token is set, there is no access to rows but by the pages.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pages.api.files import FORMATS, written
from pages.api.parameters import (
    PARAMETERS,
    check_choices,
    list_names,
    parse_count,
    parse_parameters,
    parse_selection,
    parse_table,
)
from pages.ui.filters import FILTERS
from pages.ui.live import ADDRESS, BASE
from pages.ui.sign_in import signs_in
from runner.errors import DatabaseBusy, StepscopeError, StoreError, UsageError
from runner.schema import TABLES, Status
from runner.store.database import default_path, fingerprint, look_through, plan_fingerprint
from runner.store.queries.overview import Contents, contents
from runner.store.queries.rows import filters_of, health, rows
from runner.store.queries.selection import REPEATABLE
from runner.store.queries.tables import MAX_ROWS, Window

#: Answers that are made at once, requests that wait for one, and how long.
AT_ONCE, MAX_WAITING, PATIENCE_S = 4, 256, 30.0
#: Rows of an answer that names no limit.
USUAL_ROWS = 10_000

_turns = asyncio.BoundedSemaphore(AT_ONCE)
_waiting: set[Request] = set()


async def _index(request: Request) -> Response:
    return _misspelled(request) or await _answered(request, lambda: JSONResponse(_described()))


async def _rows(request: Request) -> Response:
    return await _answered(request, lambda: _found(request))


async def _health(request: Request) -> Response:
    if wrong := _misspelled(request):
        return wrong
    refused = _refused(request)
    return await run_in_threadpool(_checked, everything=refused is None)


async def _state(request: Request) -> Response:
    if wrong := _misspelled(request):
        return wrong
    path = default_path()
    said = {"rows": await run_in_threadpool(fingerprint, path), "plan": await run_in_threadpool(plan_fingerprint, path)}
    return JSONResponse(said, headers={"Cache-Control": "no-store"})


async def _nothing(request: Request) -> Response:
    there = [f"{BASE}/api/v1", ADDRESS, *(f"{BASE}/api/v1/rows.{kind}" for kind in FORMATS), f"{BASE}/healthz"]
    return _error(UsageError(f"Nothing is at {request.url.path[:200]}.", expected=list_names(there)), status=404)


ROUTES = (
    Route(f"{BASE}/api/v1", _index),
    Route(ADDRESS, _state),
    Route(f"{BASE}/api/v1/rows.{{format}}", _rows),
    Route(f"{BASE}/healthz", _health),
    Route(f"{BASE}/api", _nothing),
    Route(f"{BASE}/api/{{rest:path}}", _nothing),
)


async def _answered(request: Request, work: Callable[[], Response]) -> Response:
    """The answer, worked out beside the event loop; what cannot be answered, as JSON with got, expected, do."""
    if (refused := _refused(request)) is not None:
        return refused
    if not await _has_turn(request):
        busy = UsageError("Too many answers are asked for at once.", expected="a little patience", do="Ask again.")
        return _error(busy, status=503, headers=_AGAIN)
    try:
        return await run_in_threadpool(work)
    except DatabaseBusy as error:
        return _error(error, status=503, headers=_AGAIN)
    except UsageError as error:
        return _error(error, status=400)
    except StoreError as error:
        return _error(error, status=503)
    finally:
        _turns.release()


async def _has_turn(request: Request) -> bool:
    """Wait for one of the answers at once; not at all behind too many others."""
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


#: Of what passes by itself; a file that is missing or none of Stepscope's does not.
_AGAIN = {"Retry-After": "1"}


def _error(error: StepscopeError, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": _told(error)}, status_code=status, headers=headers)


def _told(error: StepscopeError) -> dict[str, str]:
    """The message, with the name of the file alone: where it lies is nobody's business."""
    path = default_path()
    said = {"got": error.got, "expected": error.expected, "do": error.do}
    for folder in (path.absolute().parent, path.parent):
        said = {name: text.replace(f"{folder}{os.sep}", "") for name, text in said.items()}
    return said


def _misspelled(request: Request) -> Response | None:
    """What is told to who asks with a parameter where there is none."""
    if unknown := next(iter(request.query_params), None):
        error = UsageError(
            f"The parameter “{unknown}”.", expected="none here", do=f"Rows have {list_names(PARAMETERS)}."
        )
        return _error(error, status=400)
    return None


# ------------------------------------------------------------------------------------------------------- who may ask


def _refused(request: Request) -> Response | None:
    """Why this request gets no rows; None if it gets them."""
    token = os.environ.get("STEPSCOPE_API_TOKEN")
    if token:
        given = request.headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return None
        error = UsageError(
            "No valid token.", expected="the header Authorization: Bearer <token>", do="Ask who runs this server."
        )
        return _error(error, status=401, headers={"WWW-Authenticate": "Bearer"})
    if signs_in():
        error = UsageError(
            "This server asks people to sign in, and has no token for programs.",
            expected="STEPSCOPE_API_TOKEN in the server's environment",
            do="Ask who runs this server to set one.",
        )
        return _error(error, status=403)
    return None


# ------------------------------------------------------------------------------------------------------ what is given


def _found(request: Request) -> Response:
    kind = request.path_params["format"]
    if kind not in FORMATS:
        raise UsageError(f"rows.{kind}.", expected=list_names([f"rows.{known}" for known in FORMATS]))
    asked = parse_parameters(request.query_params.multi_items())
    table, path = parse_table(asked), default_path()
    held = _contents(path, fingerprint(path))
    window = Window(
        statuses=check_choices("status", asked.get("status", ()), get_args(Status)),
        limit=parse_count(asked, "limit", usual=USUAL_ROWS, most=MAX_ROWS),
        offset=parse_count(asked, "offset", usual=0, most=2**62),
    )
    page = rows(path, table.name, parse_selection(asked, held), window)
    headers = {
        "X-Total-Count": str(page.total),
        "X-Stepscope-Data": held.edition,
        "Cache-Control": "no-store",
        "Content-Disposition": f'inline; filename="stepscope-{table.name}.{kind}"',
    }
    return Response(written(table, page, kind), media_type=FORMATS[kind], headers=headers)


@lru_cache(maxsize=4)
def _contents(path: Path, state: str) -> Contents:
    """What the file holds in this `state`: what every answer needs to know."""
    return contents(path)


# --------------------------------------------------------------------------------------------------- what there is


def _described() -> dict[str, Any]:
    """What /api/v1 says."""
    return {
        "rows": [f"{BASE}/api/v1/rows.{kind}" for kind in FORMATS],
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
                "filters": filters_of(table),
                "columns": [
                    {"name": c.name, "type": c.sql_type, "label": c.label, "unit": c.unit, "meaning": c.doc}
                    for c in table.columns
                ],
            }
            for table in TABLES.values()
        },
    }


def _checked(*, everything: bool) -> Response:
    """What /healthz says; how many rows and how new only to those who may read them."""
    path = default_path()
    try:
        version = metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        version = None
    said: dict[str, Any] = {"ok": True, "version": version, "file": path.name, "present": path.exists()}
    try:
        found = health(path)
    except StoreError as error:
        said |= {"ok": False, "error": _told(error)}
        return JSONResponse(said, status_code=503, headers=_AGAIN if isinstance(error, DatabaseBusy) else None)
    if everything:
        said |= {"rows_left_out": dict(look_through(path).left_out)} if path.exists() else {}
        newest = found.newest_at.isoformat() + "Z" if found.newest_at else None
        said |= {"rows": found.rows, "newest_row_at": newest}
    return JSONResponse(said, headers={"Cache-Control": "no-store"})
