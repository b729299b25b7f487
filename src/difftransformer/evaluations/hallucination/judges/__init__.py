"""Judges; each module is used as ``open_judge(settings, cache folder).judge(answers)``."""
