"""Fixtures: a working folder for commands. Nothing here measures, so these tests run on any host, however busy."""

from benches import bench, shared_bench  # noqa: F401
from installed_fixtures import editable, installed, project, wheel  # noqa: F401
