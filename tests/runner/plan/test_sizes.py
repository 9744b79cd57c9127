"""Every size has a unique name, even one that is added later than the others."""

from runner.schema.axes import Model
from runner.schema.sizes import name_models
from tests.synthetic import rows


def test_a_model_added_by_a_running_sweep_has_a_name() -> None:
    """A page may read the sizes of a file shortly before it reads the cells."""
    names = name_models([Model.of(rows.asked("toy-64"))])
    assert names[Model.of(rows.asked("toy-128"))] == "toy-128"
    assert names[Model.of(rows.asked("toy-64"))] == "toy-64"
    assert len(names) == 1


def test_two_models_of_one_name_get_different_names_whenever_they_are_added() -> None:
    one, other = (Model.of(rows.asked("toy-64", vocabulary=vocabulary)) for vocabulary in (4096, 8192))
    both = name_models([one, other])
    assert both[one] != both[other]
    later = name_models([one])
    assert later[other] != later[one]
