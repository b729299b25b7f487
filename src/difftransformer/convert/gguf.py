"""Export to llama.cpp: one GGUF file of type Llama in float32, for the variant softmax.

llama.cpp's own converter recognizes tokenizers by a checksum, so it rejects those trained here. A
tokenizer of `train_tokenizer` differs from GPT-2's only in its vocabulary and merges, which are
stored in the file; other tokenizers need that converter. `llama-quantize` makes smaller files.

Shapes: d = head_dim.
"""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from difftransformer.convert.llama import llama_config_kwargs, llama_state_dict
from difftransformer.errors import CheckpointError
from difftransformer.models.transformer import Transformer

_GPT2 = {
    "normalizer": None,
    "post_processor": None,
    "pre_tokenizer": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
}
"""Parts of tokenizer.json that llama.cpp implements for tokenizers of type "gpt-2"."""


def write_gguf(model: Transformer, tokenizer: Path, path: Path, eos_token_id: int | None) -> None:
    """Write a model and its tokenizer as a GGUF file.

    Args:
        model: The model, of variant softmax.
        tokenizer: Folder with tokenizer.json and tokenizer_config.json.
        path: The file to write.
        eos_token_id: Id of the end-of-text token.

    Raises:
        CheckpointError: The model is not a Llama, or its tokenizer is not like GPT-2's.
    """
    import gguf

    options = llama_config_kwargs(model.config, "llama")
    tokens = _tokens(tokenizer / "tokenizer.json", options["vocab_size"])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    writer.add_context_length(options["max_position_embeddings"])
    writer.add_embedding_length(options["hidden_size"])
    writer.add_feed_forward_length(options["intermediate_size"])
    writer.add_block_count(options["num_hidden_layers"])
    writer.add_head_count(options["num_attention_heads"])
    writer.add_head_count_kv(options["num_key_value_heads"])
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(options["head_dim"])
    writer.add_rope_freq_base(options["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(options["rms_norm_eps"])
    writer.add_vocab_size(options["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([token_type for _, token_type in tokens])
    merges = gguf.SpecialVocab(tokenizer, load_merges=True, special_token_types=())
    merges.add_to_gguf(writer, quiet=True)
    if eos_token_id is not None:
        writer.add_eos_token_id(eos_token_id)
    writer.add_add_bos_token(False)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, options["num_hidden_layers"])
    heads = {"q_proj": options["num_attention_heads"], "k_proj": options["num_key_value_heads"]}
    for name, weight in llama_state_dict(model).items():
        if name == "lm_head.weight" and model.config.tie_embeddings:
            continue
        module, matrix = name.removesuffix(".weight"), name.split(".")[-2]
        rows = _to_interleaved(weight, heads[matrix]) if matrix in heads else weight
        array = rows.detach().float().contiguous().numpy()
        writer.add_tensor(f"{names[module]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _to_interleaved(rows: Tensor, heads: int) -> Tensor:
    """Reorder rows [heads, 2, d/2] to [heads, d/2, 2]: llama.cpp's RoPE rotates neighbors."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def _tokens(path: Path, vocab_size: int) -> list[tuple[str, int]]:
    """Return all tokens by id, each with its llama.cpp token type.

    Raises:
        CheckpointError: There is no tokenizer, or it is not like GPT-2's.
    """
    import gguf

    try:
        tokenizer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        vocab, added = tokenizer["model"]["vocab"], tokenizer["added_tokens"]
        like_gpt2 = tokenizer["model"]["type"] == "BPE" and all(
            tokenizer[key] == value for key, value in _GPT2.items()
        )
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: no such file; a GGUF file includes the tokenizer: copy the dataset's"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path}: not a tokenizer; copy the dataset's") from None
    if not like_gpt2:
        raise CheckpointError(
            f"{path}: not a tokenizer like GPT-2's, as those trained here are; export to llama, "
            "and convert that folder with llama.cpp's convert_hf_to_gguf.py"
        )
    tokens = {token_id: (token, gguf.TokenType.NORMAL) for token, token_id in vocab.items()}
    tokens |= {entry["id"]: (entry["content"], gguf.TokenType.CONTROL) for entry in added}
    unused = gguf.TokenType.UNUSED
    return [tokens.get(token_id, (f"[PAD{token_id}]", unused)) for token_id in range(vocab_size)]
