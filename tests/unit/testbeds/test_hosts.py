"""Host names of workers."""

from __future__ import annotations

import re

from wanbench.harness.testbeds.group import host_names


def test_a_host_name_has_site_and_rank():
    assert host_names(["tokyo", "tokyo", "us-east-1"]) == ("tokyo-0", "tokyo-1", "us-east-1-2")


def test_any_site_gives_a_valid_and_distinct_name():
    sites = ["São Paulo", "東京", "a" * 200, "x_y.z", "-", "Zürich"]
    names = host_names(sites)
    assert names[0] == "sao-paulo-0"
    assert names[1] == "site-1"
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)
    assert len(set(names)) == len(sites)
