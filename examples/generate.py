"""Write on from a prompt with a trained run, or with a folder that `publish` wrote.

python examples/generate.py results/tiny/runs/diff/6 "def main("

`make reproduce ARTIFACT=table6` trains that one; the first seed of scale tiny is 6.
"""

import argparse
from pathlib import Path

import difftransformer
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: Path, prompt: str, new_tokens: int = 40) -> str:
    """Print what the model makes of the prompt, the likeliest token each time."""
    difftransformer.register()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    given = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    torch.manual_seed(0)
    written = model.generate(
        **given, max_new_tokens=new_tokens, do_sample=False, pad_token_id=tokenizer.pad_token_id
    )
    text: str = tokenizer.decode(written[0])
    print(text)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write on from a prompt with a trained run.")
    parser.add_argument("folder", type=Path, help="of a run, or what `publish` wrote")
    parser.add_argument("prompt")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"{given.folder}: no such folder")
    main(given.folder, given.prompt)
