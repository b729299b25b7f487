import subprocess
import sys
from pathlib import Path

import torch
from tiny_training import make_run_config
from torch import nn

from difftransformer.training.optimizer import AdamW, split_decay


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 3), nn.RMSNorm(3), nn.Linear(3, 2))


def test_matches_torch_adamw_bit_for_bit() -> None:
    config = make_run_config(weight_decay=0.1, betas=[0.9, 0.98]).training
    ours, theirs = small_model(), small_model()
    optimizer = AdamW(ours.named_parameters(), config)
    decayed, free = (list(group.values()) for group in split_decay(theirs.named_parameters()))
    reference = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": free, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
        eps=config.eps,
        fused=True,
    )
    for step in range(20):
        tokens = torch.randint(0, 7, (4,), generator=torch.Generator().manual_seed(step))
        for model in (ours, theirs):
            (model(tokens) ** 2).sum().backward()
        for group in reference.param_groups:
            group["lr"] = 0.1 / (step + 1)
        optimizer.step(0.1 / (step + 1))
        reference.step()
        reference.zero_grad()
    for actual, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(actual, expected)
        assert actual.grad is None


def test_vectors_and_lambdas_are_not_decayed() -> None:
    model = small_model()
    model.lambda_q1 = nn.Parameter(torch.ones(4, 8))
    model[3].requires_grad_(False)
    decayed, free = split_decay(model.named_parameters())
    assert sorted(decayed) == ["0.weight", "1.weight"]
    assert sorted(free) == ["1.bias", "2.weight", "lambda_q1"]


def test_parameters_without_gradient_are_unchanged() -> None:
    model = small_model()
    before = model[0].weight.clone()
    optimizer = AdamW(model.named_parameters(), make_run_config().training)
    model[3].weight.square().sum().backward()
    optimizer.step(0.1)
    assert torch.equal(model[0].weight, before)
    assert optimizer.tensors()["adam_step.0.weight"] == 0
    assert optimizer.tensors()["adam_step.3.weight"] == 1


def test_a_training_job_does_not_import_the_compiler(text: Path, tmp_path: Path) -> None:
    """Start-up is a large part of a short job; each of these costs it one to four seconds."""
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tiny_training import make_run_config
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training.pretrain import pretrain
here = Path({str(tmp_path)!r})
pretrain(make_run_config(), dataset=Path({str(text)!r}), output=here / "out", state=here / "state",
         seed=0, threads=1, tracker=NullTracker(), code="")
heavy = {{"torch._dynamo", "sympy", "transformers", "mlflow", "pandas", "scipy", "seaborn"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    assert done.stdout.strip() == "[]"
