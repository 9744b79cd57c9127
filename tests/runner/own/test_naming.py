"""The values that `--model` accepts, and when two models count as the same."""

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.models.given import load
from runner.plan.commands import sweep_commands
from runner.schema import Model
from runner.schema.axes import SHAPE
from runner.schema.own import own_title, parse_spec
from runner.schema.sizes import model_name, title
from tests.runner.own.build import own_file, own_memory, own_step

LINEAR = "def build(want):\n    return nn.Linear(4, 4), torch.ones(want.batch, 4), lambda out: out.sum()\n"


@pytest.mark.parametrize(
    ("text", "kind", "where", "name"),
    [
        ("a/nano.py:build", "file", "a/nano.py", "a/nano"),
        ("nano.py", "file", "nano.py", "nano"),
        ("a/nano.py:large,width=8,name=x", "file", "a/nano.py", "a/nano:large,width=8,name=x"),
        ("my.models.gpt:build", "module", "my.models.gpt", "my.models.gpt"),
        ("hf:llama/config.json", "hf", "llama/config.json", "llama"),
        ("hf:llama,tie=true", "hf", "llama", "llama,tie=true"),
        ("wide one=a/nano.py:build,width=8", "file", "a/nano.py", "wide one"),
        ("small=hf:llama/config.json", "hf", "llama/config.json", "small"),
        (f"{Path.cwd()}/a/nano.py:large", "file", "a/nano.py", "a/nano:large"),
    ],
)
def test_a_value_says_where_a_model_comes_from(text: str, kind: str, where: str, name: str) -> None:
    spec = parse_spec(text)
    assert (spec.kind, spec.where, spec.name) == (kind, where, name)
    assert spec.text == text.replace(f"{Path.cwd()}/", ""), "no path of a machine gets into the rows"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("tiny/model.py:build", "tiny/model@3f2a"),
        ("/home/me/big/model.py:build,width=8", "big/model,width=8@3f2a"),
        ("a <b>b</b> **c** [d](e) `f`", "a _b_b_/b_ __c__ _d__e_ _f_@3f2a"),
        (f"a.py:build,name={'x' * 60}", f"a,name={'x' * 32}…@3f2a"),
    ],
)
def test_a_title_is_text_whatever_a_row_contains(text: str, title: str) -> None:
    assert own_title(text, "3f2a") == title


@pytest.mark.parametrize("text", ["", "hf:", "a b:build", "nano.py:build,width", "nano.py:build,1=2", "x/y"])
def test_invalid_names_of_models_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--model|option"):
        parse_spec(text)


def test_options_are_numbers_booleans_or_text() -> None:
    assert parse_spec("a.py:f,n=3,x=0.5,on=true,none=null,t=abc").options == {
        "n": 3, "x": 0.5, "on": True, "none": None, "t": "abc",
    }  # fmt: skip


def test_two_versions_of_a_file_or_of_its_imports_are_two_models(tmp_path: Path) -> None:
    (tmp_path / "own_part.py").write_text("WIDTH = 4\n")
    spec = own_file(tmp_path, f"import own_part\n{LINEAR}")
    one = load(parse_spec(spec)).key
    assert load(parse_spec(spec)).key == one
    assert load(parse_spec(f"{spec},n=1")).key != one
    (tmp_path / "own_part.py").write_text("WIDTH = 5\n")
    other = load(parse_spec(spec)).key
    assert other != one
    own_file(tmp_path, f"import own_part\n# a remark\n{LINEAR}")
    assert load(parse_spec(spec)).key not in (one, other)


def test_the_same_file_elsewhere_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert len({load(parse_spec(own_file(folder, LINEAR))).key for folder in (tmp_path, tmp_path / "other")}) == 1
    cells = [own_step(own_file(folder, LINEAR)) for folder in (tmp_path, tmp_path / "other")]
    assert cells[0].key == cells[1].key
    assert cells[0].model != cells[1].model


def test_a_title_names_the_model_and_leaves_out_what_it_lacks(tmp_path: Path) -> None:
    cell = own_memory(own_file(tmp_path, LINEAR), context=0, attention="own")
    assert title(cell) == f"{tmp_path.name}/mine@{(cell.model_key or '')[:4]} · train · fp32 · batch 2"
    assert model_name(Model.of(cell)) == f"{tmp_path.name}/mine@{(cell.model_key or '')[:4]}"


def test_a_command_measures_an_own_model_again(tmp_path: Path) -> None:
    spec = own_file(tmp_path, LINEAR)
    (command,) = sweep_commands([own_step(spec, context=0, attention="own")])
    assert f"--model {spec}" in command
    own = [flag for flag in ("--sizes", "--attention", "--contexts") if flag in command]
    assert not own, "an own model has none of these options"
    assert not any(f"{name}=" in command for name in SHAPE)
