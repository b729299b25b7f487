"""Training, conversion and loading of tokenizers."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import documents
from difftransformer.data.sources import open_sources
from difftransformer.data.tiktoken_format import PATTERNS, to_encoding, to_tokenizer
from difftransformer.data.tokenizer import END_OF_TEXT, TextTokenizer, _pieces, train_tokenizer
from difftransformer.errors import ConfigError, DataError, UserError

Configure = Callable[..., DatasetConfig]


@pytest.fixture(scope="module")
def corpus(configure: Configure) -> list[str]:
    source = open_sources(configure())["stdlib"]
    return [document.text for document in documents(source, "train", 0.2)]


def test_bpe_has_the_configured_size_and_ends_documents(tokenizer: Path) -> None:
    opened = TextTokenizer(tokenizer)
    assert (opened.vocab_size, opened.eos_id, opened.entry.kind) == (512, 0, "bpe")
    assert opened.entry.sha256 == hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    tokens = opened.encode(["def f(): pass"])[0]
    assert tokens[-1] == 0 and 0 not in tokens[:-1]


def test_encoding_round_trips_every_byte(tokenizer: Path) -> None:
    text = "".join(map(chr, range(1, 0x3000))) + "漢字 🎉\r\n\t"
    tokens = TextTokenizer(tokenizer).encode([text])[0]
    assert Tokenizer.from_file(str(tokenizer)).decode(tokens[:-1].tolist()) == text


def test_a_document_that_spells_the_special_token_is_text(tokenizer: Path) -> None:
    tokens = TextTokenizer(tokenizer).encode([f"a {END_OF_TEXT} b"])[0]
    assert (tokens == 0).sum() == 1


def test_documents_are_truncated(tokenizer: Path) -> None:
    opened = TextTokenizer(tokenizer)
    uncut, cut = opened.encode(["one two three"])[0], opened.encode(["one two three"], 3)[0]
    assert cut.tolist() == [*uncut[:2].tolist(), 0]


def test_training_in_another_process_gives_the_same_bytes(
    tokenizer: Path, configure: Configure, tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path; "
        "from difftransformer.config.data import DatasetConfig; "
        "from difftransformer.data.tokenizer import train_tokenizer; "
        "train_tokenizer(DatasetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
    )
    arguments = [configure().model_dump_json(), str(tmp_path / "tokenizer.json")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (tokenizer.parent / name).read_bytes()


@pytest.fixture(scope="module")
def small_encoding(tokenizer: Path) -> tiktoken.Encoding:
    """A small encoding with cl100k's pattern and, like it, a gap before its special tokens."""
    tokens = Tokenizer.from_file(str(tokenizer)).get_vocab()
    shifted = {token: number - 1 for token, number in tokens.items() if token != END_OF_TEXT}
    letters = to_encoding(Tokenizer.from_file(str(tokenizer)), "gpt2")
    ranks = {letters.decode_single_token_bytes(number + 1): number for number in shifted.values()}
    special = {END_OF_TEXT: 600, "<|fim|>": 700}
    return tiktoken.Encoding(
        "cl100k_base",
        pat_str=PATTERNS["cl100k_base"],
        mergeable_ranks=ranks,
        special_tokens=special,
    )


def test_tiktoken_and_its_tokenizer_json_give_the_same_ids(
    small_encoding: tiktoken.Encoding, corpus: list[str]
) -> None:
    converted = to_tokenizer(small_encoding)
    back = to_encoding(converted, "cl100k_base")
    converted.encode_special_tokens = True
    awkward = ["a  b\n\n c.\n\n\n", "1234567 ²³", "it's IT'S", f"x{END_OF_TEXT}y", "\t\r\n ", ""]
    for text in [*corpus, *awkward]:
        expected = small_encoding.encode_ordinary(text)
        assert converted.encode(text, add_special_tokens=False).ids == expected
        assert back.encode_ordinary(text) == expected
    assert converted.token_to_id(END_OF_TEXT) == back.eot_token == 600


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k_base"])
def test_encoding_in_pieces_gives_the_same_ids_as_at_once(
    pattern: str, tokenizer: Path, small_encoding: tiktoken.Encoding
) -> None:
    encode = small_encoding.encode_ordinary
    if pattern == "gpt2":
        trained = Tokenizer.from_file(str(tokenizer))
        trained.encode_special_tokens = True

        def encode(text: str) -> list[int]:
            return trained.encode(text, add_special_tokens=False).ids

    @settings(max_examples=150)
    @given(
        st.text(
            st.sampled_from("    ab1'sS\n\r\tab.,'1é漢²\u00a0\u0301\x1c_-")
            | st.characters(codec="utf-8")
        ),
        st.integers(1, 5),
    )
    def same(text: str, size: int) -> None:
        pieces = list(_pieces(text, size))
        assert "".join(pieces) == text
        ids = [number for piece in pieces for number in encode(piece)]
        assert ids == encode(text)

    same()


def test_bpe_encodes_long_documents_as_at_once(tokenizer: Path, corpus: list[str]) -> None:
    reference = Tokenizer.from_file(str(tokenizer))
    text = "".join(corpus)
    assert len(list(_pieces(text))) > 1
    ours = TextTokenizer(tokenizer).encode([text])[0]
    assert np.array_equal(ours[:-1], reference.encode(text, add_special_tokens=False).ids)


def test_a_local_folder_serves_as_hugging_face_tokenizer(
    tokenizer: Path, configure: Configure, corpus: list[str], tmp_path: Path
) -> None:
    config = {"kind": "huggingface", "name": str(tokenizer.parent)}
    train_tokenizer(configure(tokenizer=config), tmp_path / "tokenizer.json")
    ours, theirs = TextTokenizer(tokenizer), TextTokenizer(tmp_path / "tokenizer.json")
    assert theirs.entry.kind == "huggingface" and theirs.eos_id == 0
    for text in corpus[:3]:
        assert np.array_equal(ours.encode([text])[0], theirs.encode([text])[0])


@pytest.mark.parametrize("of_model", [False, True])
def test_token_ids_beyond_the_embedding_of_the_model_are_refused(
    of_model: bool, configure: Configure, tokenizer: Path, tmp_path: Path
) -> None:
    shutil.copytree(tokenizer.parent, tmp_path / "model")
    (tmp_path / "model/config.json").write_text(json.dumps({"vocab_size": 300}))
    config = {"kind": "huggingface", "name": str(tmp_path / "model"), "of_model": of_model}
    size = TextTokenizer(tokenizer).vocab_size
    with (
        pytest.raises(UserError, match=rf"{size} ids, its embedding 300 rows.*\({size}\)")
        if of_model
        else nullcontext()
    ):
        train_tokenizer(configure(tokenizer=config), tmp_path / "out/tokenizer.json")


def test_the_error_on_a_missing_end_of_text_names_the_config_file(
    configure: Configure, tokenizer: Path, tmp_path: Path
) -> None:
    shutil.copytree(tokenizer.parent, tmp_path / "model")
    described = json.loads((tmp_path / "model/tokenizer_config.json").read_text())
    del described["eos_token"]
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps(described))
    config = {"kind": "huggingface", "name": str(tmp_path / "model"), "of_model": True}
    with pytest.raises(UserError, match=r"name it in its tokenizer_config\.json") as refusal:
        train_tokenizer(configure(tokenizer=config), tmp_path / "out/tokenizer.json")
    assert "tokenizer.eos_token" not in str(refusal.value)  # `pretrained` has no such key


def test_transformers_reads_what_we_write(tokenizer: Path) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer.parent)
    assert loaded.eos_token_id == 0
    expected = TextTokenizer(tokenizer).encode(["import os"])[0][:-1]
    assert loaded("import os").input_ids == expected.tolist()


def test_a_vocabulary_larger_than_the_text_gives_is_refused(
    configure: Configure, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("so little text")
    source = {"kind": "files", "globs": [f"{tmp_path}/a.txt"], "license": "x"}
    dataset = configure(sources={"a": source}, validation_share=1e-9)
    with pytest.raises(DataError, match=r"^sources a: 14 bytes of .* 512: lower it, or add text$"):
        train_tokenizer(dataset, tmp_path / "tokenizer.json")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"sources a: no text for training, .* it takes two"):
        train_tokenizer(dataset, tmp_path / "tokenizer.json")


def test_unavailable_tokenizers_are_refused(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "tokenizer.json"
    hub = {"kind": "huggingface", "name": "owner/name"}
    with pytest.raises(ConfigError, match="needs a pinned revision"):
        train_tokenizer(configure(tokenizer=hub), output)
    # An encoding that is neither cached nor to be downloaded through this dead proxy.
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(DataError, match="tiktoken encoding p50k_base cannot be loaded") as caught:
        train_tokenizer(configure(tokenizer={"kind": "tiktoken", "name": "p50k_base"}), output)
    assert "\n" not in str(caught.value)
    assert not output.exists()


@pytest.mark.parametrize("damage", ["missing", "not json", "no config", "no eos"])
def test_damaged_tokenizer_files(damage: str, tokenizer: Path, tmp_path: Path) -> None:
    path, config = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    path.write_bytes(b"{" if damage == "not json" else tokenizer.read_bytes())
    description = json.loads(tokenizer.with_name(config.name).read_text())
    config.write_text(json.dumps(description | ({"eos_token": "?!"} if damage == "no eos" else {})))
    if damage == "missing":
        path.unlink()
    if damage == "no config":
        config.unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: (cannot be read|its end-of-text)"):
        TextTokenizer(path)


def test_the_tokenizer_of_a_base_model_is_copied(
    tokenizer: Path, configure: Configure, tmp_path: Path
) -> None:
    output = tmp_path / "derived" / "tokenizer.json"
    output.parent.mkdir()
    other = configure(tokenizer={"kind": "bpe", "vocab_size": 300})
    train_tokenizer(other, output, tokenizer)
    assert output.read_bytes() == tokenizer.read_bytes()
    assert TextTokenizer(output).entry == TextTokenizer(tokenizer).entry
    with pytest.raises(DataError, match="make the tokenizer of the base"):
        train_tokenizer(other, output, tmp_path / "nowhere" / "tokenizer.json")
