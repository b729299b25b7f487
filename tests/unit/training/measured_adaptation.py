"""Adapts a model in its own process and prints the estimated and the measured peak, in bytes."""

import json
import sys

import torch
from measured_training import peak, resident
from transformers import AutoConfig, AutoModelForCausalLM

from difftransformer.config.run import RunConfig
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.memory import estimate_memory
from difftransformer.training.method import Task
from difftransformer.training.methods import configure, prepare
from difftransformer.training.objective import Objective
from difftransformer.training.process import return_freed_memory

VOCABULARY, CPU = 512, torch.device("cpu")


def adapted(
    kind: str, method: str, width: int, layers: int, sequences: int, positions: int
) -> dict[str, float]:
    """Adapt for three steps as the trainer does; returns the estimate and what it took."""
    heads = width // 64
    config = AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=layers, num_attention_heads=heads, head_dim=64,
        num_key_value_heads=heads if kind == "llama" else max(heads // 2, 1),
        max_position_embeddings=positions, pad_token_id=None,
    )  # fmt: skip
    run_config = RunConfig.model_validate(
        {
            "scale": "unit", "run": "measured", "dataset": "random", "init_from": "parent",
            "adapt": {"method": method}, "model": {
                "vocab_size": VOCABULARY, "d_model": width, "num_layers": layers,
                "ffn_dim": 3 * width, "max_positions": positions,
                "attention": {
                    "variant": "softmax", "head_dim": 64, "num_heads": heads,
                    "num_kv_heads": config.num_key_value_heads,
                },
            },
            "training": {
                "steps": 3, "seq_len": positions, "batch_size": sequences, "lr": 1e-4,
                "warmup_steps": 1,
            },
        }
    )  # fmt: skip
    before = resident()
    causal = HFCausalLM(AutoModelForCausalLM.from_config(config))
    tokens = torch.randint(VOCABULARY, (sequences, positions + 1))
    task = Task(run_config.training, 0, lambda number: [tokens[:1, :-1]])
    adapted_model = prepare(causal, configure({"method": method}), task)
    objective = Objective(seq_len=positions, chunk=1024, answers=None, device=CPU)
    for _ in range(3):
        loss = objective.loss(causal.hidden_states, causal.output_weight, tokens)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(adapted_model.optimizer.parameters, 1.0)
        adapted_model.step(1e-4)
    estimated = estimate_memory(run_config, "cpu").peak
    return {"estimated": estimated, "measured": peak() - before}


if __name__ == "__main__":
    return_freed_memory()
    kind, method, *sizes = sys.argv[1:]
    adapted(kind, method, 64, 1, 1, 16)  # loads what computes
    print(json.dumps(adapted(kind, method, *map(int, sizes))))
