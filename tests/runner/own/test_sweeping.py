"""A user's own models in a real sweep: good and bad ones together, again later, and in a config file."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.command import run, run_line
from tests.runner.own.build import MLP, NANO, own_file
from tests.synthetic.stored import read


def check(spec: str, *options: str, code: int) -> str:
    """Returns what `python -m runner model` says, which ends with a code."""
    return run_line("model", spec, "--device", "cpu", *options, code=code).stdout


LIMITS = ("--rounds", "1", "--max-steps", "4", "--precisions", "fp32", "--device", "cpu")
MODEL = "nn.Linear(4, 1), torch.ones(want.batch, 4)"
LOSS = "lambda out: out.sum()"
#: Models that cannot be measured, and the error for each.
BAD = {
    "raises": ("def build(want):\n    raise ValueError('no weights')\n", "raised ValueError: no weights. Exp"),
    "raises without end": ("def build(want):\n    raise ValueError('x' * 10**7)\n", "raised ValueError: xxx"),
    "nothing": ("def build(want):\n    pass\n", "returned NoneType"),
    "three": (f"def build(want):\n    return {MODEL}, {LOSS}, 4\n", "returned Linear, Tensor, function, int"),
    "exits": ("import argparse\nargparse.ArgumentParser().parse_args()\nraise SystemExit(3)\n", "sys.exit(3)"),
    "import": ("import nothing_like_this\n", "No module named 'nothing_like_this'"),
    "syntax": ("def build(want:\n", "SyntaxError"),
    "option": (f"def build(want):\n    return {MODEL}, {LOSS}\n", "nothing read width"),
    "no_loss": (f"def build(want):\n    return {MODEL}\n", "a tensor of 4×1 and no loss"),
    "no number": (f"def build(want):\n    return {MODEL}, lambda y: y.sum(1)\n", "the loss is float32 4. Exp"),
    "frozen": (f"def build(want):\n    return {MODEL}, lambda out: out.sum().detach()\n", "depends on no parameter"),
    "two arguments": (f"def build(want):\n    return {MODEL}, lambda a, b: a\n", "'b'. Expected a"),
    "text": (f"def build(want):\n    net = {MODEL}\n    net[0].forward = str\n    return net\n", "returned str"),
    "its line": (f"def build(want):\n    return {MODEL}, lambda a: a @ torch.ones(3, 3)\n", "mine.py:6."),
    "other batch": ("def build(want):\n    return nn.Linear(16, 1), torch.ones(1, 16)\n", "batch of 1×16 where"),
    "no_batch": (f"def build(want):\n    return nn.Linear(4, 1), 3, {LOSS}\n", "a batch without a tensor"),
}


def test_a_parameter_without_a_gradient_is_not_trained(tmp_path: Path) -> None:
    """Of 4·4 + 4 and 4·8 + 8 parameters the first are trained, although all require a gradient."""
    body = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.spare = nn.Linear(4, 4), nn.Linear(4, 8)
            def forward(self, x):
                return self.body(x)
        def build(want):
            return Net(), torch.ones(want.batch, 4), lambda out: out.sum() / 0
        """
    said = check(own_file(tmp_path, body), code=0)
    assert re.search(r"(?s)parameters\W+60, 20 of them trained.*loss\W+-?inf before the first step: no tr", said), said


@pytest.mark.soak
@pytest.mark.parametrize(
    "body",
    ["def build(want):\n    while True: print('x' * 1_000_000)\n", "def build(want):\n    while True: pass\n"],
    ids=["prints", "is silent"],
)
def test_a_model_that_is_never_built_is_stopped(tmp_path: Path, body: str) -> None:
    """It ends within the limit in one short error, whatever it printed, and leaves no output behind."""
    began = time.monotonic()
    said = check(own_file(tmp_path, body), "--timeout", "2", code=2)
    assert "cannot be built: stopped after 2 s" in said
    assert len(said) < 2000
    assert time.monotonic() - began < 60
    assert "Traceback" not in said
    swept = run("sweep", "--model", f"{tmp_path}/mine.py:build", "--timeout", "5", *LIMITS, db=tmp_path / "own.duckdb")
    assert "cannot be built: stopped after 5 s" in swept.stdout
    assert "build …, for at most 5 s" in swept.stdout


@pytest.mark.soak
def test_a_configuration_without_end_is_stopped(tmp_path: Path) -> None:
    fields = {"model_type": "gpt2", "n_layer": 10**9, "n_embd": 64, "n_head": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert "cannot be built: stopped after 10 s" in check(f"hf:{tmp_path}", "--timeout", "10", code=2)


@pytest.mark.parametrize("name", BAD)
def test_a_model_that_cannot_be_built_is_one_clear_error(tmp_path: Path, name: str) -> None:
    body, expected = BAD[name]
    said = check(own_file(tmp_path, body) + (",width=8" if name == "option" else ""), code=2)
    assert expected in said
    assert len(said) < 5000
    assert "Traceback" not in said


def test_a_sweep_skips_models_that_cannot_be_built_and_keeps_rows_of_those_that_fail(tmp_path: Path, db: Path) -> None:
    """Printing, forking and reading the command line do no harm; different work every time is a row."""
    bodies = {
        "good": f"""
        import os, sys
        assert sys.argv[1:] == []
        def build(want):
            print("built", flush=True)
            os.fork()
            return {MODEL}, {LOSS}
        """,
        "growing": f"""
        class Growing(nn.Linear):
            calls = 0
            def forward(self, x):
                if x.device.type != "meta":
                    self.calls += 1
                return super().forward(x).repeat(max(self.calls, 1), 1)
        def build(want):
            return Growing(4, 1), torch.ones(want.batch, 4), {LOSS}
        """,
        "frozen": f"""
        def build(want):
            return nn.Linear(4, 1).requires_grad_(False), torch.ones(want.batch, 4), {LOSS}
        """,
        "bad": BAD["raises"][0],
    }
    models = [word for name, body in bodies.items()
              for word in ("--model", own_file(tmp_path, body, name=f"{name}.py"))]  # fmt: skip
    done = run("sweep", "--experiment", "benchmark", *models, *LIMITS, db=db, code=1)
    assert "raised ValueError: no weights" in done.stdout
    found = read(db, "SELECT regexp_extract(model, '([a-z]+)\\.py:', 1) AS file, status, message FROM steps ORDER BY 1")
    assert [row[:2] for row in found] == [("frozen", "error"), ("good", "ok"), ("growing", "error")]
    assert "the same work in every step" in found[2][2]
    assert "depends on no parameter" in found[0][2]


@pytest.mark.soak
def test_a_model_that_depends_on_its_data_is_planned_at_every_context(tmp_path: Path) -> None:
    """The Llama of transformers 5.23 is such a model: the meta device, on which operations are counted, has no data."""
    body = f"""
        class Asking(nn.Linear):
            def forward(self, x):
                return super().forward(x) if x.sum().item() else x
        def build(want):
            return Asking(4, 1), torch.ones(want.batch, want.context, 4), {LOSS}
        """
    words = ("--experiment", "benchmark", "--model", own_file(tmp_path, body), "--contexts", "8,16,32", *LIMITS)
    done = run("sweep", *words, "--dry-run", db=tmp_path / "own.duckdb", code=0)
    assert re.findall(r"mine@\w+ · (\d+) · train", done.stdout) == ["8", "16", "32"], done.stdout


@pytest.mark.soak
def test_every_experiment_measures_an_own_model_only_once(tmp_path: Path) -> None:
    """The pages get rows of every kind. A second sweep measures nothing, but a new version of the file."""
    db, body = tmp_path / "own.duckdb", Path(MLP.removesuffix(":build")).read_text()
    config = tmp_path / "own.toml"
    config.write_text(f'model = ["{own_file(tmp_path, body, name="net.py")}"]\nrounds = 1\nceilings = false\n')
    words = ("sweep", "--config", str(config), "--precisions", "fp32", "--backends", "eager", "--device", "cpu")
    asked = [word for name in ("benchmark", "memory", "kernels", "numerics") for word in ("--experiment", name)]
    run(*words, *asked, db=db, code=0)
    tables = ("steps", "memory", "profiles", "numerics")
    counts = [read(db, f"SELECT count(*), count(model_key), count(d_model) FROM {table}")[0] for table in tables]
    ((key,), *_) = read(db, "SELECT DISTINCT model_key FROM steps")
    assert all(rows == own and rows > 0 and widths == 0 for rows, own, widths in counts)
    assert "Nothing to measure: every cell is done." in run(*words, *asked, db=db).stdout
    own_file(tmp_path, body + "\n# changed\n", name="net.py")
    run(*words, "--experiment", "benchmark", db=db, code=0)
    keys = [found for (found,) in read(db, "SELECT DISTINCT model_key FROM steps")]
    ((cell,),) = read(db, f"SELECT cell_id FROM steps WHERE status = 'ok' AND model_key = '{key}' LIMIT 1")
    assert len(keys) == 2
    assert key in keys
    assert "which the results file names" in run("sweep", "--again", str(cell), db=db, code=2).stdout
    assert "another version" in run("sweep", "--again", str(cell), "--yes", db=db, code=2).stdout
    runs = [run_id for (run_id,) in read(db, "SELECT run_id FROM runs ORDER BY started_at")]
    compared = run("compare", f"run:{runs[0]}", f"run:{runs[-1]}", db=db)
    assert re.search(rf"source of \S+/{tmp_path.name}/net.py:build", " ".join(compared.stdout.split()))
    assert all(key[:4] in compared.stdout for key in keys)


def test_the_plan_of_an_own_model_shows_its_cost(tmp_path: Path) -> None:
    words = ("--model", NANO, "--experiment", "benchmark", "--contexts", "32", *LIMITS)
    done = run("sweep", *words, "--dry-run", db=tmp_path / "own.duckdb", code=0)
    assert "nano@" in done.stdout
    assert "unknown" in done.stdout  # no formula gives its peak


@pytest.mark.soak
def test_a_configuration_of_an_unknown_model_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for fields, said in (
        ({"model_type": "nobodys"}, "does not know"),
        ({"hidden_size": 3}, "has no model_type"),
        ({"model_type": "llama", "auto_map": {"AutoConfig": "x.Y"}, "hidden_size": "wide"}, "trust_remote_code=true"),
    ):
        path.write_text(json.dumps(fields))
        assert said in check(f"hf:{tmp_path}", code=2)
