"""The module at which the code of each rule starts."""

ENTRIES = {
    "train_tokenizer": "difftransformer.data.tokenizer",
    "tokenize": "difftransformer.data.tokenize",
    "count_ngrams": "difftransformer.data.ngrams",
    "pretrain": "difftransformer.training.pretrain",
    "extend_context": "difftransformer.training.pretrain",
    "adapt": "difftransformer.training.adapt",
    "evaluate": "difftransformer.evaluation.evaluate",
    "benchmark": "difftransformer.evaluation.timing",
    "table": "difftransformer.reporting.table_job",
    "figure": "difftransformer.reporting.figure_job",
    "verdicts": "difftransformer.reporting.verdict_job",
    "report": "difftransformer.reporting.report_job",
}
"""Module whose import closure is the code of a rule.

Modules of the evaluation are added to it. `judge_answers` has none: its code is the judge's."""
