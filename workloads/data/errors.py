"""What can be wrong with a workload or its data."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A workload that does not exist or makes no sense; one line that names key, expectation and value."""
