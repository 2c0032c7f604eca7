"""Installed from a wheel, in a project with its own `harness`, `workloads` and `netprofiles` packages."""

from __future__ import annotations

import json
import os
import zipfile
from importlib import metadata

import pytest
import yaml
from installed import ROOT, build_sdist, build_wheel, check_upload

PACKAGES = ("harness", "workloads", "netprofiles")


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    about = {name for name in names if ".dist-info/" in name}
    found = {
        os.path.join(folder, name).removeprefix(f"{ROOT}/")
        for folder, _, files in os.walk(ROOT / "wanbench", followlinks=True)
        for name in files
        if "__pycache__" not in folder
    }
    (manual,) = {name for name in names if name.endswith(".data/data/share/man/man1/wanbench.1")}
    assert set(names) - about - {manual} == found
    # One file of each kind that is read at run time: a rule that dropped a kind would drop it on both sides.
    assert found > {
        "wanbench/py.typed",
        "wanbench/harness/spec/starter.toml",
        "wanbench/harness/spec/experiments/latency-sweep.toml",
        "wanbench/harness/show/papers/dts.toml",
        "wanbench/harness/learning/designs/mnist.toml",
        "wanbench/harness/show/figures/wanbench.mplstyle",
        "wanbench/harness/show/report/page.html.j2",
        "wanbench/harness/show/report/page.css",
        "wanbench/harness/show/report/page.js",
        "wanbench/netprofiles/catalog/world4.toml",
        "wanbench/netprofiles/catalog/aws.csv",
        "wanbench/harness/gate/own/sitecustomize.py",
        "wanbench/workloads/loop/inject/sitecustomize.py",
    }
    assert not [name for name in names if name.rpartition("/")[2].startswith(("test_", "conftest"))]


def test_the_source_distribution_makes_the_same_wheel_and_both_can_be_published(wheel, tmp_path):
    sdist = build_sdist(tmp_path)
    again = build_wheel(tmp_path / "wheel", sdist)
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())
    check_upload(wheel, sdist)


def test_the_installed_program_runs_and_has_its_man_page(installed):
    version = installed.run(installed.folder, "wanbench", "--version")
    assert (version.returncode, version.stdout) == (0, f"wanbench {metadata.version('wanbench')}\n")
    algorithms = installed.run(installed.folder, "wanbench", "list", "algorithms")
    assert algorithms.returncode == 0, algorithms.stderr
    assert {"ssgd", "dts"} <= {line.split()[0] for line in algorithms.stdout.splitlines() if line.strip()}
    assert (installed.folder / "share" / "man" / "man1" / "wanbench.1").is_file()


def test_only_wanbench_is_installed(installed):
    (site,) = installed.folder.glob("lib/python3*/site-packages")
    assert [path.name for path in site.iterdir() if path.name in {*PACKAGES, "tests"}] == []
    imported = installed.run(installed.folder, "python", "-c", "import wanbench.harness as h; print(h.__file__)")
    assert imported.stdout.strip() == str(site / "wanbench" / "harness" / "__init__.py")


# An editable installation is the harder case: it puts the checkout, with its own packages of these names, on the path.
@pytest.mark.long  # the plugin is used beside such packages each time
def test_a_users_packages_of_the_same_names_are_used(editable, project):
    done = editable.run(project, "wanbench", "run", "mine.toml", "--testbed", "virtual", "--out", "out", "--no-figures")
    assert (done.returncode, done.stdout) == (0, "out/mine\n"), done.stderr
    rows = json.loads(editable.run(project, "wanbench", "results", "out/mine", "--format", "json").stdout)
    assert sorted((row["algorithm"], row["status"]) for row in rows) == [
        ("mine", "ok"),
        ("one-worker", "ok"),
        ("ssgd", "ok"),
    ]


def test_the_fixture_of_the_plugin_works_beside_them(editable, project):
    done = editable.run(project, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_citation_and_the_changelog_name_the_installed_version():
    version = metadata.version("wanbench")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
