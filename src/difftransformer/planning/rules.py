"""The Python module that each Snakemake rule runs."""

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
"""Rule -> module whose import closure is the code of the rule.

The modules of the selected evaluation are added to it. `judge_answers` is not included: its code
is the module of the selected judge."""
