"""Own attention, loss and optimizer: how they are named, checked beside float64, measured, and shown."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.answers import ask
from runner.errors import BadModel
from runner.job import Wrong
from runner.measure.correctness import check_attention, check_parts
from runner.measure.device import Device
from runner.models.attention import naive
from runner.models.source import load_part
from runner.plan.planning import PRESETS
from runner.schema import AttentionCell
from runner.schema.own import find_part, part_title
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.command import rows, run
from tests.runner.own.build import own_file
from tests.synthetic import memory_rows
from tests.synthetic.rows import asked, store_tables
from tests.synthetic.rows import run as run_row

CPU = Device("cpu")
PARTS = """
    import math, torch
    from torch.nn import functional

    def attend(q, k, v, *, causal):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) & causal
        return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v

    def unscaled(q, k, v, *, causal):
        return attend(q * 2, k, v, causal=causal)

    def flat(q, k, v, *, causal):
        return attend(q, k, v, causal=causal)[0]

    def frozen(q, k, v, *, causal):
        return attend(q, k, v, causal=causal).detach()

    def cut(q, k, v, *, causal):
        return attend(q, k.detach(), v, causal=causal)

    def one_entry(q, k, v, *, causal):
        out = attend(q, k, v, causal=causal)
        bump = torch.zeros_like(out)
        bump[..., -1, 0] = 0.01
        return out + bump * (out.shape[-2] > 100)

    def rounded(q, k, v, *, causal):
        return attend(q.bfloat16().float(), k, v, causal=causal)

    def loss(logits, targets):
        return (logits.float().logsumexp(-1) - logits.float().gather(-1, targets[:, None])[:, 0]).mean()

    def summed(logits, targets):
        return loss(logits, targets) * 2

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def still(parameters):
        return torch.optim.SGD(parameters, lr=0.0)

    def nothing(parameters):
        return list(parameters)
"""


def part(folder: Path, function: str) -> str:
    """Returns a function of a file with these parts, as rows hold it."""
    return find_part(f"{own_file(folder, PARTS).partition(':')[0]}:{function}")


def test_a_part_is_named_by_its_file_function_and_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "flash.py").write_text(
            "from beside import number\ndef attend(q, k, v, *, causal): return number * v\n"
        )
        Path(folder, "beside.py").write_text("number = 1\n")
    one, other = (find_part(f"{folder}/flash.py:attend") for folder in ("a", "b"))
    assert one.startswith("a/flash.py:attend@")
    assert one.rpartition("@")[2] == other.rpartition("@")[2]
    assert find_part(str(tmp_path / one)) == one
    named = find_part(f"fast one={one}")
    assert (named, part_title(named)) == (f"fast one={one}", f"fast one@{one.rpartition('@')[2][:4]}")
    assert load_part(named).__name__ == "attend"
    Path("b/beside.py").write_text("number = 2\n")
    assert find_part("b/flash.py:attend") != other
    with pytest.raises(BadModel, match="has changed"):
        find_part(other)
    with pytest.raises(BadModel, match=r"no function 'flash'\. Expected one of number, attend"):
        find_part("a/flash.py:flash")
    with pytest.raises(BadModel, match="names no Python file"):
        find_part("c/flash.py:attend")


@pytest.mark.parametrize("of", ["fp32", "bf16", "fp16"])
def test_an_attention_that_is_right_passes_in_every_precision(tmp_path: Path, of: Any) -> None:
    errors = check_attention(part(tmp_path, "attend"), (2, 1, 129, 16), of, device=CPU, causal=True)
    assert errors["output_error"] <= 3 * errors["naive_error"]


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("unscaled", Wrong, "differs from float64: output by"),
        ("rounded", Wrong, "differs from float64: output by"),
        ("one_entry", Wrong, "their worst entry by"),
        ("cut", Wrong, "no gradient reaches keys"),
        ("flat", BadModel, r"returned torch.float32 of shape \(1, 129, 16\)"),
        ("frozen", BadModel, "needs no gradient"),
    ],
)
def test_a_wrong_attention_is_refused(tmp_path: Path, function: str, kind: type[Exception], words: str) -> None:
    name = part(tmp_path, function)
    with pytest.raises(kind, match=words):
        check_attention(name, (2, 1, 129, 16), "fp32", device=CPU, causal=True)


def test_a_wrong_attention_says_how_wrong(tmp_path: Path) -> None:
    """Independently: naive attention of doubled queries, in float64."""
    with pytest.raises(Wrong) as caught:
        check_attention(part(tmp_path, "unscaled"), (1, 1, 32, 8), "fp32", device=CPU, causal=True)
    torch.manual_seed(0)
    q, k, v, _ = (torch.randn(1, 1, 32, 8).double() for _ in range(4))
    right, wrong = naive(q, k, v, causal=True), naive(2 * q, k, v, causal=True)
    assert caught.value.values["output_error"] == pytest.approx(float((wrong - right).norm() / right.norm()), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"loss_function": "summed"}, Wrong, "output by 1.0e[+]00, gradients by 1.0e[+]00"),
        ({"optimizer": "still"}, Wrong, "left parameters of shape"),
        ({"optimizer": "nothing"}, BadModel, "returned list, without step, zero_grad, state"),
        ({"loss_function": "loss", "optimizer": "sgd", "attention": "attend"}, None, ""),
    ],
)
def test_the_parts_of_a_step_are_checked(
    tmp_path: Path, settings: dict[str, str], kind: type[Exception] | None, words: str
) -> None:
    cell = asked("toy-64", context=16, **{name: part(tmp_path, function) for name, function in settings.items()})
    if kind is None:
        check_parts(cell, CPU)
    else:
        with pytest.raises(kind, match=words):
            check_parts(cell, CPU)


def test_a_sweep_measures_own_parts_and_marks_wrong_ones(tmp_path: Path) -> None:
    db, file = tmp_path / "r.duckdb", own_file(tmp_path, PARTS).partition(":")[0]
    words = ["--sizes", "toy-64", "--contexts", "16", "--modes", "train", "--seq-lens", "32", "--d-heads", "8"]
    words += ["--precisions", "fp32", "--attention", f"naive,{file}:attend", "--attention", f"{file}:unscaled"]
    words += ["--loss", f"{file}:loss", "--optimizers", f"{file}:sgd", "--steps", "3", "--max-steps", "3"]
    experiments = ["--experiment", "attention", "--experiment", "benchmark", "--rounds", "1", "--no-ceilings"]
    done = run("sweep", *experiments, *words, "--device", "cpu", db=db)
    assert ("4 ok, 2 wrong" in done.stdout, done.returncode) == (True, 1), done.stdout
    assert done.stdout.count("at most 5.0e-06, and 5.0e-05 in one entry.") == 2, done.stdout
    alone = {row["implementation"].partition(":")[2].partition("@")[0]: row for row in rows(db, "FROM attention")}
    assert {name: row["status"] for name, row in alone.items()} == {"": "ok", "attend": "ok", "unscaled": "wrong"}
    assert alone["unscaled"]["output_error"] > 0.01
    assert alone["attend"]["predicted_saved_bytes"] is None
    steps = rows(db, "SELECT status, attention, loss_function, optimizer, loss FROM steps ORDER BY attention = 'naive'")
    assert sorted(row["status"] for row in steps) == ["ok", "ok", "wrong"]
    losses = [row["loss"] for row in steps if row["status"] == "ok"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    again = run("sweep", *experiments, *words, "--device", "cpu", db=db)
    assert "Nothing to measure" in again.stdout, again.stdout
    assert ("Wrong when measured before: 2 cells" in again.stdout, again.returncode) == (True, 1), again.stdout
    command = run("show", "attention_rates", db=db).stdout
    assert f":attend@{alone['attend']['implementation'].rpartition('@')[2]}" in command


def test_rates_are_flops_over_time(tmp_path: Path) -> None:
    """By hand: 4 B S² d, of which a causal mask leaves half, of 8 problems of 2,048 tokens, 64 wide."""
    of, name = run_row(), "flash.py:attend@0123abcd"
    cells = [
        memory_rows.attention(of, seq_len=2048, batch=8),
        memory_rows.attention(of, seq_len=2048, batch=8, implementation=name, status="wrong"),
    ]
    cells += [memory_rows.attention(of, seq_len=1024, batch=batch) for batch in (8, 16)]
    rows = read(store_tables(tmp_path / "r.duckdb", cells), Selection(), ("attention", "ceilings", "runs"))
    (view,) = ask("attention_rates", rows, {}).views
    assert {*zip(view.column("seq_len"), view.column("batch"), strict=True)} == {(1024, 16), (2048, 8)}
    assert "batch of constant tokens" in view.about
    (view,) = (answer := ask("attention_rates", rows, {"phase": "forward", "batch": "8"})).views
    assert set(view.column("batch")) == {8}
    rates = {way: rate for _, way, length, rate, *_ in (row.values for row in view.rows) if length == 2048}
    ms = memory_rows.forward_ms(AttentionCell(implementation="naive", seq_len=2048, d_head=64, precision="fp32"))
    assert rates == {"naive": pytest.approx(2 * 8 * 2048**2 * 64 / ms * 1e3 / 1e12), "flash:attend@0123": None}
    assert view.column("error")[view.column("implementation").index("naive")] == pytest.approx(2e-7)
    assert "flash:attend@0123" in answer.more


def test_the_preset_flash_keeps_the_tokens_of_a_pass() -> None:
    (grids,) = PRESETS["flash"].grids["attention"]
    cells = [cell for cell in grids.cells() if isinstance(cell, AttentionCell)]
    assert {(cell.seq_len, cell.d_head, cell.batch) for cell in cells} == {
        (512 * 2**n, d, 2048 * 16384 // (512 * 2**n * d)) for n in range(8) for d in (64, 128)
    }
    assert len(cells) == 16 * 11


def test_the_moments_of_an_own_optimizer_are_optimizer_state(tmp_path: Path) -> None:
    db, file = tmp_path / "r.duckdb", own_file(tmp_path, PARTS).partition(":")[0]
    words = "--experiment memory --sizes toy-64 --contexts 16 --modes train --precisions fp32 --rounds 1"
    run("sweep", *words.split(), "--optimizers", f"{file}:sgd", "--device", "cpu", db=db)
    (row,) = rows(db, "SELECT * FROM memory WHERE NOT timeline")
    assert row["optimizer_state_bytes"] == row["parameters_bytes"]
    assert row["predicted_peak_bytes"] is None
