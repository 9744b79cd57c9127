"""The rows for programs: read-only HTTP routes beside the pages, on the same server.

    curl 'http://localhost:8501/api/v1'                                                  what there is to ask
    curl 'http://localhost:8501/api/v1/rows.csv?table=steps&mode=train&precision=bf16'   .csv, .json or .parquet
    curl 'http://localhost:8501/api/v1/state'                                            changes when rows or plans do
    curl 'http://localhost:8501/healthz'                                                 200, or 503 and why

Filters have the names and values that they have in a page's address; without one, all rows. Limits: `MOST_ROWS` rows an
answer (`limit`, `offset`; the header X-Total-Count says how many match), `AT_ONCE` answers at once, then 503 with
Retry-After. With STEPSCOPE_API_TOKEN set, rows need `Authorization: Bearer <token>`; where sign-in is configured and no
token is set, there is no access to rows but by the pages.
"""

import hmac
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import metadata
from typing import Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pages.parts.filters import ALL_RUNS, FILTERS, run_name
from pages.parts.frame import size_names
from pages.parts.live import ADDRESS, BASE
from pages.parts.rowfiles import FORMATS, written
from pages.parts.sign_in import read_secrets
from runner.errors import DatabaseBusy, StepscopeError, StoreError, UsageError
from runner.schema import TABLES, Backend, Mode, Precision, Status, Table
from runner.store.database import default_path, fingerprint, look_through, plan_fingerprint
from runner.store.queries.overview import Contents, contents
from runner.store.queries.rows import filters_of, health, rows
from runner.store.queries.selection import Selection, Shape
from runner.store.queries.tables import MOST_ROWS, Window

#: Answers at once, and rows of an answer that names no limit.
AT_ONCE, USUAL_ROWS = 4, 10_000
#: `data` names the state of the file that a copied link meant; X-Stepscope-Data names the present one.
PARAMETERS = ("table", *FILTERS, "status", "limit", "offset", "data")
_SINGLE = ("table", "machine", "run", "mode", "limit", "offset", "data")

_turns = threading.BoundedSemaphore(AT_ONCE)


async def _index(request: Request) -> Response:
    return await _answered(request, lambda: JSONResponse(_described()))


async def _rows(request: Request) -> Response:
    return await _answered(request, lambda: _found(request))


async def _health(request: Request) -> Response:
    refused = _refused(request)
    return await run_in_threadpool(_checked, everything=refused is None)


async def _state(request: Request) -> Response:
    path = default_path()
    said = {"rows": await run_in_threadpool(fingerprint, path), "plan": await run_in_threadpool(plan_fingerprint, path)}
    return JSONResponse(said, headers={"Cache-Control": "no-store"})


ROUTES = (
    Route(f"{BASE}/api/v1", _index),
    Route(ADDRESS, _state),
    Route(f"{BASE}/api/v1/rows.{{format}}", _rows),
    Route(f"{BASE}/healthz", _health),
)


async def _answered(request: Request, work: Callable[[], Response]) -> Response:
    """The answer, worked out beside the event loop; what cannot be answered, as JSON with got, expected, do."""
    if (refused := _refused(request)) is not None:
        return refused
    if not _turns.acquire(blocking=False):
        busy = UsageError(f"{AT_ONCE} answers are being made.", expected=f"at most {AT_ONCE} at once", do="Ask again.")
        return _error(busy, status=503)
    try:
        return await run_in_threadpool(work)
    except DatabaseBusy as error:
        return _error(error, status=503)
    except UsageError as error:
        return _error(error, status=400)
    except StoreError as error:
        return _error(error, status=503)
    finally:
        _turns.release()


def _error(error: StepscopeError, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    said = {"got": error.got, "expected": error.expected, "do": error.do}
    waiting = {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse({"error": said}, status_code=status, headers={**waiting, **(headers or {})})


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
    if _signs_in():
        error = UsageError(
            "This server asks people to sign in, and has no token for programs.",
            expected="STEPSCOPE_API_TOKEN in the server's environment",
            do="Ask who runs this server to set one.",
        )
        return _error(error, status=403)
    return None


def _signs_in() -> bool:
    """Whether the secrets configure sign-in. Secrets that cannot be read count as if they did."""
    try:
        return "auth" in read_secrets()
    except Exception:  # noqa: BLE001 - a broken secrets file must not open the rows to everybody
        return True


# ------------------------------------------------------------------------------------------------------ what is given


def _found(request: Request) -> Response:
    kind = request.path_params["format"]
    if kind not in FORMATS:
        raise UsageError(f"rows.{kind}.", expected=_either([f"rows.{known}" for known in FORMATS]))
    asked = _parameters(request)
    table, path = _table(asked), default_path()
    held = contents(path)
    window = Window(
        statuses=_among("status", asked.get("status", ()), get_args(Status)),
        limit=_count(asked, "limit", usual=USUAL_ROWS, most=MOST_ROWS),
        offset=_count(asked, "offset", usual=0, most=2**62),
    )
    page = rows(path, table.name, _selection(asked, held), window)
    headers = {
        "X-Total-Count": str(page.total),
        "X-Stepscope-Data": held.edition,
        "Cache-Control": "no-store",
        "Content-Disposition": f'inline; filename="stepscope-{table.name}.{kind}"',
    }
    return Response(written(table, page, kind), media_type=FORMATS[kind], headers=headers)


def _parameters(request: Request) -> dict[str, list[str]]:
    asked: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        asked.setdefault(name, []).append(value)
    if unknown := [name for name in asked if name not in PARAMETERS]:
        raise UsageError(f"The parameter “{unknown[0]}”.", expected=_either(PARAMETERS), do="See /api/v1.")
    for name in _SINGLE:
        if len(asked.get(name, ())) > 1:
            raise UsageError(f"{name} {len(asked[name])} times.", expected="it once", do="Ask once for each.")
    return asked


def _table(asked: Mapping[str, list[str]]) -> Table:
    if "table" not in asked:
        raise UsageError("No table.", expected=f"table={_either(TABLES)}", do="See /api/v1 for what they hold.")
    (name,) = _among("table", asked["table"], TABLES)
    return TABLES[name]


def _selection(asked: Mapping[str, list[str]], held: Contents) -> Selection:
    """What the filters of a page's address select; here none of them has a default."""
    runs = {run_name(run): run.run_id for run in held.runs}
    runs |= {str(run.run_id): run.run_id for run in held.runs}
    shapes: dict[str, list[Shape]] = {}
    for shape, name in size_names(held.shapes).items():
        shapes.setdefault(name, []).append(shape)
    known = {
        "machine": held.machines,
        "run": (*runs, ALL_RUNS),
        "mode": get_args(Mode),
        "size": tuple(shapes),
        "precision": get_args(Precision),
        "backend": get_args(Backend),
    }
    chosen = {name: _among(name, asked.get(name, ()), values) for name, values in known.items()}
    return Selection(
        machine=next(iter(chosen["machine"]), None),
        run=next((runs[run] for run in chosen["run"] if run in runs), None),
        mode=next(iter(chosen["mode"]), None),
        shapes=tuple(shape for size in chosen["size"] for shape in shapes[size]),
        contexts=tuple(_number("context", text, most=2**62) for text in asked.get("context", ())),
        precisions=chosen["precision"],
        backends=chosen["backend"],
    )


def _among(name: str, values: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    for value in values:
        if value not in known:
            raise UsageError(f"{name}={value}.", expected=_either(known), do="Names are those of the pages' filters.")
    return tuple(values)


def _count(asked: Mapping[str, list[str]], name: str, *, usual: int, most: int) -> int:
    (text,) = asked.get(name, [str(usual)])
    return _number(name, text, most=most)


def _number(name: str, text: str, *, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise UsageError(f"{name}={text}.", expected=f"a whole number from 0 to {most:,}")
    return int(text)


def _either(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing: this file has none"


# --------------------------------------------------------------------------------------------------- what there is


def _described() -> dict[str, Any]:
    """What /api/v1 says."""
    return {
        "rows": [f"{BASE}/api/v1/rows.{kind}" for kind in FORMATS],
        "state": ADDRESS,
        "health": f"{BASE}/healthz",
        "parameters": {
            "table": "one of the tables below",
            **dict.fromkeys(FILTERS, "as in a page's address; size, context, precision, backend may be repeated"),
            "status": f"any of {', '.join(get_args(Status))}; may be repeated",
            "limit": f"rows of this answer: {USUAL_ROWS} unless stated, at most {MOST_ROWS}",
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
        said |= {"ok": False, "error": {"got": error.got, "expected": error.expected, "do": error.do}}
        return JSONResponse(said, status_code=503, headers={"Retry-After": "1"})
    if everything:
        said |= {"rows_left_out": dict(look_through(path).left_out)} if path.exists() else {}
        newest = found.newest_at.isoformat() + "Z" if found.newest_at else None
        said |= {"rows": found.rows, "newest_row_at": newest}
    return JSONResponse(said, headers={"Cache-Control": "no-store"})
