"""Answering needle prompts with shared prefixes, against each prompt alone.

    python benchmarks/prefix_sharing.py [--lengths 64 512 2048]

A fresh model of tiny scale (2 layers, 128 wide) answers prompts in the form of table 2, six needles
and two questions on each context at five depths. Both ways give the same answers; the time and the
number of prompt positions computed differ.
"""

import argparse
from time import perf_counter

import torch

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.rows import word_tokenizer
from difftransformer.evaluation.generation import Generator, Request
from difftransformer.evaluation.retrieval.prompts import RecallPrompts
from difftransformer.evaluation.retrieval.settings import NeedleSetting
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.needles.settings import Suite
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

VARIANTS = ("softmax", "diff_v1")
DEPTHS = (0, 25, 50, 75, 100)


def requests(length: int, samples: int) -> list[Request]:
    """Prompts of N = 6, R = 2."""
    recall = RecallConfig()
    suite = Suite(kind="needles", pairs=[[6, 2]], lengths=[length])
    builder = RecallPrompts(suite, recall, word_tokenizer(recall))
    return [
        Request(
            builder.token_ids(prompt.context + question), builder.max_new_tokens, lambda _: False
        )
        for depth in DEPTHS
        for sample in range(samples)
        for prompt in [builder.prompt(NeedleSetting(6, 2, length, depth), sample)]
        for question in prompt.questions
    ]


def main() -> None:
    """Print a table of seconds and speed-ups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument("--samples", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| variant | length | prompts | naive s | shared s | speed-up | positions |")
    print("|---|---|---|---|---|---|---|")
    for variant in VARIANTS:
        for length in arguments.lengths:
            config = ModelConfig(
                vocab_size=128, d_model=128, num_layers=2, ffn_dim=384, max_positions=length,
                attention={"variant": variant, "head_dim": 32},
            )  # fmt: skip
            scorer = Scorer(
                Transformer.build(config, "cpu_dispatch", 0).eval(), torch.device("cpu")
            )
            batch = requests(length, arguments.samples)
            Generator(scorer, 4096).generate(batch[:4])
            seconds, answers, generators = [], [], []
            for share in (False, True):
                generator, begun = Generator(scorer, 4096, share), perf_counter()
                answers.append(generator.generate(batch))
                seconds.append(perf_counter() - begun)
                generators.append(generator)
            assert answers[0] == answers[1]
            saved = generators[1].computed_positions / generators[1].prompt_positions
            print(
                f"| {variant} | {length} | {len(batch)} | {seconds[0]:.2f} | {seconds[1]:.2f} "
                f"| {seconds[0] / seconds[1]:.2f} | {saved:.0%} |"
            )


if __name__ == "__main__":
    main()
