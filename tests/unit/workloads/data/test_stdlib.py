"""The source of Python's standard library as training text."""

import json
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
import torch

from wanbench.workloads.data import stdlib
from wanbench.workloads.data.datasets import WorkloadError, batches
from wanbench.workloads.data.shards import Portion, Shards
from wanbench.workloads.registry import check_data, data_digest


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library of our own, read without caches."""

    def make(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/")
            path = path.with_name(f"{path.name}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path

    monkeypatch.setattr(sysconfig, "get_path", lambda name: {"stdlib": str(tmp_path)}[name])
    forget()
    yield make
    forget()


def forget():
    for cached in (stdlib.sources, stdlib.digest, stdlib.read):
        cached.cache_clear()


def named(tested, count=1):
    """Return names of modules that are held out, or that are not."""
    names = (f"module{number}" for number in range(1000))
    return [name for name in names if stdlib.is_test(f"{name}.py") == tested][:count]


def test_windows_cover_every_byte_of_a_module_and_overlap_by_one(library):
    (trained,), (tested,) = named(False), named(True)
    content = bytes(index % 251 for index in range(64 * 3 + 1))
    library(**{trained: content, tested: content[:65]})
    text = stdlib.read()
    assert text.train.shape == (3, 65)
    assert bytes(text.train[:, :-1].flatten().tolist()) + bytes([text.train[-1, -1]]) == content
    assert text.test.tolist() == [list(content[:65])]


def test_tests_and_what_depends_on_the_host_are_left_out(library):
    (trained,), (tested,) = named(False), named(True)
    names = (
        "test__a",
        "x__tests__b",
        "site-packages__c",
        "config-3__d",
        "_sysconfigdata_x",
        "sitecustomize",
        "idlelib__e",
    )
    library(**dict.fromkeys((trained, tested, "json__decoder", *names), b"x" * 65))
    assert {name for name, _ in stdlib.sources()} == {f"{trained}.py", f"{tested}.py", "json/decoder.py"}


def test_the_digest_depends_on_names_and_content(library):
    (trained, further), (tested,) = named(False, 2), named(True)
    digests = []
    for files in ({trained: b"ab", tested: b"c"}, {trained: b"ax"}, {trained: b"ab", further: b""}):
        library(**files)
        forget()
        digests.append(stdlib.digest())
    assert len(set(digests)) == 3
    assert data_digest({"name": "gpt-stdlib"}) == digests[-1]
    assert data_digest({"name": "digits-cnn"}) is None


def test_a_python_without_source_is_refused(library):
    root = library()
    message = f"workload.name: gpt-stdlib: {root}: expected the source of Python's standard library"
    with pytest.raises(WorkloadError, match=f"^{re.escape(message)}$"):
        check_data({"name": "gpt-stdlib"})


def test_the_text_is_the_same_in_every_process():
    code = (
        "import json; from wanbench.workloads.data import stdlib; t = stdlib.read()\n"
        "print(json.dumps([stdlib.digest(), t.train[7].tolist(), t.test.sum().item(), t.train_labels[::999]]))"
    )
    surroundings = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True)
    here = stdlib.read()
    mine = [stdlib.digest(), here.train[7].tolist(), here.test.sum().item(), list(here.train_labels[::999])]
    assert json.loads(result.stdout) == mine


def test_it_is_megabytes_of_real_source_of_which_a_tenth_or_so_is_held_out():
    found = dict(stdlib.sources())
    assert found["json/decoder.py"] == Path(json.decoder.__file__).read_bytes()
    total, held = sum(map(len, found.values())), sum(len(c) for name, c in found.items() if stdlib.is_test(name))
    assert total > 5_000_000
    assert 0.04 < held / total < 0.2


def test_training_and_test_windows_come_from_different_modules():
    tested = [content for name, content in stdlib.sources() if stdlib.is_test(name)]
    text = stdlib.read()
    assert text.test.shape == (stdlib.TEST_WINDOWS, 65)
    assert all(any(bytes(window.tolist()) in content for content in tested) for window in text.test)
    trained = sum((len(c) - 1) // 64 for name, c in stdlib.sources() if c and not stdlib.is_test(name))
    assert len(text.train) == len(text.train_labels) == trained


def test_batches_are_bytes_and_the_bytes_that_follow_them():
    data = stdlib.read()
    x, y = next(batches(data, 8, Portion(0, 1, 1).random(), range(100)))
    assert (x.shape, y.shape, x.dtype) == ((8, 64), (8, 64), torch.int64)
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_dirichlet_shards_differ_in_packages_and_cover_all_text():
    packages = stdlib.read().train_labels
    shards = [Portion(rank, 4, 1, shards=Shards(0.1)).indices(packages) for rank in range(4)]
    assert sorted(index for shard in shards for index in shard) == list(range(len(packages)))
    (largest, size), *_ = Counter(packages).most_common(1)
    parts = [sum(packages[index] == largest for index in shard) / size for shard in shards]
    assert max(parts) > 0.5  # if divided at random, each would have a quarter
    even = [Portion(rank, 4, 1).indices(packages) for rank in range(4)]
    assert all(0.2 < sum(packages[index] == largest for index in shard) / size < 0.3 for shard in even)
