"""Packed documents and masks through transformers: read as its own Llamas do, or refused."""

from typing import Any

import pytest
import torch
from test_hf import build, face
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from difftransformer.errors import UserError

LENGTHS = [7, 1, 9]
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def documents() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(1, 61, (length,), generator=generator) for length in LENGTHS]


def ours(variant: str) -> Any:
    return face(build({"variant": variant}))


def theirs(name: str) -> Any:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


MODELS = {
    **{name: (ours, name) for name in ("softmax", "diff_v1", "diff_v2", "dint", "tda")},
    **{name: (theirs, name) for name in ("Llama", "DiffLlama")},
}


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("flash_arguments", [False, True])
def test_packed_and_padded_losses_are_equal(name: str, flash_arguments: bool) -> None:
    """Documents in the form that transformers' own collator flattens them to."""
    from transformers import DataCollatorWithFlattening

    make, which = MODELS[name]
    model = make(which)
    collate = DataCollatorWithFlattening(
        return_flash_attn_kwargs=flash_arguments, return_seq_idx=flash_arguments
    )
    packed = collate([{"input_ids": document} for document in documents()])
    assert packed["input_ids"].shape == (1, 17)
    actual = model(**packed, use_cache=False).loss
    rows = pad_sequence(documents(), batch_first=True)
    expected = model(
        rows,
        attention_mask=(rows > 0).long(),
        labels=rows.masked_fill(rows == 0, -100),
        use_cache=False,
    ).loss
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    joined = model(packed["input_ids"], labels=packed["labels"], use_cache=False).loss
    assert (joined - expected).abs() > 1e-4  # else boundaries would make no difference


def boundaries() -> dict[str, dict[str, Any]]:
    """The same documents in each way that transformers' users tell of them."""
    lengths = torch.tensor(LENGTHS)
    ids = torch.arange(3).repeat_interleave(lengths)[None]
    cumulative = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    mask = (ids[:, :, None] == ids[:, None]).tril()
    additive = torch.zeros(1, 17, 17).masked_fill(~mask, torch.finfo(torch.float32).min)
    return {
        "position_ids": {"position_ids": positions},
        "positions from 2": {"position_ids": positions + 2},
        "a row of positions": {"position_ids": positions[0]},
        "cu_seq_lens_q": {"cu_seq_lens_q": cumulative, "max_length_q": 9},
        "cu_seq_lens_k": {"cu_seq_lens_k": cumulative, "max_length_k": 9},
        "seq_idx": {"seq_idx": ids.int()},
        "segment_ids": {"segment_ids": ids},
        "each its part": {"cu_seq_lens_q": torch.tensor([0, 7, 17]), "seq_idx": (ids == 2).int()},
        "bool 3-D": {"attention_mask": mask, "position_ids": positions},
        "bool 4-D": {"attention_mask": mask[:, None], "position_ids": positions},
        "additive 4-D": {"attention_mask": additive[:, None], "position_ids": positions},
        "-inf": {
            "attention_mask": torch.zeros(1, 17, 17).masked_fill(~mask, -torch.inf),
            "position_ids": positions,
        },
    }


@torch.no_grad()
@pytest.mark.parametrize("way", boundaries())
@pytest.mark.parametrize("backend", ["eager", "sdpa", "blocked"])
def test_every_form_of_document_boundaries_is_respected(way: str, backend: str) -> None:
    model = face(build({"variant": "diff_v1"}, backend=backend)).eval()
    expected = torch.cat([model(document[None]).logits for document in documents()], dim=1)
    output = model(torch.cat(documents())[None], **boundaries()[way])
    torch.testing.assert_close(output.logits, expected, rtol=1e-5, atol=1e-5)
    if "attention_mask" not in boundaries()[way]:
        assert output.past_key_values is None  # there is no document to continue


@torch.no_grad()
def test_positions_separate_documents_where_transformers_sees_them() -> None:
    """A gap does, too; rows of a batch may differ, and a row of one document stays whole."""
    rows = torch.stack([torch.cat(documents()), torch.cat(documents()).flip(0)])
    positions = torch.stack([torch.arange(17), torch.tensor([*range(5), *range(7, 19)])])
    for model in (theirs("Llama"), ours("softmax")):
        out = model(rows, position_ids=positions, use_cache=False).logits
        unsplit = model(rows[:1], use_cache=False).logits
        torch.testing.assert_close(out[:1], unsplit, rtol=1e-4, atol=1e-5)
        parts = [model(part, use_cache=False).logits for part in (rows[1:, :5], rows[1:, 5:])]
        torch.testing.assert_close(out[1:], torch.cat(parts, dim=1), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_left_padding_restarts_positions_and_separates_nothing() -> None:
    model, tokens = ours("diff_v1"), documents()[2][None]
    padded = torch.nn.functional.pad(tokens, (4, 0))
    positions = torch.tensor([[1, 1, 1, 1, *range(9)]])  # as `generate` makes them
    for use_cache in (True, False):
        inputs = {"attention_mask": (padded > 0).long(), "position_ids": positions}
        out = model(padded, use_cache=use_cache, **inputs)
        torch.testing.assert_close(out.logits[:, 4:], model(tokens).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_per_query_mask_works_with_a_cache() -> None:
    model, tokens = ours("diff_v1"), torch.cat(documents())[None]
    full = model(tokens).logits
    cache = model(tokens[:, :10], use_cache=True).past_key_values
    mask = torch.ones(1, 1, 17, 17).tril().bool()[:, :, 10:]
    rest = model(tokens[:, 10:], past_key_values=cache, attention_mask=mask).logits
    torch.testing.assert_close(rest, full[:, 10:], rtol=1e-5, atol=1e-5)


def test_documents_are_trained_longer_than_a_row_may_be() -> None:
    model = ours("diff_v1").train()
    tokens = torch.randint(1, 61, (1, 120))  # max_positions is 64
    positions = torch.cat([torch.arange(64), torch.arange(56)])[None]
    model(tokens, position_ids=positions, labels=tokens).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    with pytest.raises(UserError, match="a sequence of 120 positions is longer"):
        model(tokens)


def refusals() -> dict[str, tuple[dict[str, Any], str]]:
    inputs = boundaries()
    ids, positions = inputs["segment_ids"]["segment_ids"], inputs["position_ids"]["position_ids"]
    mask = inputs["bool 4-D"]["attention_mask"]
    return {
        "a cache is asked for": ({"position_ids": positions, "use_cache": True}, "use_cache=False"),
        "padding": ({"seq_idx": ids, "attention_mask": ids * 0}, "packed rows have no padding"),
        "short lengths": ({"cu_seq_lens_q": torch.tensor([0, 7, 16])}, r"\[0, 7, 16\], expected"),
        "float ids": ({"seq_idx": ids.float()}, "seq_idx are torch.float32"),
        "positions of others": ({"position_ids": positions[:, :9]}, r"position_ids .* \[1, 9\]"),
        "a bias": ({"attention_mask": -mask.float()}, "only 0 and -inf"),
        "whole numbers": ({"attention_mask": mask.long()}, "True = may attend"),
        "by head": ({"attention_mask": mask.expand(1, 4, 17, 17)}, "the same for all heads"),
        "keys of others": ({"attention_mask": mask[..., :9]}, r"\[1, 1, 17, 9\], expected"),
        "short padding": ({"attention_mask": torch.ones(1, 9)}, r"\[1, 9\], expected \[1, 17\]"),
        "long padding": (
            {"attention_mask": torch.cat((ids * 0, ids * 0 + 1), dim=1)},
            r"\[1, 34\], expected \[1, 17\]",
        ),
        "additive padding": (
            {"attention_mask": torch.zeros(1, 17).index_fill(1, torch.arange(3), -torch.inf)},
            "1 at each token",
        ),
        "lengths by another name": (
            {"cu_seqlens": inputs["cu_seq_lens_q"]["cu_seq_lens_q"]},
            "cu_seqlens: unknown option of the model; did you mean 'cu_seq_lens_q'",
        ),
        "documents by another name": ({"document_ids": ids}, "document boundaries are pos"),
        "a misspelled mask": ({"atention_mask": ids}, "did you mean 'attention_mask'"),
        "no tensor": ({"attention_mask": {"full": mask}}, "attention_mask is a dict"),
    }


@pytest.mark.parametrize("case", refusals())
def test_unsupported_masks_are_a_one_line_error(case: str) -> None:
    inputs, why = refusals()[case]
    with pytest.raises(UserError, match=why) as refusal:
        ours("diff_v1")(torch.cat(documents())[None], **inputs)
    assert "\n" not in str(refusal.value)


def test_extra_inputs_of_tokenizers_and_trainers_are_ignored() -> None:
    model, tokens = ours("diff_v1"), torch.cat(documents())[None]
    besides = {"token_type_ids": tokens * 0, "cache_position": torch.arange(17), "seq_idx": None}
    expected = model(tokens, labels=tokens)
    actual = model(tokens, labels=tokens, **besides)
    assert actual.loss.equal(expected.loss) and actual.logits.equal(expected.logits)


def test_documents_with_a_cache_or_flash_attention_are_refused() -> None:
    from transformers import DynamicCache

    model, tokens = ours("diff_v1"), torch.cat(documents())[None]
    with pytest.raises(UserError, match="use_cache=False"):
        model(tokens, past_key_values=DynamicCache(), **boundaries()["position_ids"])
    model.model.backend = "flash_attn"
    for way in ("position_ids", "bool 4-D"):
        with pytest.raises(UserError, match="flash attention supports no padding"):
            model(tokens, **boundaries()[way])
