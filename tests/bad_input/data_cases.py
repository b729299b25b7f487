"""Damaged corpora, tokenizers, job configs, manifests and shards."""

import numpy as np
from finished_work import Work
from spoiling import (
    Call,
    Case,
    Spoil,
    add,
    anew,
    both,
    cut,
    manifest,
    offsets,
    remove,
    replace,
    slice,
    write,
)

from difftransformer.data.token_view import REBUILD

TEXT = "corpus/text.jsonl"

train_tokenizer: Call = Work.train_tokenizer
tokenize: Call = Work.tokenize
pretrain: Call = Work.pretrain
evaluate: Call = Work.evaluate


def corpus(name: str, content: bytes) -> Spoil:
    """Another corpus, to be tokenized from the start."""
    return both(remove(TEXT), write(f"corpus/{name}", content), anew)


DATA: dict[str, Case] = {
    "an empty corpus": (corpus("a.txt", b""), tokenize, ["sources files", "no text for training"]),
    "half a line": (add(TEXT, '{"text": \n'), tokenize, [f"{TEXT}, line 121: not JSON", "correct"]),
    "a line nested without end": (
        add(TEXT, "[" * 100_000 + "\n"), tokenize, [f"{TEXT}, line 121: not JSON", "correct or"],
    ),
    "half a surrogate pair": (
        add(TEXT, '{"text": "a \\ud800"}\n'), tokenize,
        [f"{TEXT}, line 121: field 'text' has half a surrogate pair", "correct or remove"],
    ),
    "a tokenizer of another kind": (
        both(replace("data/tokenizer_config.json", '"bpe"', '"foo"'), anew), tokenize,
        ["data/tokenizer.json: cannot be read with its tokenizer_config.json", "rebuild"],
    ),
    "an unknown encoding": (
        slice("dataset", "config.tokenizer", {"kind": "tiktoken", "name": "gpt5"}),
        train_tokenizer, ["dataset.json", "config.tokenizer.name", "'cl100k_base', got 'gpt5'"],
    ),
    "a slice that is no JSON": (write("dataset.json", "{"), tokenize, ["dataset.json: not a"]),
    "a slice of something else": (
        write("dataset.json", "[]"), tokenize, ["dataset.json", "a mapping of keys, got []", "run"],
    ),
    "no slice": (remove("dataset.json"), tokenize, ["dataset.json: no such file", "run snakemake"]),
    "a file for the results": (
        both(anew, write("results", "x")), tokenize, ["results/", "Not a directory", "another"],
    ),
    "a file for the logs": (
        write("logs", "x"), lambda work: work.tokenize("--log", "logs/a.log"), ["logs: File"],
    ),
    "no manifest": (remove("data/manifest.json"), pretrain, ["manifest.json: no such file; build"]),
    "half a manifest": (cut("data/manifest.json", 99), pretrain, ["data/manifest.json", REBUILD]),
    "another manifest": (
        manifest("format", 2), pretrain, ["manifest.json", "format: input should be 1, got 2"],
    ),
    "a manifest that leaves its folder": (
        manifest("splits.train.shards.0.file", "../corpus/text.jsonl"), pretrain,
        ["shards[0].file: '../corpus/text.jsonl' is not a plain file", "next to the manifest"],
    ),
    "a manifest that names a system file": (
        manifest("splits.train.shards.0.offsets_file", "/etc/passwd"), pretrain,
        ["offsets_file: '/etc/passwd' is not a plain file"],
    ),
    "a manifest that does not add up": (
        manifest("splits.train.tokens", 10**30), pretrain, ["splits.train: tokens is 1000", "have"],
    ),
    "rows that do not add up": (
        manifest("row_length", 7), pretrain, ["split train has", "rows of 7 have", REBUILD],
    ),
    "ids beyond the vocabulary": (
        manifest("vocab_size", 10), pretrain, ["token id", "its vocabulary 10 ids", REBUILD],
    ),
    "pickled offsets": (
        offsets(lambda ends: np.array([{"a": 1}], dtype=object)), evaluate,
        ["validation-00000.documents.npy: cannot be read", REBUILD],
    ),
    "offsets backwards": (
        offsets(lambda ends: ends[::-1]), evaluate, ["documents.npy", "ascending"],
    ),
    "offsets between tokens": (
        offsets(lambda ends: ends * 0.5), evaluate, ["documents.npy", "ascending"],
    ),
}  # fmt: skip
