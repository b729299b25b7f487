"""The report as a small site: a front page, one page per artifact, the runs, the attention maps."""
