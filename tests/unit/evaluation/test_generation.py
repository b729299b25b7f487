"""Prefix caching reduces computation and gives identical answers."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from small_decoders import KINDS, model_of
from tokenizers import Tokenizer, models, processors

from difftransformer.errors import ConfigError
from difftransformer.evaluation.generation import Generator, Request, prefix_token_ids
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.transformer import Transformer

VARIANTS: dict[str, dict[str, Any]] = {
    "softmax": {"variant": "softmax", "head_dim": 8},
    "diff_v1": {"variant": "diff_v1", "head_dim": 4},
    "softmax-gqa": {"variant": "softmax", "head_dim": 4, "num_heads": 4, "num_kv_heads": 2},
}
VOCAB, NEW = 31, 9


def never(_: list[int]) -> bool:
    return False


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> Transformer:
    config = ModelConfig(
        vocab_size=VOCAB, d_model=16, num_layers=2, ffn_dim=32,
        attention=VARIANTS[request.param], max_positions=120,
    )  # fmt: skip
    return Transformer.build(config, "sdpa", seed=5).eval()


def prompts() -> list[list[int]]:
    """Three contexts with questions, one context a prefix of another, one prompt twice."""
    generator = torch.Generator().manual_seed(2)
    context, other = torch.randint(VOCAB, (2, 70), generator=generator).tolist()
    questions = ([3], [4], [5, 6, 7], [3])
    token_ids = [[*context, *question] for question in questions]
    token_ids += [[*context[:40], *other[40:], *question] for question in questions]
    return [*token_ids, context[:40], other]


def generate(
    model: LanguageModel, reuse_prefix: bool, chunk: int = 64
) -> tuple[list[list[int]], Generator]:
    generator = Generator(Scorer(model, torch.device("cpu")), chunk, reuse_prefix)
    requests = [Request(prompt, NEW, never) for prompt in prompts()]
    return generator.generate(requests), generator


def test_shared_prefixes_give_the_naive_answers(model: Transformer) -> None:
    shared, sharing = generate(model, reuse_prefix=True)
    naive, alone = generate(model, reuse_prefix=False)
    assert shared == naive
    assert len({tuple(answer) for answer in shared}) >= 4
    assert (
        alone.computed_positions
        == alone.prompt_positions
        == sharing.prompt_positions
        == sum(map(len, prompts()))
    )
    # Two whole contexts and the other's second half, then a few tokens a question.
    assert sharing.computed_positions < 70 + 70 + 30 + 20


def test_chunks_give_the_same_answers(model: Transformer) -> None:
    assert generate(model, reuse_prefix=True, chunk=7)[0] == generate(model, reuse_prefix=True)[0]


def test_prompts_for_one_token_are_computed_in_batches_of_one_length(model: Transformer) -> None:
    context = prompts()[0]
    single_token = [[*context[:length], token] for length in (5, 9, 5, 20) for token in range(6)]
    requests = [
        *(Request(prompt, 1, never) for prompt in single_token),
        Request(context[:5], 2, never),
    ]
    generator = Generator(Scorer(model, torch.device("cpu")), 64, batch_size=4)
    with patch.object(
        Scorer, "greedy_tokens", autospec=True, side_effect=Scorer.greedy_tokens
    ) as greedy:
        answers = generator.generate(requests)
    shapes = [tuple(call.args[1].shape) for call in greedy.call_args_list]
    assert shapes == [(4, 6)] * 3 + [(4, 10), (2, 10)] + [(3, 21)] * 2  # 63 of 64 positions
    assert answers == Generator(Scorer(model, torch.device("cpu")), 64).generate(requests)
    assert generator.prompt_positions == sum(map(len, single_token)) + 5


def test_answers_equal_those_of_transformers(model: Transformer) -> None:
    from difftransformer.convert.hf import DiffTransformerForCausalLM

    wrapped = DiffTransformerForCausalLM.wrap(model)
    for prompt, answer in zip(prompts(), generate(model, reuse_prefix=True)[0], strict=True):
        out = wrapped.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False)
        assert out[0, len(prompt) :].tolist() == answer


def test_a_stop_condition_ends_an_answer(model: Transformer) -> None:
    scorer = Scorer(model, torch.device("cpu"))
    answer = generate(model, reuse_prefix=True)[0][0]
    request = Request(prompts()[0], NEW, lambda new: len(new) == 3)
    assert Generator(scorer, 64).generate([request]) == [answer[:3]]


def test_a_prompt_longer_than_the_context_is_refused(model: Transformer) -> None:
    generator = Generator(Scorer(model, torch.device("cpu")), 64)
    with pytest.raises(ConfigError, match=r"121 positions is longer than model\.max_pos"):
        generator.generate([Request([1] * 113, NEW, never)])


@pytest.mark.parametrize(
    ("kind", "window"),
    [*((kind, None) for kind in KINDS), *((kind, 16) for kind in ("mistral", "qwen2", "qwen3"))],
)
def test_a_transformers_model_answers_as_its_own_generate(kind: str, window: int | None) -> None:
    sliding = {} if window is None else {"sliding_window": window, "use_sliding_window": True}
    inner = model_of(kind, max_position_embeddings=120, initializer_range=0.3, **sliding)
    answers, generator = generate(HFCausalLM(inner), reuse_prefix=True, chunk=7)
    assert generator.computed_positions < generator.prompt_positions / 2
    inner.generation_config.eos_token_id = None
    for prompt, answer in zip(prompts(), answers, strict=True):
        ids = torch.tensor([prompt])
        alone = inner.generate(ids, max_new_tokens=NEW, do_sample=False)[0, len(prompt) :]
        assert answer == alone.tolist()
    assert len({tuple(answer) for answer in answers}) >= 4


@pytest.mark.parametrize(
    ("template", "expected"), [("<s> $A", [1]), ("<s> $A </s>", [1]), ("$A </s>", [7]), ("$A", [7])]
)
def test_prefix_tokens_follow_the_tokenizer(template: str, expected: list[int]) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<s>": 1, "</s>": 2}, unk_token="a"))
    special = [("<s>", 1), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=special
    )
    assert prefix_token_ids(tokenizer, eos_id=7) == expected
