import csv
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from difftransformer.training.validation import History


def test_absent_values_are_empty_cells(tmp_path: Path) -> None:
    history = History([{"step": 1, "loss": 0.1}, {"step": 2, "loss": 0.3, "accuracy_n4": 1.0}])
    history.write_csv(tmp_path / "history.csv")
    assert (tmp_path / "history.csv").read_text().splitlines() == [
        "step,tokens,loss,lr,grad_norm,validation_loss,accuracy_n4",
        "1,,0.1,,,,",
        "2,,0.3,,,,1.0",
    ]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_survive_exactly(tmp_path_factory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("history") / "history.csv"
    History([{"step": step, "loss": value} for step, value in enumerate(values)]).write_csv(path)
    with path.open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == values


def test_first_reaching_and_last() -> None:
    accuracies = [0.2, 0.91, 0.5, 0.95]
    rows = [{"step": 20 * n, "a": a} for n, a in enumerate(accuracies, 1)]
    history = History([*rows, {"step": 99}])
    assert history.first_reaching("a", 0.9) == 40
    assert history.first_reaching("a", 0.99) is None
    assert history.first_reaching("never measured", 0.0) is None
    assert history.last("a") == 0.95
    assert history.last("never measured") is None
