"""The docker testbed: workers in containers."""
