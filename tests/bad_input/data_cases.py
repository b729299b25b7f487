"""Spoilt corpora, tokenizers, slices, manifests and shards."""

import gzip

import numpy as np
import zstandard
from finished_work import Work
from spoiling import (
    Call,
    Case,
    Spoil,
    add,
    anew,
    both,
    cut,
    flip,
    manifest,
    offsets,
    remove,
    replace,
    slice,
    write,
)

from difftransformer.data.token_view import REBUILD

TEXT = "corpus/text.jsonl"
SHARD = "data/shards/train-00001.bin"
GOOD = b'{"text": "hello there"}\n' * 50

train_tokenizer: Call = Work.train_tokenizer
tokenize: Call = Work.tokenize
pretrain: Call = Work.pretrain
evaluate: Call = Work.evaluate


def corpus(name: str, content: bytes) -> Spoil:
    """Another corpus, to be tokenised from the start."""
    return both(remove(TEXT), write(f"corpus/{name}", content), anew)


DATA: dict[str, Case] = {
    "an empty corpus": (corpus("a.txt", b""), tokenize, ["sources files", "no text for training"]),
    "one document": (
        corpus("a.jsonl", GOOD[:24]), tokenize, ["sources files: no text", "it takes two that"],
    ),
    "too little text": (
        slice("dataset", "config.tokenizer.vocab_size", 10_000), train_tokenizer,
        ["dataset corpus: sources files", "tokenizer.vocab_size asks for 10000: lower it, or add"],
    ),
    "half a line": (add(TEXT, '{"text": \n'), tokenize, [f"{TEXT}, line 121: not JSON", "mend"]),
    "a line without text": (add(TEXT, '{"txt": "a"}\n'), tokenize, ["no field 'text'; it has txt"]),
    "text that is a number": (add(TEXT, '{"text": 3}\n'), tokenize, ["'text' is int, not text"]),
    "a line that is a list": (add(TEXT, "[1]\n"), tokenize, ["line 121", "object is needed"]),
    "a line nested without end": (
        add(TEXT, "[" * 100_000 + "\n"), tokenize, [f"{TEXT}, line 121: not JSON", "mend or"],
    ),
    "half a surrogate pair": (
        add(TEXT, '{"text": "a \\ud800"}\n'), tokenize,
        [f"{TEXT}, line 121: field 'text' has half a surrogate pair", "mend or remove"],
    ),
    "a line in Latin-1": (add(TEXT, b'{"text": "\xe9"}\n'), tokenize, ["line 121", "byte 0xe9"]),
    "text in Latin-1": (corpus("a.txt", b"caf\xe9"), tokenize, ["a.txt: not UTF-8 at byte 3"]),
    "half a gzip": (
        corpus("a.jsonl.gz", gzip.compress(GOOD)[:-9]), tokenize, ["a.jsonl.gz", "truncated or"],
    ),
    "no gzip": (corpus("a.jsonl.gz", GOOD), tokenize, ["a.jsonl.gz", "Not a gzipped file"]),
    "half a zstd": (
        corpus("a.jsonl.zst", zstandard.compress(GOOD)[:-5]), tokenize, ["a.jsonl.zst", "ends"],
    ),
    "no zstd": (corpus("a.jsonl.zst", GOOD), tokenize, ["a.jsonl.zst", "Unknown frame"]),
    "no parquet": (corpus("a.parquet", GOOD), tokenize, ["a.parquet", "not a parquet file"]),
    "another kind of file": (corpus("a.pdf", b"x"), tokenize, ["a.pdf", ".txt, .md, .jsonl"]),
    "no files": (
        slice("dataset", "config.sources.files.globs", ["nowhere/*"]), tokenize,
        ["dataset corpus: source files: no file matches 'nowhere/*'", "relative globs start at"],
    ),
    "a tokenizer that is no JSON": (
        both(write("data/tokenizer.json", "{"), anew), tokenize,
        ["data/tokenizer.json: cannot be read", "rebuild it with `train_tokenizer`"],
    ),
    "no tokenizer": (remove("data/tokenizer.json"), tokenize, ["tokenizer.json: no such file"]),
    "a tokenizer of another kind": (
        both(replace("data/tokenizer_config.json", '"bpe"', '"foo"'), anew), tokenize,
        ["data/tokenizer.json: cannot be read with its tokenizer_config.json", "rebuild"],
    ),
    "a tokenizer without an end": (
        both(replace("data/tokenizer_config.json", "<|endoftext|>", "<end>"), anew), tokenize,
        ["data/tokenizer.json", "'<end>' is not in the vocabulary", "rebuild"],
    ),
    "an unpinned tokenizer": (
        slice("dataset", "config.tokenizer", {"kind": "huggingface", "name": "a/b"}),
        train_tokenizer, ["dataset.tokenizer.revision", "a/b", "a pinned revision"],
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
    "an edited manifest": (
        replace("data/manifest.json", '"vocab_size": 270', '"vocab_size": 271'), pretrain,
        ["data/manifest.json: changed since it was written; delete"],
    ),
    "a manifest that leaves its folder": (
        manifest("splits.train.shards.0.file", "../corpus/text.jsonl"), pretrain,
        ["shards[0].file: '../corpus/text.jsonl' is no plain file name", "beside the manifest"],
    ),
    "a manifest that names a system file": (
        manifest("splits.train.shards.0.offsets_file", "/etc/passwd"), pretrain,
        ["offsets_file: '/etc/passwd' is no plain file name"],
    ),
    "a manifest that does not add up": (
        manifest("splits.train.tokens", 10**30), pretrain, ["splits.train: tokens is 1000", "have"],
    ),
    "rows that do not add up": (
        manifest("row_length", 7), pretrain, ["split train has", "rows of 7 have", REBUILD],
    ),
    "a missing split": (
        manifest("splits", {}), pretrain, ["data: no split 'train'"],
    ),
    "a missing shard": (remove(SHARD), pretrain, ["train-00001.bin: shard is missing"]),
    "half a shard": (cut(SHARD, 99), pretrain, ["99 bytes, the manifest says"]),
    "a flipped bit": (flip(SHARD, 9), pretrain, ["train-00001.bin", "sha256"]),
    "ids beyond the vocabulary": (
        manifest("vocab_size", 10), pretrain, ["token id", "its vocabulary has 10", REBUILD],
    ),
    "pickled offsets": (
        offsets(lambda ends: np.array([{"a": 1}], dtype=object)), evaluate,
        ["validation-00000.documents.npy: cannot be read", REBUILD],
    ),
    "offsets backwards": (
        offsets(lambda ends: ends[::-1]), evaluate, ["documents.npy: must hold", "ascending"],
    ),
    "offsets between tokens": (
        offsets(lambda ends: ends * 0.5), evaluate, ["documents.npy: must hold", "ascending"],
    ),
}  # fmt: skip
