"""Judges: ``open_judge(settings, folder of paid judgements).judge(answers)`` of each module."""
