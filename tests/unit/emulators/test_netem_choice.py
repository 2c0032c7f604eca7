"""The check whether this host supports netem: it runs in a child process and reports one line."""

import errno
import os
import subprocess
import sys

import pytest

from wanbench.harness.emulators import choice
from wanbench.harness.emulators.netem import detect as netem_detect
from wanbench.harness.errors import HostError
from wanbench.workloads.process.namespace import NamespaceError


@pytest.fixture(autouse=True)
def _fresh_check():
    choice.kernel_lacks.cache_clear()
    yield
    choice.kernel_lacks.cache_clear()


@pytest.fixture
def detected(monkeypatch):
    """Return a function that calls `missing()` with a kernel that answers with these error numbers."""

    def detect(*numbers):
        answers = iter(numbers)
        monkeypatch.setattr(netem_detect, "enter_private_network", lambda: None)
        monkeypatch.setattr(netem_detect, "_try", lambda _kind, _body: next(answers))
        return netem_detect.missing()

    return detect


def test_a_kernel_with_every_module_lacks_nothing(detected):
    assert detected(0, 0, 0, 0) is None


@pytest.mark.parametrize(
    ("numbers", "feature", "option", "module"),
    [
        ((errno.ENOENT,), "netem", "CONFIG_NET_SCH_NETEM", "sch_netem"),
        ((0, errno.ENOENT), "htb", "CONFIG_NET_SCH_HTB", "sch_htb"),
        ((0, 0, errno.ENOENT), "u32", "CONFIG_NET_CLS_U32", "cls_u32"),
        ((0, 0, 0, errno.EOPNOTSUPP), "veth", "CONFIG_VETH", "veth"),
    ],
)
def test_a_missing_feature_is_named_with_its_option_module_and_packages(detected, numbers, feature, option, module):
    assert detected(*numbers) == (
        f"netem: this kernel has no {feature} ({option}): sudo modprobe {module}, from "
        "linux-modules-extra-$(uname -r) on Ubuntu, kernel-modules-extra on Fedora"
    )


def test_another_refusal_is_reported_as_it_is(detected):
    message = "netem: the kernel refuses sch_netem: Operation not permitted"
    assert detected(errno.EPERM) == message


def test_a_host_without_namespaces_reports_why(monkeypatch):
    def refuse():
        raise NamespaceError("new network namespace: Operation not permitted; run as root")

    monkeypatch.setattr(netem_detect, "enter_private_network", refuse)
    assert netem_detect.missing() == "netem: new network namespace: Operation not permitted; run as root"


def test_this_host_is_checked_once_and_stays_unchanged():
    before = set(os.listdir("/sys/class/net")), os.readlink("/proc/self/ns/net")
    first = choice.why_no_netem()
    assert choice.why_no_netem() is first
    assert choice.kernel_lacks.cache_info().misses == 1
    assert (set(os.listdir("/sys/class/net")), os.readlink("/proc/self/ns/net")) == before


@pytest.mark.parametrize(
    ("missing", "chosen"),
    [
        (None, ("netem", "this kernel supports it")),
        ("netem: this kernel has none", ("relay", "netem: this kernel has none")),
    ],
)
def test_auto_selects_netem_if_it_works_else_the_relay_and_gives_the_reason(monkeypatch, missing, chosen):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": missing)
    assert choice.chosen() == chosen


def test_netem_on_a_host_without_it_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(choice, "why_no_netem", lambda testbed="netns": "netem: this kernel has none")
    with pytest.raises(HostError, match=r"^netem: this kernel has none; alternative: --emulator relay$"):
        choice.check("netem", "processes")


def test_pyroute2_is_not_imported_unless_netem_is_used():
    code = (
        "import sys\n"
        "from wanbench.harness.plan.auto import FixedHost\n"
        "from wanbench.harness.plan.expand import expand\n"
        "from wanbench.harness.spec.experiment import Spec\n"
        "from wanbench.harness.emulators.emulator import EMULATORS\n"
        "expand(Spec.load('smoke'), 'smoke', FixedHost()); EMULATORS['relay']\n"
        "print('pyroute2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
