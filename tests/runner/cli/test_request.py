"""Command-line flags and a sweep.toml become one request; every wrong value is explained."""

import json
import shlex
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.plan.planning import Request, plan
from runner.sweep.request import Settings
from tests.command import parsed

#: Every flag of `sweep` with a value, on the command line and in a config file.
WORDS = shlex.split(
    "--preset cs336-2025 --experiment benchmark --experiment mixed-precision --sizes small,2.7B "
    "--shape d_model=64,d_ff=96,layers=2,heads=4 --contexts 128,256 --batch 2,4 --modes inference,train "
    "--precisions fp32,bf16 --backends eager,compiled-block --attention naive,sdpa --optimizers fused --weights fp32 "
    "--checkpoint 0,2 --warmup 0,5 --steps 7 --max-steps 70 --max-seconds 5 --rounds 3 --db some/file.duckdb "
    "--label mine --device cuda:1 --timeout 90s --budget 2h --fresh --any-commit --skip-predicted-oom"
)
AXES = {
    "sizes": ("small", "xl@2026"),
    "shape": ("d_model=64,d_ff=96,layers=2,heads=4",),
    "contexts": (128, 256),
    "batch": (2, 4),
    "modes": ("inference", "train"),
    "precisions": ("fp32", "bf16"),
    "backends": ("eager", "compiled-block"),
    "attention": ("naive", "sdpa"),
    "optimizers": ("fused",), "weights": ("fp32",), "checkpoint": (0, 2), "warmup": (0, 5),
    "steps": 7, "max_steps": 70, "max_seconds": 5.0,
}  # fmt: skip
REQUEST = Request(preset="cs336-2025", experiments=("benchmark", "mixed-precision"), axes=AXES, rounds=3)
SETTINGS = Settings(
    db=Path("some/file.duckdb"), device="cuda:1", label="mine", timeout_s=90.0, budget_s=7200.0,
    fresh=True, any_commit=True, skip_predicted_oom=True,
)  # fmt: skip
#: The same in a config file, whose lists, texts, numbers and booleans are written as in JSON.
TOML = "\n".join(
    f"{name.replace('_', '-')} = {json.dumps(value)}"
    for name, value in {
        **AXES, "sizes": ("small", "2.7B"), "max_seconds": 5, "preset": REQUEST.preset, "rounds": 3,
        "experiment": REQUEST.experiments, "db": "some/file.duckdb", "label": "mine", "device": "cuda:1",
        "timeout": "90s", "budget": "2h", "fresh": True, "any_commit": True, "skip_predicted_oom": True,
    }.items()
)  # fmt: skip


def config(folder: Path, text: str) -> tuple[str, str]:
    path = folder / "sweep.toml"
    path.write_text(text)
    return "--config", str(path)


def test_without_flags_everything_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSCOPE_DB", raising=False)
    assert parsed() == (Request(rounds="auto"), Settings(db=Path("data/results.duckdb"), timeout_s=600.0))
    monkeypatch.setenv("STEPSCOPE_DB", "/elsewhere/r.duckdb")
    assert parsed()[1].db == Path("/elsewhere/r.duckdb")
    assert parsed("--db", "here.duckdb")[1].db == Path("here.duckdb")


def test_every_flag_reaches_the_request() -> None:
    assert parsed(*WORDS) == (REQUEST, SETTINGS)


def test_a_config_file_has_the_same_names_and_meaning(tmp_path: Path) -> None:
    asked = parsed(*config(tmp_path, TOML))
    assert asked == (REQUEST, SETTINGS)
    plans = (plan(request, device="cpu", device_memory_bytes=None) for request in (asked[0], parsed(*WORDS)[0]))
    keys = [[item.cell.key for item in planned] for planned in plans]
    assert keys[0] == keys[1], "5 in a file and 5.0 from a flag are the same cell"
    assert len(keys[0]) == 3 * len(set(keys[0]))


def test_a_single_value_needs_no_list(tmp_path: Path) -> None:
    text = 'contexts = 128\nsizes = "small,medium"\ntimeout = 90\nshape = "SHAPE"'
    request, settings = parsed(*config(tmp_path, text))
    assert request.axes == {"contexts": (128,), "sizes": ("small", "medium"), "shape": ("SHAPE",)}
    assert settings.timeout_s == 90.0


def test_flags_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, TOML)
    words = "--sizes medium --max-seconds 0 --experiment benchmark --label typed --timeout 1m --batch 0 --rounds 1"
    request, settings = parsed(*file, *words.split())
    assert request.axes == {**AXES, "sizes": ("medium",), "max_seconds": 0.0, "batch": (0,)}
    assert request.experiments == ("benchmark",)
    assert request.rounds == 1
    assert (settings.label, settings.timeout_s, settings.budget_s) == ("typed", 60.0, 7200.0)
    assert settings.fresh, "a flag that was not given leaves the file's value"


def test_rounds_are_a_number_or_chosen_by_the_sweep(tmp_path: Path) -> None:
    assert parsed("--rounds", "auto")[0].rounds == parsed()[0].rounds == "auto"
    assert parsed(*config(tmp_path, "rounds = 'auto'"))[0].rounds == "auto"
    assert parsed(*config(tmp_path, "rounds = 2"))[0].rounds == parsed("--rounds", "2")[0].rounds == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("0.2s", 0.2), ("1e2", 100.0)]
)
def test_durations(text: str, seconds: float) -> None:
    settings = parsed("--timeout", text, "--budget", text)[1]
    assert settings.timeout_s == settings.budget_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "got", "expected"),
    [
        ("--preset big", "--preset got 'big'", "one of laptop, standard, cs336-2025, cs336-2026"),
        ("--experiment speed", "--experiment got 'speed'", "one of benchmark, mixed-precision"),
        ("--sizes huge", "no size called 'huge'", "one of toy-64"),
        ("--sizes small,", "no size called ''", "one of toy-64"),
        ("--sizes xl", "'xl' means two different shapes", "xl@2025"),
        ("--modes eval", "--modes got 'eval'", "one of inference, forward, backward, train"),
        ("--precisions fp32,fp64", "--precisions got 'fp64'", "one of fp32, tf32, bf16, fp16"),
        ("--backends jit", "--backends got 'jit'", "one of eager, compiled"),
        ("--attention flash", "--attention got 'flash'", "one of naive, sdpa"),
        ("--optimizers sgd", "--optimizers got 'sgd'", "one of foreach, for-loop, fused"),
        ("--weights fp16", "--weights got 'fp16'", "one of fp32, bf16"),
        ("--contexts 128,long", "--contexts got 'long'", "whole numbers"),
        ("--contexts 12.5", "--contexts got '12.5'", "whole numbers"),
        ("--contexts ²", "--contexts got '²'", "whole numbers"),
        ("--contexts 128,1,024", "--contexts got '1,024'", "For one number write 1024; for two, 1,24."),
        ("--batch=-1", "--batch got '-1'", "whole numbers from 1"),
        ("--warmup=", "--warmup got ''", "whole numbers from 0"),
        ("--checkpoint=-1", "--checkpoint got '-1'", "whole numbers from 0"),
        ("--rounds banana", "--rounds got 'banana'", "auto, or a whole number of at least 1"),
        ("--rounds 0", "--rounds got '0'", "auto, or a whole number of at least 1"),
        ("--rounds 1000", "--rounds got 1,000", "at most 100"),
        ("--timeout soon", "--timeout got 'soon'", "90s, 15m or 2h"),
        ("--timeout 0", "--timeout got '0'", "above zero"),
        ("--timeout nan", "--timeout got 'nan'", "above zero"),
        ("--budget=-5m", "--budget got '-5m'", "above zero"),
        ("--budget inf", "--budget got 'inf'", "above zero"),
        ("--budget m", "--budget got 'm'", "90s, 15m or 2h"),
        ("colour = 1", "The config names colour.", "names among preset, experiment, sizes"),
        ("config = 'x.toml'", "The config names config.", "names among"),
        ("contexts = [", "cannot be read", "a TOML file"),
        ("contexts = [12.5]", "--contexts got '12.5'", "whole numbers"),
        ("contexts = 12.5", "contexts = 12.5", "type str or int or list"),
        ("contexts = true", "contexts = True", "type str or int or list"),
        ("sizes = {a = 1}", "sizes = {'a': 1}", "type str or int or list"),
        ("steps = 'ten'", "steps = 'ten'", "a whole number, at least 1"),
        ("steps = 0", "steps = 0", "a whole number, at least 1"),
        ("max-steps = 2.5", "max_steps = 2.5", "a whole number, at least 1"),
        ("rounds = -1", "--rounds got -1", "auto, or a whole number of at least 1"),
        ("rounds = 2.0", "rounds = 2.0", "type int or str"),
        ("max-seconds = '5'", "max_seconds = '5'", "type int or float"),
        ("timeout = []", "timeout = []", "type str or int or float"),
        ("timeout = 0", "--timeout got 0", "above zero"),
        ("fresh = 'no'", "fresh = 'no'", "type bool"),
        ("label = 5", "label = 5", "type str"),
        ("db = 5", "db = 5", "type str"),
    ],
)
def test_a_wrong_value_of_a_flag_or_a_config_is_explained(tmp_path: Path, text: str, got: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(*(shlex.split(text) if text.startswith("--") else config(tmp_path, text)))
    assert got in str(error.value)
    assert expected in str(error.value)


def test_a_config_that_is_not_text_or_missing(tmp_path: Path) -> None:
    binary = tmp_path / "sweep.toml"
    binary.write_bytes(b"sizes = '\xff\xfe'")
    for path in (binary, tmp_path / "missing.toml"):
        with pytest.raises(UsageError, match=r"cannot be read.*Expected a TOML file"):
            parsed("--config", str(path))
