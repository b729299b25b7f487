"""Models of one table share initial weights per seed, so differences are paired."""

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from difftransformer.models.linear import Linear
from difftransformer.models.transformer import Transformer
from difftransformer.planning.plan import Plan
from difftransformer.planning.sizes import Sizes


@pytest.fixture(scope="module")
def sizes(repository: Path) -> Sizes:
    return Sizes(Plan.load(repository / "config", {"scale": "smoke"}).resolver)


def drawn(sizes: Sizes, run: str) -> dict[str, Tensor]:
    """All parameters of a run, and the single matrices of those that hold several."""
    model = Transformer.build(sizes.run(run).model, "sdpa", seed=2)
    single = [
        part
        for name, module in model.named_modules()
        if isinstance(module, Linear)
        for part in module.named_weights(name)
    ]
    return {**dict(model.named_parameters()), **dict(single)}


@pytest.mark.parametrize(
    "artifact", ["table6", "table6_recall", "v2_loss", "v2_ablations", "variants"]
)
def test_rows_share_the_initial_weights_of_common_parameters(sizes: Sizes, artifact: str) -> None:
    rows = {run: drawn(sizes, run) for run in sizes.resolver.artifacts[artifact].runs()}
    assert len(rows) > 2
    for first, second in combinations(rows, 2):
        for name in rows[first].keys() & rows[second].keys():
            mine, theirs = rows[first][name], rows[second][name]
            assert mine.shape != theirs.shape or torch.equal(mine, theirs), (first, second, name)


@pytest.mark.parametrize("row", ["diff_gqa", "diff_v2", "transformer_1_5_heads"])
def test_rows_of_other_shapes_share_embedding_keys_and_values(sizes: Sizes, row: str) -> None:
    reference, ours = drawn(sizes, "transformer_gqa"), drawn(sizes, row)
    names = ["embedding.weight", *(f"layers.1.attention.{projection}_proj" for projection in "kv")]
    for name in names:
        assert torch.equal(ours[name], reference[name]), name
