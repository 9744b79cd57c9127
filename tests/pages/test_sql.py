"""A reader's own SQL: what is refused, queries that end in time, and answers that equal DuckDB's."""

import contextlib
import re
import shutil
import signal
import time
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from pages.sql import EXAMPLES, columns_of
from runner.errors import UsageError
from runner.store.console import BESIDE_A_SWEEP_S, QueryAnswer, run_query
from runner.store.database import ingest
from runner.store.spool import Spool
from tests.browser import Site, opened
from tests.some import some
from tests.synthetic import memory_rows, rows

#: A query that never ends and uses no memory.
ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT 1 - n FROM t) SELECT max(n) FROM t"


@pytest.fixture(scope="module")
def db(module_db: Path) -> Path:
    of = rows.run(label="console")
    rows.store(module_db, of, [rows.ok(of, rows.asked(size, context=64)) for size in rows.TOYS])
    more = [memory_rows.attention(of, seq_len=256), memory_rows.memory(of, {"parameters": 2**20})]
    return rows.store_tables(module_db, more)


def ask(db: Path, query: str, *, seconds: float = 100.0, most_rows: int = 1000) -> QueryAnswer:
    with run_query(db, query, seconds=seconds, most_rows=most_rows) as question:
        while (answer := question.answer(wait_s=0.1)) is None:
            pass
    return answer


def refusal(db: Path, query: str, *, seconds: float = 100.0) -> str:
    with pytest.raises(UsageError) as caught:
        ask(db, query, seconds=seconds)
    return str(caught.value)


ATTACKS = [
    ("SELECT * FROM read_text('/etc/passwd')", "asks for more than rows"),
    ("FROM '/etc/passwd'", "does not exist"),
    ("FROM glob('/etc/*')", "asks for more than rows"),
    ("FROM read_duckdb('{db}', table_name='steps')", "asks for more than rows"),
    ("FROM 'https://example.com/rows.csv'", "asks for more than rows"),
    ("FROM enable_logging(storage='file', storage_config={{'path': '{folder}/log'}})", "asks for more than rows"),
    ("SELECT getenv('HOME')", "does not exist"),
    ("COPY steps TO '{folder}/taken.csv'", "kind COPY"),
    ("EXPLAIN ANALYZE COPY steps TO '{folder}/taken.csv'", "kind COPY"),
    ("ATTACH '{folder}/new.duckdb'", "kind ATTACH"),
    ("DETACH file", "kind DETACH"),
    ("DELETE FROM file.main.steps", "kind DELETE"),
    ("WITH gone AS (DELETE FROM file.main.steps RETURNING *) FROM gone", "read-only"),
    ("SET memory_limit = '1TB'", "kind SET"),
    ("PRAGMA database_list", "kind PRAGMA"),
    ("INSTALL httpfs", "kind LOAD"),
    ("LOAD json", "kind LOAD"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("", "0 statements"),
    ("SELECT repeat('x', 2000000000)", "too much memory"),
    ("SELECT ?", "parameters"),
    ("SELECT con FROM con", "does not exist"),
]


@pytest.mark.parametrize(("query", "said"), some(ATTACKS))
def test_attacks_are_refused(db: Path, query: str, said: str) -> None:
    """Each gives one sentence and has no effect: no new file, and not a byte of the results changed."""
    before = db.read_bytes(), sorted(db.parent.iterdir())
    assert said in refusal(db, query.format(db=db, folder=db.parent))
    assert (db.read_bytes(), sorted(db.parent.iterdir())) == before


@pytest.mark.soak
def test_expensive_queries_end_in_time(db: Path) -> None:
    """Neither endless recursion nor a huge cross join exceeds its time or its memory."""
    begun = time.monotonic()
    assert "was stopped after" in refusal(db, ENDLESS, seconds=1.0)
    bomb = "SELECT a.range FROM range(1000000) a, range(1000000) b ORDER BY hash(a.range, b.range)"
    assert re.search("was stopped after|too much memory", refusal(db, bomb, seconds=2.0))
    assert time.monotonic() - begun < 60
    assert ask(db, "SELECT 42").rows == ((42,),)


def test_leaving_the_page_ends_the_query(db: Path) -> None:
    with run_query(db, ENDLESS) as question:
        assert question.answer(wait_s=0.5) is None
        process = question._process
    assert process.returncode == -9


@pytest.mark.soak
def test_the_start_of_its_process_is_not_the_querys_time(db: Path) -> None:
    """The process is suspended before it has opened the file, for longer than the query may take."""
    with run_query(db, "SELECT 42", seconds=5.0) as question:
        question._process.send_signal(signal.SIGSTOP)
        while question.elapsed_s < 5.5:
            assert question.answer(wait_s=0.1) is None
        question._process.send_signal(signal.SIGCONT)
        while (answer := question.answer(wait_s=0.1)) is None:
            pass
    assert answer.rows == ((42,),)


def test_answers_equal_duckdbs(db: Path) -> None:
    query = """SELECT d_model, phase, n, median_ms, started_at, median_ms::DECIMAL(9, 3) AS rounded
               FROM steps JOIN timings USING (cell_id) ORDER BY ALL"""
    answer = ask(db, query)
    with duckdb.connect(str(db), read_only=True) as con:
        expected = con.execute(query).fetchall()
    assert len(expected) == 18  # three cells with four phases and two sums each
    read = list(zip(*columns_of(answer).values(), strict=True))
    assert [(*row[:5], float(row[5])) for row in expected] == read
    assert not answer.cut


@pytest.mark.soak
def test_rows_beyond_the_limit_are_mentioned(db: Path) -> None:
    exact, more = (ask(db, f"FROM range({count})", most_rows=5) for count in (5, 6))
    assert (len(exact.rows), exact.cut) == (5, False)
    assert (len(more.rows), more.cut) == (5, True)


@pytest.mark.soak
def test_rows_in_the_spool_are_seen_and_a_sweep_is_not_delayed(db: Path, tmp_path: Path) -> None:
    """Cells in the spool count. During a live sweep a query ends after the time that any reader may wait."""
    db = Path(shutil.copy(db, tmp_path))
    rows.spooled(db, of := rows.run(), rows.ok(of, rows.asked(context=128)))
    Spool(db).write_plan(rows.plan(of, ["next"], done=0), of.run_id)
    assert ask(db, "SELECT count(*) FROM steps").rows == ((4,),)
    Spool(db).write_plan(rows.plan(of, ["next"], done=0), of.run_id)  # its heartbeat may be too old by now
    begun = time.monotonic()
    assert "while a sweep writes" in refusal(db, ENDLESS)
    assert time.monotonic() - begun >= BESIDE_A_SWEEP_S
    assert ingest(db) == 1, "the file is not open any more"


def test_no_file(tmp_path: Path) -> None:
    assert "none.duckdb does not exist" in refusal(tmp_path / "none.duckdb", "SELECT 1")


@pytest.mark.parametrize("title", some(EXAMPLES))
def test_examples_can_be_run(db: Path, title: str) -> None:
    assert ask(db, EXAMPLES[title]).columns


#: Values that DuckDB returns and a browser or Python cannot always show: the query, and a value of its answer as shown.
ODD = [
    ("SELECT '0044-03-15 (BC)'::DATE AS x, 1 AS y", "0044-03-15 (BC)"),
    ("SELECT unnest(['infinity'::DATE, '2020-01-01']) AS x, 1 AS y", "infinity"),
    ("SELECT '-infinity'::TIMESTAMP AS x, 1 AS y", "-infinity"),
    ("SELECT '20000-12-31'::DATE AS x, 1 AS y", "20000-12-31"),
    ("SELECT '2020-01-01 00:00:00+02'::TIMESTAMPTZ AS x, 1 AS y -- an end", "2019-12-31 22:00:00+00:00"),
    ("SELECT '2020-01-01'::TIMESTAMP_NS AS x, 1 AS y;", "2020-01-01 00:00:00"),
    ("SELECT unnest(['nan'::DOUBLE, 'inf', 2]) AS x, 1 AS y", "nan"),
    ("SELECT 1 AS x, unnest(['inf'::DOUBLE, 3]) AS y", "1"),
    ("SELECT [1, NULL] AS x, 1 AS y", "[1, None]"),
    ("SELECT {'a': 1} AS x, 1 AS y", "{'a': 1}"),
    ("SELECT MAP {[1]: 1} AS x, 1 AS y", ""),
    ("SELECT '\\xAA'::BLOB AS x, 1 AS y", ""),
    ("SELECT INTERVAL 300000 YEAR AS x, 1 AS y", ""),
    ("SELECT 340282366920938463463374607431768211455::UHUGEINT AS x, 1 AS y", "3.402823669209385e+38"),
    ("SELECT 'a'::ENUM ('a', 'b') AS x, 1 AS y", "a"),
    ("SELECT 1 AS x, 2 AS x, 3 AS y", "1"),
    ("SELECT NULL AS x, 1 AS y", "None"),
    ("SELECT range AS x, range * 2 AS y FROM range(2000) ORDER BY x DESC", "1999"),
    ("SELECT 'c' || range AS x, range AS y FROM range(10000)", "c0"),
    ("SELECT 'c' || range % 5000 AS x, range AS y, 'k' || range % 90 AS color FROM range(10000)", "c0"),
    ("SELECT repeat('x', 1000000) AS x, 1 AS y", "x" * 1_000_000),
]


@pytest.mark.parametrize(("query", "first"), some(ODD), ids=[query[:60] for query, _ in ODD])
def test_any_answer_is_shown(db: Path, query: str, first: str) -> None:
    """Rows keep their order and their values."""
    assert str(columns_of(ask(db, query, most_rows=10_000))["x"][0]) == first or not first


def cancel(page: Page) -> None:
    """Runs the query and cancels it, which does not wait for the query's own limit of 10 s. On a busy machine that may
    end it first, before Cancel is clicked or just after it."""
    canceled = page.get_by_text("Canceled. Press Run")
    for _ in range(6):
        page.get_by_role("button", name="Run").click()
        with contextlib.suppress(TimeoutError):
            page.get_by_role("button", name="Cancel").click(timeout=15_000)
            clicked = time.monotonic()
            expect(canceled.or_(page.get_by_text("The query was stopped after")).first).to_be_visible()
            if canceled.is_visible() and time.monotonic() - clicked < 5:
                return
    pytest.fail("Cancel was never there in time")


def test_page(browser: Browser, db: Path, site: Site) -> None:
    """A query is typed, linked or an example. A refusal and a cancellation are one sentence each. The URL has it."""
    with site.showing(db) as address:
        with opened(browser, f"{address}/sql?sql=SELECT+d_model,+count(*)+AS+n+FROM+steps+GROUP+BY+1") as visit:
            page = visit.page
            said = page.get_by_text(re.compile("^The query returns"))
            expect(said).to_contain_text("3 rows of 2 columns")
            editor = page.get_by_label("Query (DuckDB's SQL)")
            editor.fill("COPY steps TO 'x'")
            editor.press("Control+Enter")
            expect(page.get_by_role("alert")).to_contain_text("A statement of the kind COPY. Expected one SELECT")
            editor.fill("SELECT pg_sleep(60)")  # which takes no time of the CPU
            cancel(page)
            page.get_by_role("button", name="How cells ended").click()
            expect(page).to_have_url(re.compile("sql=WITH\\+cells|sql=WITH%20cells"))
            expect(said).to_contain_text("3 rows of 5 columns")
            link = page.url
        with opened(browser, link) as visit:
            expect(visit.page.get_by_text(re.compile("^The query returns"))).to_contain_text("3 rows of 5 columns")
            expect(visit.page.get_by_label("Query (DuckDB's SQL)")).to_have_value(re.compile("WITH cells"))
