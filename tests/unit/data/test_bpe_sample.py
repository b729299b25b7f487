"""Sampling the text that a BPE tokenizer is trained on."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.data import DatasetConfig
from difftransformer.data.bpe_sample import bpe_sample, divide_budget
from difftransformer.data.documents import documents
from difftransformer.data.sources import open_sources
from difftransformer.data.tokenizer import TextTokenizer, train_tokenizer

Configure = Callable[..., DatasetConfig]


def test_the_sample_budget_is_in_bytes_for_any_script(configure: Configure, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"{number} " + "漢字é🎉" * 100, encoding="utf-8")
    own = {"own": {"kind": "files", "globs": [f"{tmp_path}/*.txt"], "license": "MIT"}}
    for budget in (10, 2000, 5001):
        texts = list(bpe_sample(configure(sources=own), budget))
        assert 0.9 * budget - 3 <= sum(len(text.encode()) for text in texts) <= budget


WORDS = [f"{a}{b}{c}" for a in ("st", "br", "kl") for b in ("a", "o", "ei") for c in ("ng", "rm")]


def prose(seed: int, words: int) -> str:
    generator = random.Random(seed)
    return " ".join(generator.choice(WORDS) for _ in range(words))


def characters_per_token(configure: Configure, folder: Path, text: str) -> float:
    source = {"kind": "files", "globs": [str(folder)], "license": "x"}
    tokenizer = {"kind": "bpe", "vocab_size": 300, "sample_bytes": 60_000}
    path = folder.with_name(f"{folder.name}.tokenizer") / "tokenizer.json"
    path.parent.mkdir(exist_ok=True)
    train_tokenizer(configure(sources={"own": source}, tokenizer=tokenizer), path)
    return len(text) / len(TextTokenizer(path).encode([text])[0])


@pytest.mark.parametrize("form", ["one document", "one file of lines"])
def test_a_large_first_file_does_not_fill_the_sample(
    configure: Configure, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(30):
        (folder / f"text {number}.txt").write_text(prose(number, 500))
    alone = characters_per_token(configure, folder, prose(99, 500))
    dump = random.Random(0).randbytes(200_000).hex()
    if form == "one document":
        (folder / "a dump.txt").write_text(dump)
        expected = 0.97 * alone
    else:
        # A tenth of the documents is prose, and so a tenth of the sample.
        lines = [f'{{"text": "{dump[start : start + 1500]}"}}' for start in range(0, 400_000, 1500)]
        (folder / "a dump.jsonl").write_text("\n".join(lines))
        expected = 2.0  # 1.1 of the dump alone
    assert characters_per_token(configure, folder, prose(99, 500)) > expected


def own_files(configure: Configure, folder: Path, lengths: list[int]) -> DatasetConfig:
    for number, length in enumerate(lengths):
        (folder / f"{number:04}.txt").write_text(chr(ord("0") + number % 60) * length)
    source = {"kind": "files", "globs": [str(folder)], "license": "x"}
    return configure(sources={"own": source}, validation_share=1e-9)


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_a_split_within_the_budget_is_sampled_completely(
    configure: Configure, tmp_path: Path, more: int
) -> None:
    dataset = own_files(configure, tmp_path, [5, 900, 20, 3000, 7])
    source = open_sources(dataset)["own"]
    texts = [document.text for document in documents(source, "train", dataset.validation_share)]
    assert list(bpe_sample(dataset, len("".join(texts)) + more)) == texts


def test_long_documents_have_equal_parts_of_the_sample(
    configure: Configure, tmp_path: Path
) -> None:
    dataset = own_files(configure, tmp_path, [9000, 8000, 50, 7000, 20, 6000])
    lengths = sorted(map(len, bpe_sample(dataset, 10_000)))
    assert len(lengths) == 5 and lengths[-3:] == [2000] * 3


@pytest.mark.parametrize("lengths", [[5000], [5000, 4000, 6000], [1001]])
def test_long_documents_alone_fill_the_sample(
    configure: Configure, tmp_path: Path, lengths: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A byte more than the budget must not leave a tenth of it."""
    caplog.set_level("INFO")
    own_files(configure, tmp_path, lengths)
    (tmp_path / "held out.md").write_text("x")
    globs = {"globs": [f"{tmp_path}/*.txt"], "validation": [f"{tmp_path}/*.md"]}
    dataset = configure(sources={"own": {"kind": "files", "license": "x"} | globs})
    sample_size = sum(map(len, bpe_sample(dataset, 1000)))
    assert 995 <= sample_size <= 1000 and f"{sample_size} of " in caplog.text


def test_many_documents_are_sampled_from_the_first_to_the_last(
    configure: Configure, tmp_path: Path
) -> None:
    for number, letter in enumerate("abcd"):
        lines = [f'{{"text": "{letter * 100}{line:04}"}}' for line in range(1000)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    source = {"kind": "files", "globs": [str(tmp_path)], "license": "x"}
    texts = list(bpe_sample(configure(sources={"own": source}, validation_share=0.1), 50_000))
    counts = Counter(text[0] for text in texts)
    assert set(counts) == set("abcd") and max(counts.values()) <= 1.2 * min(counts.values())
    assert {len(text) for text in texts[:-1]} == {50} and 990 <= len(texts) <= 1000


def test_a_dump_next_to_short_texts_does_not_exceed_its_share(
    configure: Configure, tmp_path: Path
) -> None:
    dataset = own_files(configure, tmp_path, [30_000, *[200] * 100])
    lengths = sorted(map(len, bpe_sample(dataset, 25_000)))
    assert len(lengths) > 95 and lengths[-2:] == [200, 25_000 // len(lengths)]
    dataset = own_files(configure, tmp_path, [30_000, *[1] * 100])
    assert 2_490 <= sum(map(len, bpe_sample(dataset, 25_000))) <= 2_500


def test_sources_share_the_sample_by_weight(configure: Configure, tmp_path: Path) -> None:
    own = own_files(configure, tmp_path, [2000] * 50).sources["own"]
    stdlib = configure().sources["stdlib"]
    texts = list(bpe_sample(configure(sources={"own": own, "stdlib": stdlib}), 20_000))
    repeated = [len(text) for text in texts if len(set(text)) == 1]
    assert 9_000 <= sum(repeated) <= 10_000 and len(repeated) > 40


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.1, 10)), min_size=1), st.floats(1, 1e5))
def test_a_budget_is_divided_by_weights(sources: list[tuple[float, float]], budget: float) -> None:
    totals, weights = zip(*sources, strict=True)
    budgets = divide_budget(totals, weights, budget)
    assert all(0 <= part <= total for part, total in zip(budgets, totals, strict=True))
    assert sum(budgets) == pytest.approx(min(budget, sum(totals)))
    short = [number for number, part in enumerate(budgets) if part < totals[number]]
    units = [budgets[number] / weights[number] for number in short]
    assert units == pytest.approx(units[:1] * len(units))
    pairs = zip(budgets, weights, strict=True)
    assert not units or all(part <= units[0] * weight * 1.001 for part, weight in pairs)
