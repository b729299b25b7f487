"""Dex, the differential extension of pretrained models (arXiv 2505.16333), as a peft method.

    from peft import get_peft_model
    from difftransformer.convert.dex import DexConfig, select_heads

    heads = select_heads(base, batches)                       # half of each layer's heads
    model = get_peft_model(base, DexConfig(heads=heads))      # then train, save_pretrained, ...
    plain = model.merge_and_unload()                          # of the base's class, same function

`PeftModel.from_pretrained` needs `import difftransformer.convert.dex` to load an adapter.
"""

from difftransformer.convert.dex.config import DexConfig
from difftransformer.convert.dex.heads import select_heads
from difftransformer.convert.dex.tuner import DexModel, trained_parameters

__all__ = ["DexConfig", "DexModel", "select_heads", "trained_parameters"]
