"""The rows over HTTP from a real server: equal to the file's, selected by the same filters, with errors in JSON."""

import asyncio
import contextlib
import csv
import io
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow.parquet as pq
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from pages.api import routes
from pages.api.files import encode_rows
from runner.answers import QUESTIONS, ask
from runner.render.document import MAX_LINES
from runner.render.grid import scale_of, write_measured
from runner.render.json import dump
from runner.schema import TABLES
from runner.store.database import fingerprint, plan_fingerprint
from runner.store.packing import find_file
from runner.store.read import read
from runner.store.read.runs import load_contents
from runner.store.read.selection import Selection
from runner.store.read.tables import TablePage
from tests import command
from tests.browser import Site
from tests.runner.analysis.test_pair import scale
from tests.synthetic import memory_rows, rows
from tests.synthetic.stored import read as stored


@pytest.fixture(scope="module")
def db(module_db: Path) -> Path:
    for host in ("bench1", "bench2"):
        of = rows.run(host=host, label=host)
        cells = [rows.asked(size, precision=precision) for size in rows.TOYS for precision in ("fp32", "bf16")]
        rows.store(module_db, of, [*(rows.ok(of, cell) for cell in cells), rows.failed(of, rows.asked(context=4096))])
        rows.store_tables(module_db, [memory_rows.attention(of, seq_len=length) for length in (256, 1024)])
    return module_db


@pytest.fixture(scope="module")
def address(db: Path, site: Site) -> Iterator[str]:
    with site.showing(db) as found:
        yield found


@contextlib.contextmanager
def moved_away(db: Path) -> Iterator[None]:
    """The file is elsewhere until the end, and then replaces what is in its place."""
    kept = db.rename(db.with_suffix(".kept"))
    try:
        yield
    finally:
        kept.replace(db)


def get(url: str) -> tuple[int, bytes, Message]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def get_json(url: str) -> Any:
    return json.loads(get(url)[1])


def get_rows(address: str, **parameters: Any) -> Any:
    return get_json(f"{address}/api/v1/rows.json?{urlencode(parameters, doseq=True)}")


def test_the_three_formats_contain_the_files_rows(db: Path, address: str) -> None:
    """Every value of every table, except that ids and times are text, is read back by DuckDB and Arrow."""
    for name in ("runs", "steps", "samples", "attention"):
        table = TABLES[name]
        columns, order = ", ".join(c.name for c in table.columns), ", ".join(table.unique)
        expected = stored(db, f"SELECT {columns} FROM {name} ORDER BY {order}")
        total = str(len(expected))
        address_of = f"{address}/api/v1/rows.{{}}?table={name}".format
        _, body, headers = get(address_of("parquet"))
        assert headers["X-Total-Count"] == total
        found = pq.read_table(io.BytesIO(body))
        (at,) = [c.name for c in table.columns if c.name == "median_ms"] or [table.columns[0].name]
        assert found.schema.field(at).metadata[b"unit"].decode() == table.column(at).unit
        text = [tuple(str(v) if c.sql_type == "UUID" else v for c, v in zip(table.columns, row)) for row in expected]  # noqa: B905
        assert sorted(map(repr, zip(*found.to_pydict().values(), strict=True))) == sorted(map(repr, text))
        _, body, _ = get(address_of("csv"))
        target = db.parent / f"{name}.csv"
        target.write_bytes(body)
        with duckdb.connect() as con:
            as_text = con.execute(f"FROM read_csv('{target}', all_varchar=true, header=true)").fetchall()
        assert len(as_text) == len(expected)
        assert {row[0] for row in as_text} == {row[0] for row in text}


@pytest.mark.parametrize(
    ("table", "parameters", "where"),
    [
        ("steps", {"precision": "bf16"}, "precision = 'bf16'"),
        ("steps", {"size": ["toy-64", "toy-256"], "status": "ok"}, "d_model IN (64, 256) AND status = 'ok'"),
        ("steps", {"status": ["oom", "error"]}, "status = 'oom'"),
        ("steps", {"context": 4096}, "context = 4096"),
        ("timings", {"precision": "fp32", "mode": "train"},
         "cell_id IN (SELECT cell_id FROM steps WHERE precision = 'fp32')"),
        ("timings", {"backend": "eager"}, "true"),
        ("attention", {}, "true"),
        ("attention", {"precision": "tf32"}, "false"),
    ],
)  # fmt: skip
def test_filters(db: Path, address: str, table: str, parameters: dict[str, Any], where: str) -> None:
    answer = get_rows(address, table=table, **parameters)
    expected = {str(row[0]) for row in stored(db, f"SELECT cell_id FROM {table} WHERE {where}")}
    assert {row["cell_id"] for row in answer["rows"]} == expected
    assert answer["total"] == stored(db, f"SELECT count(*) FROM {table} WHERE {where}")[0][0]


def test_machine_and_run_have_the_names_of_a_pages_address(db: Path, address: str) -> None:
    for run in load_contents(db).runs:
        for asked in ({"machine": run.machine}, {"run": run.name}, {"run": str(run.run_id)}):
            answer = get_rows(address, table="samples", limit=5000, **asked)
            assert {row["run_id"] for row in answer["rows"]} == {str(run.run_id)}
            assert 2 * answer["total"] == stored(db, "SELECT count(*) FROM samples")[0][0]


def test_pages_of_rows_make_up_the_whole(db: Path, address: str) -> None:
    parts = [get_rows(address, table="steps", limit=5, offset=offset)["rows"] for offset in (0, 5, 10, 15)]
    assert [len(part) for part in parts] == [5, 5, 4, 0]
    ids = [row["cell_id"] for part in parts for row in part]
    assert ids == [str(row[0]) for row in stored(db, "SELECT cell_id FROM steps ORDER BY cell_id DESC")]


@pytest.mark.parametrize(
    ("path", "got", "expected"),
    [
        ("rows.csv", "No table.", "table=runs, steps"),
        ("rows.csv?table=step", "table=step.", "runs, steps"),
        ("rows.xml?table=steps", "rows.xml.", "rows.csv, rows.json, rows.parquet"),
        ("rows.csv?table=steps&precison=bf16", "The parameter “precison”.", "precision"),
        ("rows.csv?table=steps&precision=fp8", "precision=fp8.", "fp32, tf32, bf16, fp16"),
        ("rows.csv?table=steps&machine=mine", "machine=mine.", "bench1"),
        ("rows.csv?table=attention&mode=train", "Rows of attention have no mode.", "machine, run, precision, backend"),
        ("rows.csv?table=ceilings&size=toy-64", "Rows of ceilings have no size.", "machine, run, precision"),
        ("rows.csv?table=timings&status=ok", "Rows of timings have no status.", "machine, run, mode"),
        ("rows.csv?table=steps&limit=100001", "limit=100001.", "from 0 to 100,000"),
        ("rows.csv?table=steps&offset=-1", "offset=-1.", "from 0"),
        ("rows.csv?table=steps&context=1;DROP", "context=1;DROP.", "from 0"),
        ("rows.csv?table=steps&table=runs", "table 2 times.", "it once"),
    ],
)
def test_errors_say_why(address: str, path: str, got: str, expected: str) -> None:
    status, body, _ = get(f"{address}/api/v1/{path}")
    error = json.loads(body)["error"]
    assert (status, error["got"]) == (400, got)
    assert expected in error["expected"]


def test_the_list_of_routes(address: str) -> None:
    described = get_json(f"{address}/api/v1")
    assert list(described["tables"]) == list(TABLES)
    for name, table in described["tables"].items():
        for column, known in zip(table["columns"], TABLES[name].columns, strict=True):
            assert (column["label"], column["unit"]) == (known.label, known.unit)
        assert set(table["filters"]) <= set(described["parameters"])
    for name in ("runs", "ceilings", "kernels", "accumulation"):
        status, _, _ = get(f"{address}/api/v1/rows.json?table={name}&limit=1&precision=bf16")
        assert status == (200 if "precision" in described["tables"][name]["filters"] else 400), name


def test_answers_are_those_of_the_terminal(db: Path, address: str) -> None:
    """The list has every question; an answer has the object that `runner show --json` prints, for the same choices."""
    assert get_json(f"{address}/api/v1/answers") == list(QUESTIONS)
    status, body, _ = get(f"{address}/api/v1/answers/step?precision=bf16")
    found = json.loads(body)
    machine = load_contents(db).machines[0]
    rows_of = read(db, Selection(machine=machine), QUESTIONS["step"].needs)
    assert (status, found) == (200, json.loads(dump(ask("step", rows_of, {"precision": "bf16"}))))
    assert found["chosen"]["precision"]["value"] == "bf16"
    for path, expected in (("steps", "precision"), ("step?precision=fp8", "fp32"), ("step?colour=red", "--precision")):
        status, body, _ = get(f"{address}/api/v1/answers/{path}")
        assert status == 400
        assert expected in json.loads(body)["error"]["expected"]


def test_many_at_once(address: str) -> None:
    url = f"{address}/api/v1/rows.json?table=samples&limit=100"
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: get(url), range(100)))
    assert {status for status, _, _ in answers} == {200}
    assert len({body for _, body, _ in answers}) == 1
    assert get(f"{address}/healthz")[0] == 200


def test_a_request_that_waits_too_long_is_told_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only turn is never given back, and the patience is zero."""

    async def asked() -> Response:
        monkeypatch.setattr(routes, "_turns", asyncio.BoundedSemaphore(1))
        monkeypatch.setattr(routes, "PATIENCE_S", 0.01)
        await routes._turns.acquire()
        request = Request({"type": "http", "headers": [], "query_string": b"", "method": "GET"})
        return await routes._serve_document(list, request)

    with ThreadPoolExecutor(1) as thread:  # the browser's event loop may be running in this thread
        answer = thread.submit(asyncio.run, asked()).result()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_an_unknown_parameter_is_refused_and_an_unknown_route_lists_the_known_ones(address: str) -> None:
    for path in ("api/v1?precison=bf16", "api/v1/state?x=1", "healthz?precison=bf16"):
        status, body, _ = get(f"{address}/{path}")
        assert (status, "precision" in json.loads(body)["error"]["do"]) == (400, True), path
    for path in ("api", "api/v1/rows", "api/v1/row.csv", "api/v2", "api/v1/"):
        status, body, headers = get(f"{address}/{path}")
        assert (status, headers["Content-Type"]) == (404, "application/json"), path
        assert "/api/v1/rows.csv" in json.loads(body)["error"]["expected"], path


def test_the_error_for_a_foreign_file_suggests_no_retry_and_names_no_folder(db: Path, address: str) -> None:
    with moved_away(db):
        for content in (None, b"no database"):
            if content:
                db.write_bytes(content)
            for path in ("healthz", "api/v1/rows.csv?table=steps"):
                status, body, headers = get(f"{address}/{path}")
                assert (status, headers["Retry-After"]) == (503, None)
                assert db.name in body.decode()
                assert str(db.parent) not in body.decode()


def test_no_value_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    """Texts of the API and of downloads are escaped; numbers and the other formats are unchanged."""
    table = TABLES["runs"]
    values = {"label": "=HYPERLINK(1)", "host": "+1", "argv": "-x", "preset": "@a", "os": "\tb"}
    row = tuple(values.get(column.name) for column in table.columns)
    (text,) = csv.DictReader(io.StringIO(encode_rows(table, TablePage(rows=[row], total=1), "csv").decode()))
    for name in ("label", "host", "argv", "preset", "os"):
        assert text[name] == f"'{values[name]}"
    assert json.loads(encode_rows(table, TablePage(rows=[row], total=1), "json"))["rows"][0]["label"] == "=HYPERLINK(1)"


def test_health(db: Path, address: str) -> None:
    """The answer has the number of rows and the newest time, as in the file, or why there are none."""
    status, body, _ = get(f"{address}/healthz")
    health = json.loads(body)
    counts = " + ".join(f"(SELECT count(*) FROM {table.name})" for table in TABLES.values() if table.stored)
    assert (status, health["ok"], health["present"]) == (200, True, True)
    assert health["rows"] == stored(db, f"SELECT {counts}")[0][0]
    (newest,) = stored(db, "SELECT greatest((SELECT max(ingested_at) FROM steps), max(ingested_at)) FROM attention")[0]
    assert health["newest_row_at"] == newest.isoformat() + "Z"
    with moved_away(db):
        assert get_json(f"{address}/healthz")["present"] is False
        db.write_bytes(b"no database")
        assert "not a results file" in get_json(f"{address}/healthz")["error"]["got"]


def test_the_state_changes_only_with_the_rows(db: Path, address: str) -> None:
    url = f"{address}/api/v1/state"
    before = get_json(url)
    assert before == {"rows": fingerprint(db), "plan": plan_fingerprint(db)} == get_json(url)
    with moved_away(db):
        away = get_json(url)
        assert (away["rows"] != before["rows"], away["plan"]) == (True, before["plan"])
    assert get_json(url) == before


def test_a_token_is_required_for_the_rows(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_API_TOKEN", "a long secret")
    monkeypatch.setenv("STEPSCOPE_DB", str(db))
    client, asked = TestClient(Starlette(routes=routes.ROUTES)), "/api/v1/rows.csv?table=steps"
    for token in ("", "another", "a long secre"):
        refused = client.get(asked, headers={"Authorization": f"Bearer {token}"} if token else {})
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "run_id" not in refused.text
    known = {"Authorization": "Bearer a long secret"}
    assert client.get(asked, headers=known).status_code == 200
    assert "rows" not in client.get("/healthz").json()
    assert "rows" in client.get("/healthz", headers=known).json()


def test_with_sign_in_programs_need_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a token the rows are refused, even if the secrets file cannot be read."""
    import streamlit as st

    class Broken:
        def __contains__(self, name: str) -> bool:
            raise ValueError("not TOML")

    monkeypatch.delenv("STEPSCOPE_API_TOKEN", raising=False)
    request = Request({"type": "http", "headers": []})
    for secrets, status in (({"auth": {}}, 403), (Broken(), 403), ({}, None)):
        monkeypatch.setattr(st, "secrets", secrets)
        refused = routes._refuse_access(request)
        assert (refused and refused.status_code) == status


def test_a_pair_has_one_ratio_interval_and_verdict_everywhere(tmp_path: Path, site: Site) -> None:
    """Two recorded sweeps of equal cells, of which the second takes 5% longer: what the page Compare draws and the API
    returns is what `compare` and the report print, and what Overview says of the run before."""
    path = find_file(scale(tmp_path, 1.05))
    with site.showing(path) as address:
        names = ("compare?by=label&a=a1&b=a2", "overview")
        compared, overview = (get_json(f"{address}/api/v1/answers/{name}") for name in names)
    view = ask("compare", read(path, Selection(), ("by_run",)), {"by": "label", "a": "a1", "b": "a2"}).views[0]
    assert len(view.rows) == 12
    by_api = {tuple(row["cells"]): row for row in compared["views"][0]["rows"]}
    forms = ("text", "markdown")
    printed = {form: command.run("compare", "a1", "a2", "--format", form, db=path).stdout for form in forms}
    printed["report"] = command.run("report", db=path).stdout
    of_json = command.run_json("compare", "a1", "a2", db=path)
    by_command = {(*row["cell_ids"]["a"], *row["cell_ids"]["b"]): row for row in of_json["rows"]}
    (changes,) = [one for one in overview["views"] if one["name"] == "regressions"]
    regressed = {tuple(row["cells"]): row for row in changes["rows"]}
    for place, row in enumerate(view.rows):
        cells = tuple(map(str, row.cells))
        exact = [view.get(row, name) for name in ("ratio", "low", "high", "level")]
        of_clock = by_command[cells]["clocks"]["device"]
        assert [by_api[cells][name] for name in ("ratio", "low", "high", "level")] == exact
        assert [of_clock[name] for name in ("ratio", "low", "high", "level")] == exact
        assert [regressed[cells][name] for name in ("change", "low", "high", "level")] == exact
        assert {by_api[cells]["outcome"], by_command[cells]["verdict"], view.get(row, "outcome")} == {"slower"}
        number, interval = write_measured(view, row, scale_of(view, "ratio"))
        said = rf"{re.escape(number)}[ᵃ-ᵖ]* \(?{re.escape(interval)}\)?( \|)? slower( \|)? +GPU time"
        for name, text in printed.items():
            assert re.search(said, text) or (name == "report" and place >= MAX_LINES), (name, said)
