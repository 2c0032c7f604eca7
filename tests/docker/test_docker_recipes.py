"""The recipes of the documentation, in containers: this host's system and packages, in an image of their own."""

from __future__ import annotations

from pathlib import Path

import host_image
import pytest
import recipes

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def image_of_recipes(api, image):
    """Return an image whose programs find the recipes' packages, and Open MPI its configuration."""
    name = f"{image}-recipes"
    etc = {f"etc/{folder}": Path("/etc") / folder for folder in ("alternatives", "openmpi")}
    host_image.make(api, name, folders=etc, path=f"{recipes.PACKAGES}:{host_image.PATH}")
    yield name
    api.remove_image(name, force=True)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_recipe_does_the_same_in_containers_and_leaves_nothing(bench, image_of_recipes, name):
    bench.folder.chmod(0o755)
    (bench.folder / "examples").symlink_to(recipes.ROOT / "examples")
    recipes.run(bench, name, "--testbed", "docker", "--image", image_of_recipes)
    assert bench.commands[-1].left_nothing()
    assert bench.containers() == []
