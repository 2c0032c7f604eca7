"""Fixtures: a working folder for commands."""

from __future__ import annotations

from benches import bench  # noqa: F401
