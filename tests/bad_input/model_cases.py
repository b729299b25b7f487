"""Damaged runs, checkpoints, trained and exported models, and wrong calls."""

import json

from finished_work import MANIFEST, Ended, Work, call
from spoiling import (
    Call,
    Case,
    add,
    anew,
    both,
    cut,
    nothing,
    pickled_weights,
    remove,
    replace,
    republished,
    slice,
    variable,
    weights,
    write,
)
from steps import step_words

pretrain: Call = Work.pretrain
evaluate: Call = Work.evaluate
export: Call = Work.export

LLAMA = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 320,
    }
)
ELSEWHERE = {
    "scale": "small",
    "run": "elsewhere",
    "suite": "tasks",
    "config": {"kind": "language_understanding", "tasks": ["piqa"], "data": "builtin", "limit": 4},
    "pretrained": {"name": "./model"},
}


def elsewhere(work: Work) -> Ended:
    """Evaluate a model from elsewhere."""
    write("elsewhere.json", json.dumps(ELSEWHERE))(work)
    return call(*step_words("evaluate", "elsewhere.json", {}, {"result": "elsewhere/result.json"}))


def tokenizer_elsewhere(work: Work) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        write(f"model/{name}", work.path(f"data/{name}").read_bytes())(work)


MODELS: dict[str, Case] = {
    "a misspelt setting": (slice("run", "training.lrr", 1), pretrain, ["run.json", "mean 'lr'?"]),
    "a vocabulary too small": (
        slice("run", "model.vocab_size", 100), pretrain, ["vocab_size is 100", "at least 270"],
    ),
    "a sequence too long": (
        slice("run", "training.seq_len", 32), pretrain, ["32 positions", "16; shorten"],
    ),
    "a batch larger than the corpus": (
        slice("run", "training.batch_size", 100_000), pretrain,
        ["data: split train has", "windows of 16 tokens", "one batch of 100000", "a smaller batch"],
    ),
    "a list for a variant": (
        slice("run", "model.attention.variant", ["a"]), pretrain, ["unknown variant '['a']'"],
    ),
    "a GPU that is not there": (
        both(variable("CUDA_VISIBLE_DEVICES", ""), slice("run", "training.device", "cuda")),
        pretrain, ["training.device is cuda", "no CUDA device: use cpu or auto"],
    ),
    "a backend that is not there": (
        both(
            slice("run", "training.precision", "bf16"),
            slice("run", "training.backend", "flash_attn"),
        ),
        pretrain, ["flash_attn", "use sdpa"],
    ),
    "a model larger than the memory": (
        both(anew, slice("run", "model.vocab_size", 2**24), slice("run", "model.d_model", 2**17)),
        pretrain, ["run diff: training needs about", "GiB are free: lower model.d_model (131072)"],
    ),
    "a rate that diverges": (
        both(anew, slice("run", "training.lr", 1e30), slice("run", "training.grad_clip", None)),
        pretrain, ["diverged at step", "lower training.lr", "last good checkpoint is kept"],
    ),
    "a negative seed on the command line": (
        nothing, lambda work: work.pretrain(seed=-1), ["step: --files: seed", "equal to 0, got -1"],
    ),
    "a seed in words on the command line": (
        nothing, lambda work: work.pretrain(seed="one"), ["--files: seed", "integer", "got 'one'"],
    ),
    "more threads than there are": (
        nothing, lambda work: work.pretrain("--threads", "99999"), ["'--threads'", "to 1024, got"],
    ),
    "an unknown option": (
        nothing, lambda work: work.pretrain("--sed", "1"), ["No such option: --sed", "step --help"],
    ),
    "an unknown command": (nothing, lambda work: call("rerum"), ["'rerum'", "'rerun'"]),
    "an unknown rule": (
        nothing, lambda work: call("step", "pretran", "--job-config", "run.json"),
        ["step: unknown rule 'pretran'; did you mean 'pretrain'?"],
    ),
    "files that are no JSON": (
        nothing, lambda work: work.pretrain("--files", "{"), ["step: --files: invalid JSON"],
    ),
    "files without an output": (
        nothing, lambda work: call(*step_words("pretrain", "run.json", {"data": MANIFEST}, {})),
        ["pretrain: --files: outputs.result is missing: name its file"],
    ),
    "no training": (remove("run/training.json"), evaluate, ["run: training has not finished"]),
    "half a training": (cut("run/training.json", 99), evaluate, ["training.json", "delete it and"]),
    "another seed": (
        nothing, lambda work: work.evaluate(seed=5), ["seed 0, expected diff with seed 5"],
    ),
    "another tokenizer": (
        add("run/tokenizer.json", " "), evaluate, ["run: was trained with another tokenizer", "on"],
    ),
    "another model": (
        republished(write("run/config.json", '{"model_type": "llama"}')), evaluate,
        ["run/config.json: is a llama", "keeps its format"],
    ),
    "a model of absurd size": (
        republished(
            replace("run/config.json", '"max_positions": 16', f'"max_positions": {10**15}')
        ),
        evaluate,
        ["run/config.json: model: max_positions", "134217728", "train the model again"],
    ),
    "a trained model larger than the memory": (
        republished(
            both(
                replace("run/config.json", '"vocab_size": 320', f'"vocab_size": {2**24}'),
                replace("run/config.json", '"d_model": 16', f'"d_model": {2**17}'),
            )
        ),
        evaluate, ["run: evaluating nll_by_position needs about", "GiB are free"],
    ),
    "half the weights": (
        cut("run/model.safetensors", 999), evaluate,
        ["run/model.safetensors: checksum mismatch; delete run/training.json"],
    ),
    "no weights": (remove("run/model.safetensors"), evaluate, ["model.safetensors: no such file"]),
    "pickled weights": (pickled_weights, evaluate, ["model.safetensors: truncated or damaged"]),
    "whole numbers for weights": (
        weights(lambda tensors: tensors.update({k: v.long() for k, v in tensors.items()})),
        evaluate,
        ["tensor embedding.weight is int64, no float"],
    ),
    "weights that are no numbers": (
        weights(lambda tensors: tensors["embedding.weight"].fill_(float("nan"))), evaluate,
        ["run: nll_p", "is nan: the model's weights are damaged or diverged; train it again"],
    ),
    "a context longer than a trained model": (
        slice("evaluation", "config.length", 999), evaluate, ["length 999 is longer than its max"],
    ),
    "no folder of a model from elsewhere": (
        nothing, elsewhere, ["model: no such model folder; name one, or an id of the hub"],
    ),
    "a model from elsewhere without settings": (
        write("model/x", ""), elsewhere, ["model/config.json: no such file; name a transformers"],
    ),
    "a model from elsewhere without a tokenizer": (
        write("model/config.json", LLAMA), elsewhere, ["model: has no tokenizer (tokenizer.json"],
    ),
    "a model from elsewhere with a tokenizer of SentencePiece alone": (
        both(write("model/config.json", LLAMA), write("model/tokenizer.model", "\n\x05")),
        elsewhere, ["tokenizer.model: needs the package sentencepiece"],
    ),
    "a model from elsewhere without weights": (
        both(write("model/config.json", LLAMA), tokenizer_elsewhere), elsewhere,
        ["model: has no weights (model.safetensors)"],
    ),
    "pickled weights of a model from elsewhere": (
        both(
            write("model/config.json", LLAMA), tokenizer_elsewhere,
            write("model/pytorch_model.bin", "x"),
        ),
        elsewhere, ["model: has no weights", "pickled weights: set `safetensors: false` to take"],
    ),
    "damaged weights of a model from elsewhere": (
        both(
            write("model/config.json", LLAMA), tokenizer_elsewhere,
            write("model/model.safetensors", b"x" * 100),
        ),
        elsewhere, ["./model: cannot be loaded (SafetensorError: ", "with its tokenizer?"],
    ),
    "a file where a state belongs": (
        both(anew, write("results", "x")), pretrain, ["results/", "Not a directory; choose an"],
    ),
    "an unknown kind of suite": (
        slice("evaluation", "config.kind", "x"), evaluate,
        ["evaluation.json: ", "config.kind: unknown kind 'x'", "recall"],
    ),
    "an evaluation of nothing": (
        nothing,
        lambda _: call(*step_words("evaluate", "evaluation.json", {}, {"result": "x.json"})),
        ["run diff is trained here: give its training.json as the input `model`"],
    ),
    "an impossible export": (
        nothing, lambda work: work.export("llama"), ["cannot export to llama"],
    ),
    "an unknown export": (
        nothing, lambda work: work.export("onnx"), ["'onnx'; known: huggingface, llama, diffllama"],
    ),
    "an export of nothing": (
        nothing, lambda work: work.export(model="nowhere"), ["nowhere/config.json: no such file"],
    ),
    "an export over a file": (
        write("exported", "x"), export, ["exported: exists and is not empty"],
    ),
    "an export without a tokenizer": (
        write("run/tokenizer.json", "{"), export, ["run/tokenizer.json: checksum mismatch"],
    ),
}  # fmt: skip
