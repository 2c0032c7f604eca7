"""Fixtures: a working folder for commands. Nothing here measures, so it runs on any host, beside anything."""

from benches import bench, shared_bench  # noqa: F401
from installed_fixtures import editable, environment, installed, project, wheel  # noqa: F401
