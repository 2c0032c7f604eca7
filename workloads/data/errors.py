"""The error for a wrong workload or its data."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A workload does not exist or is invalid. One line names the key, the value and what was expected."""
