"""Language understanding: zero- and few-shot accuracy on multiple-choice tasks of lm-eval."""
