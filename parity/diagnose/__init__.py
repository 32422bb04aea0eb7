"""Diagnosis: the first module or tensor at which two runs part, and the setting or constant that explains why."""
