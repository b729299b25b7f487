"""Small models that read words: a Llama folder, a training of ours, and bundled tasks as YAML."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from small_evaluation import republish, save_run, write_text

from difftransformer.evaluation.context import Metrics
from difftransformer.evaluations.language_understanding.settings import Suite
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS, task_files

TASKS = ["arc_easy", "hellaswag", "winogrande", "copa", "mnli", "wic", "wsc"]
WRITTEN = ["mmlu", "ifeval", "gsm8k", "agieval_en"]
"""Of the table of tuned models: groups, and answers in words."""
ROOM = 12
TEXT = "A girl digs a hole in the garden. Which of these is a source of light? a burning candle"


def suite(**changes: object) -> Suite:
    settings = {
        "kind": "language_understanding",
        "tasks": TASKS,
        "data": "builtin",
        "batch_size": 4,
    }
    return Suite.model_validate(settings | changes)


def write_tokenizer(folder: Path, text: str = TEXT) -> int:
    """Train a tokenizer on a text, as a Hugging Face model's folder has it; its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    description = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(description))
    size: int = tokenizer.get_vocab_size()
    return size


def write_llama(folder: Path) -> Path:
    """A Llama of two layers with a tokenizer, as `save_pretrained` leaves it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_training(folder: Path) -> tuple[Path, Path]:
    """A training of ours on a text data set, both with the tokenizer; their two folders."""
    data = write_text(folder / "data", [[1, 2, 3, 0]] * 3, 320, write_tokenizer)
    run = save_run(folder / "run", 320, dataset=data)
    write_tokenizer(run)
    republish(run)
    return run, data


def write_tasks(folder: Path, shots: int) -> list[str]:
    """Bundled tasks on our items, as a YAML that `include_path` finds; their names."""
    import lm_eval.tasks

    folder.mkdir()
    bundled = Path(lm_eval.tasks.__file__).parent
    sources = {
        "arc_easy": "arc_easy", "hellaswag": "hellaswag", "winogrande": "default",
        "copa": "default", "mnli": "default", "wic": "default", "wsc": "default",
    }  # fmt: skip
    for task, file in sources.items():
        data = task_files(task, "builtin")["validation"]
        include = bundled / LANGUAGE_TASKS[task].folder / f"{file}.yaml"
        text = [
            f"include: {include}",
            f"task: mine_{task}",
            "dataset_path: json",
            "dataset_name: null",
            f"dataset_kwargs: {{data_files: {{validation: {data}}}}}",
            "training_split: null",
            "validation_split: null",
            "test_split: validation",
            "fewshot_split: validation",
            f"num_fewshot: {shots}",
        ]
        (folder / f"{task}.yaml").write_text("\n".join(text) + "\n")
    return [f"mine_{task}" for task in sources] + _write_tuned(folder)


def _write_tuned(folder: Path) -> list[str]:
    """Those of `WRITTEN`, groups with a task for each of the subjects that our items have."""
    import lm_eval.tasks
    import yaml

    bundled = Path(lm_eval.tasks.__file__).parent
    for task in WRITTEN:
        spec, path = LANGUAGE_TASKS[task], task_files(task, "builtin")["test"]
        items = [json.loads(line) for line in path.read_text().splitlines()]
        members = dict.fromkeys(item["subject"] for item in items) if spec.subjects else [task]
        for subject in members:
            name = spec.subtasks.get(subject, subject)
            own = folder / f"{name}.jsonl"
            mine = [item for item in items if item.get("subject", task) == subject]
            own.write_text("".join(json.dumps(item) + "\n" for item in mine))
            file = name if spec.subject_prefix == "mmlu" else subject.replace("_", "-")
            text = {
                "include": str(bundled / spec.folder / f"{file}.yaml"),
                "task": f"mine_{name}", "dataset_path": "json", "dataset_name": None,
                "dataset_kwargs": {"data_files": {"test": str(own)}}, "training_split": None,
                "validation_split": None, "test_split": "test", "fewshot_split": "test",
                "num_fewshot": 0,
            }  # fmt: skip
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(text))
        if spec.subjects:
            metric = {"metric": "acc", "aggregation": "mean", "weight_by_size": True}
            group = {
                "group": f"mine_{task}", "aggregate_metric_list": [metric],
                "task": [f"mine_{spec.subtasks[subject]}" for subject in members],
            }  # fmt: skip
            (folder / f"group_{task}.yaml").write_text(yaml.safe_dump(group))
    return [f"mine_{task}" for task in WRITTEN]


def copy_items(folder: Path, task: str) -> Path:
    """A folder of benchmarks with our items of one task, to be damaged."""
    ((split, ours),) = task_files(task, "builtin").items()
    path = folder / task / f"{split}.jsonl"
    path.parent.mkdir(parents=True)
    shutil.copyfile(ours, path)
    return path


def run_lm_eval(folder: Path, work: Path, *options: str) -> dict[str, Any]:
    """What the `lm_eval` command says of a model folder: its results by task of `write_tasks`."""
    names = write_tasks(work / "tasks", 0)
    command = [str(Path(sys.executable).with_name("lm_eval")), "run", "--model", "hf", *options]
    command += ["--model_args", f"pretrained={folder}"]
    command += ["--tasks", ",".join(names), "--include_path", str(work / "tasks")]
    command += ["--gen_kwargs", f"max_gen_toks={ROOM}"]
    command += ["--device", "cpu", "--batch_size", "4", "--output_path", str(work / "out")]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=os.environ | offline, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (report,) = (work / "out").rglob("results_*.json")
    results: dict[str, Any] = json.loads(report.read_text())["results"]
    return results


def assert_scored_alike(ours: Metrics, theirs: dict[str, Any], tasks: list[str] = TASKS) -> None:
    """Scores and standard errors, to the last digit."""
    for task in tasks:
        spec, expected = LANGUAGE_TASKS[task], theirs[f"mine_{task}"]
        assert ours[task] == expected[f"{spec.metric},{spec.filter}"], task
        assert ours[f"{task}_stderr"] == expected[f"{spec.metric}_stderr,{spec.filter}"], task
