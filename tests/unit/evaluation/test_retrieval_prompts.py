"""Needle positions, exact to the token, and the questions about them."""

import re
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_evaluation import RECALL, write_recall

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.retrieval.prompts import (
    PromptBuilder,
    answer_needle_start,
    open_builder,
)
from difftransformer.evaluation.retrieval.settings import NeedleSetting, RetrievalSuite
from difftransformer.evaluation.retrieval.text import insertion_point

TEXT = {"format": "text", "lengths": [400, 600]}


class Suite(RetrievalSuite):
    kind: Literal["any"] = "any"
    needles: int = 4

    @property
    def most_needles(self) -> int:
        return self.needles


def builder(dataset: PackedDataset, **settings: object) -> PromptBuilder:
    return open_builder(Suite(**settings), dataset)


@pytest.fixture(scope="module")
def recall_prompts(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return builder(PackedDataset.open(write_recall(tmp_path_factory.mktemp("recall") / "made")))


@settings(max_examples=60)
@given(
    needles=st.integers(1, 8), depth=st.integers(0, 100), sample=st.integers(0, 99),
    length=st.sampled_from([None, 26, 40, 200]), data=st.data(),
)  # fmt: skip
def test_recall_needles_are_at_the_requested_depth(
    recall_prompts: PromptBuilder,
    needles: int,
    depth: int,
    sample: int,
    length: int | None,
    data: st.DataObject,
) -> None:
    queries = data.draw(st.integers(1, needles))
    cell = NeedleSetting(needles, queries, length, depth)
    prompt = recall_prompts.prompt(cell, sample)
    assert prompt == recall_prompts.prompt(cell, sample)
    H = RECALL.haystack_length if length is None else length - 2
    words = prompt.context.split()
    pairs = {words[t]: (t, words[t + 1]) for t in range(H) if words[t].startswith("k")}
    assert len(words) == H and len(pairs) == needles
    assert sum(word.startswith("v") for word in words) == needles
    assert len(prompt.questions) == queries
    for question, (answer,) in zip(prompt.questions, prompt.answers, strict=True):
        assert pairs[question.strip()][1] == answer
    start = answer_needle_start(depth, H)
    assert pairs[prompt.questions[0].strip()][0] == start == prompt.needle.start
    assert prompt.needle.stop == start + 2
    ids = recall_prompts.token_ids(prompt.context + prompt.questions[0])
    assert prompt.question == (H, H + 1) == (H, len(ids))


def test_depths_cover_the_first_to_the_last_position() -> None:
    assert [answer_needle_start(depth, 33) for depth in (0, 25, 50, 75, 100)] == [0, 8, 16, 23, 31]
    places = [answer_needle_start(depth, 1002) for depth in range(101)]
    assert places == [10 * depth for depth in range(101)]


def test_other_needles_are_at_random_positions(recall_prompts: PromptBuilder) -> None:
    places = np.zeros(RECALL.haystack_length, dtype=int)
    for sample in range(300):
        words = recall_prompts.prompt(NeedleSetting(4, 1, None, 50), sample).context.split()
        places += [word.startswith("k") for word in words]
    start = answer_needle_start(50, RECALL.haystack_length)
    assert places[start] == 300
    free = np.delete(places, [start - 1, start, start + 1, RECALL.haystack_length - 1])
    assert free.min() > 10 and places[[start - 1, start + 1, -1]].max() == 0


def test_depths_and_questions_share_their_haystack(recall_prompts: PromptBuilder) -> None:
    depth_75 = recall_prompts.prompt(NeedleSetting(2, 2, None, 75), 3).context.split()
    depth_100 = recall_prompts.prompt(NeedleSetting(2, 2, None, 100), 3).context.split()
    equal = sum(a == b for a, b in zip(depth_75, depth_100, strict=True))
    assert equal >= RECALL.haystack_length - 8


@pytest.mark.parametrize("depth", [0, 25, 50, 75, 100])
@pytest.mark.parametrize("pair", [(1, 1), (4, 2)])
def test_text_needles_follow_the_last_sentence_end_before_the_depth(
    english: PackedDataset, pair: tuple[int, int], depth: int
) -> None:
    prompts = builder(english, **TEXT)
    for sample in range(4):
        prompt = prompts.prompt(NeedleSetting(*pair, 400, depth), sample)
        ids = prompts.token_ids(prompt.context + prompt.questions[0])
        assert len(ids) <= 400 - prompts.max_new_tokens
        assert len(ids) > 400 - prompts.max_new_tokens - 40
        sentences = re.findall(r"The special magic (\w+) number is: (\d{7})\n", prompt.context)
        assert len(sentences) == pair[0]
        city, number = next(s for s in sentences if s[1] == prompt.answers[0][0])
        assert city in prompt.questions[0] and len(prompt.answers[0]) == pair[1]
        sentence = prompts.tokenizer.decode(ids[slice(*prompt.needle)])
        assert sentence.strip() == f"The special magic {city} number is: {number}"
        question = prompts.tokenizer.decode(ids[slice(*prompt.question)])
        assert question.strip() == prompt.questions[0].strip()
        assert prompt.question.stop == len(ids) and ids[0] == prompts.eos_id
        needle_line = r"\nThe special magic \w+ number is: \d{7}\n"
        line = f"\nThe special magic {city} number is: {number}\n"
        haystack, before = (
            re.sub(needle_line, "", text)
            for text in (prompt.context, prompt.context.partition(line)[0])
        )
        offsets = prompts.tokenizer.encode(haystack, add_special_tokens=False).offsets
        assert len(before) == insertion_point(haystack, offsets, depth)


def test_the_insertion_point_is_exact_to_the_token(english: PackedDataset) -> None:
    tokenizer = builder(english, **TEXT).tokenizer
    text = "One two. Three four five! Six. Seven eight nine ten? Eleven"
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)", text)]
    for depth in range(101):
        index = depth * len(offsets) // 100
        limit = offsets[index][0] if index < len(offsets) else len(text)
        wanted = max((end for end in ends if end <= limit), default=0)
        assert insertion_point(text, offsets, depth) == (len(text) if depth == 100 else wanted)
    assert len({insertion_point(text, offsets, depth) for depth in range(101)}) == 6


def test_text_that_does_not_fit_is_refused(english: PackedDataset) -> None:
    with pytest.raises(ConfigError, match=r"80 tokens .* 4 needles"):
        builder(english, format="text", lengths=[80]).prompt(NeedleSetting(4, 1, 80, 0), 0)
    crowded = Suite(needles=51, **TEXT)  # type: ignore[arg-type]
    assert crowded.incompatibility(1024, None) == "51 needles need a city each, there are 50"
    many = Suite(format="text", lengths=[10**6], needles=1)
    with pytest.raises(DataError, match=r"validation split has \d+ tokens, .*haystack of 1000000"):
        open_builder(many, english)


def test_a_dataset_without_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_recall(tmp_path / "made")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: no such tokenizer; rebuild"):
        builder(PackedDataset.open(folder))
