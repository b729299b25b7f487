"""The report as a small site: a front, a page an artifact, the runs, the attention maps."""
