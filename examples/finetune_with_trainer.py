"""Train a DiffTransformer with transformers' own Trainer, save it, load it again, generate.

    python examples/finetune_with_trainer.py FOLDER [MODEL]

MODEL is a folder that `difftransformer publish` or `export` wrote; without one a small model
starts from nothing. Bytes are the tokens here: put your tokenizer's ids in their place.
"""

import argparse
from pathlib import Path
from typing import Any

import difftransformer
import torch
from difftransformer import DiffTransformerConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

LENGTH = 32


def new_model(variant: str = "diff_v2") -> Any:
    """A model of two layers over bytes; its settings are `model` of a run."""
    settings = {
        "vocab_size": 256,
        "d_model": 64,
        "num_layers": 2,
        "ffn_dim": 128,
        "max_positions": 256,
        "attention": {"variant": variant, "head_dim": 16},
    }
    return AutoModelForCausalLM.from_config(DiffTransformerConfig(model=settings))


def main(folder: Path, start: Path | None = None, steps: int = 30) -> list[float]:
    """Train on this file; returns the losses that the Trainer logged."""
    difftransformer.register()
    torch.manual_seed(0)
    model = new_model() if start is None else AutoModelForCausalLM.from_pretrained(start)
    text = Path(__file__).read_bytes()
    examples = [
        {"input_ids": (ids := torch.tensor([*text[at : at + LENGTH]])), "labels": ids}
        for at in range(0, len(text) - LENGTH, LENGTH)
    ]
    arguments = TrainingArguments(
        str(folder / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        logging_steps=10,
        save_steps=steps,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=examples)
    trainer.train()
    trainer.save_model(str(folder / "model"))
    again = AutoModelForCausalLM.from_pretrained(folder / "model")
    prompt = torch.tensor([[*b"import "]])
    written = again.generate(prompt, max_new_tokens=16, do_sample=False, pad_token_id=0)
    print(bytes(written[0].tolist()))
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train, save, load again, generate.")
    parser.add_argument("folder", type=Path, help="to write")
    parser.add_argument("model", type=Path, nargs="?", help="to start from; else from nothing")
    given = parser.parse_args()
    if given.model is not None and not given.model.is_dir():
        parser.error(f"{given.model}: no such folder")
    main(given.folder, given.model)
