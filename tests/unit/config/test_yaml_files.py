"""YAML is parsed strictly: each trap gives a one-line error with file and line."""

import pytest

from difftransformer.config.yaml_files import parse_mapping, read_yaml
from difftransformer.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "line 2: key 'a' stands twice"),
        ("a:\n\t- 1\n", "line 2: found character '\\t'"),
        ("no: 1\n", "key 'no' is read as False"),
        ("a: {lr: 0,3}\n", "line 1: '3' behind a comma has no value; a decimal"),
        ("- 1\n", "must be a mapping"),
        ("a: [1\n", "line 2"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("a: *nowhere\n", "undefined alias"),
    ],
)
def test_a_yaml_trap_is_a_one_line_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mapping(text, "some.yaml")
    line = str(caught.value)
    assert line.startswith("some.yaml: ")
    assert message in line
    assert "\n" not in line


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        read_yaml(tmp_path / "nothing.yaml")


def test_an_anchor_and_a_merge_key_work() -> None:
    text = "base: &base {x: 1}\nother:\n  <<: *base\n  y: 2\n"
    assert parse_mapping(text, "t")["other"] == {"x": 1, "y": 2}
