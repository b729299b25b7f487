"""Judges: ``open_judge(settings, folder of paid judgments).judge(answers)`` of each module."""
