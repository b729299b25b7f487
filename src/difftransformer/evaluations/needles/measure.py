"""Multi-needle retrieval: accuracy by number of needles, context length and depth.

Prompts depend on the suite and the dataset only, so all runs answer the same questions. Every
sample is in samples.jsonl.
"""

import hashlib
import json
from typing import Any

import numpy as np

from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.generation import Generator, Request, StopCriteria
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluations.needles.settings import Suite
from difftransformer.provenance.atomic import write_text


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return accuracies of multi-needle retrieval, and the counts behind them.

    Returns:
        accuracy_{group}, correct_{group} and total_{group} for the groups of `Suite.groups`: each
        setting n{N}_r{R}, its depths (_d{D}) and, with several lengths, its lengths (_l{L}) and
        their depths (_l{L}_d{D}). Accuracy is the share of queried needles whose number occurs in
        the answer. prompt_positions is the number of prompt positions, computed_positions the
        number computed, as prompts share prefixes. Accuracies have per-item scores by haystack,
        since all settings share the haystacks.

    Raises:
        ConfigError: A length has no room for the needles and the question.
        DataError: Held-out text or the tokenizer is missing.
    """
    builder = open_builder(suite, context.dataset)
    ends = StopCriteria(builder.tokenizer, builder.eos_id, builder.until)
    questions = [
        (cell, sample, prompt.context + question, numbers)
        for cell in suite.cells
        for sample in range(suite.samples)
        for prompt in [builder.prompt(cell, sample)]
        for question, numbers in zip(prompt.questions, prompt.answers, strict=True)
    ]
    generator = Generator(context.scorer, suite.chunk, batch_size=suite.batch_size)
    answers = generator.generate(
        [
            Request(builder.token_ids(text), builder.max_new_tokens, ends.should_stop)
            for _, _, text, _ in questions
        ]
    )
    lines: list[dict[str, Any]] = []
    correct_by_cell: dict[tuple[Any, ...], list[list[bool]]] = {cell: [] for cell in suite.cells}
    for (cell, sample, text, numbers), tokens in zip(questions, answers, strict=True):
        answer = ends.text(tokens)
        correct = [number in answer for number in numbers]
        prompt_sha256 = hashlib.sha256(text.encode()).hexdigest()
        line = {"sample": sample, "prompt_sha256": prompt_sha256, "answer": answer}
        lines.append({**cell._asdict(), **line, "target": numbers, "correct": correct})
        correct_by_cell[cell].append(correct)
    write_text(context.details / "samples.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    metrics: Metrics = {}
    per_item = {}
    for name, cells in suite.groups.items():
        scores = np.array([correct_by_cell[cell] for cell in cells])
        scores = scores.reshape(len(cells), suite.samples, -1)  # [cells, samples, R]
        metrics |= {
            f"accuracy_{name}": float(scores.mean()),
            f"correct_{name}": int(scores.sum()),
            f"total_{name}": scores.size,
        }
        per_item[f"accuracy_{name}"] = per_item_scores("haystacks", scores.mean(axis=(0, 2)))
    positions = {
        "computed_positions": generator.computed_positions,
        "prompt_positions": generator.prompt_positions,
    }
    return EvalResult(metrics | positions, per_item)
