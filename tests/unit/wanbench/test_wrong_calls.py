"""A wrong call from Python is answered with the right one, in one line."""

from __future__ import annotations

import pytest
import synthetic_rows
from written_run import write_run

import wanbench
from wanbench.harness.errors import SpecError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return wanbench.Run(write_run(tmp_path_factory.mktemp("runs") / "finished", synthetic_rows.latency_sweep(reps=1)))


OPTIONS = "(options: testbed, emulator, settings, out, where, jobs, fresh, keep, figures)"
CALLS = {
    "a near miss of a name": (
        lambda: wanbench.warp,
        AttributeError,
        "module 'wanbench' has no attribute 'warp'; did you mean 'wrap'?",
    ),
    "a dict": (
        lambda: wanbench.run({"schema": 1}),
        TypeError,
        "run({...}): expected a Spec, a name or a path; call run(Spec.from_dict({...}))",
    ),
    "a number": (
        lambda: wanbench.run(3),
        TypeError,
        'run: expected a Spec, a name or a path, got int; call run("smoke")',
    ),
    "a near miss of an experiment": (
        lambda: wanbench.run("smok"),
        SpecError,
        "smok: no such file and no such experiment; did you mean 'smoke'?",
    ),
    "a near miss of an option": (
        lambda: wanbench.run("smoke", testbd="virtual"),
        TypeError,
        f"run: unknown option 'testbd'; did you mean 'testbed'? {OPTIONS}",
    ),
    "a key of [run] as an option": (
        lambda: wanbench.run("smoke", repeats=3),
        TypeError,
        "run: unknown option 'repeats'; for a value of the spec call run(spec, "
        f'settings={{"run.repeats": 3}}) {OPTIONS}',
    ),
    "a value that is swept": (
        lambda: wanbench.run("smoke", settings={"network.rtt": "3ms"}),
        SpecError,
        "smoke: network.rtt: the spec sweeps it; set its axis under sweep instead",
    ),
    "Spec of a name": (
        lambda: wanbench.Spec("smoke"),
        TypeError,
        "Spec('smoke'): call Spec.load(\"smoke\") for a name or a path, or Spec.from_dict({...})",
    ),
    "Spec of keys": (
        lambda: wanbench.Spec(name="mine"),
        TypeError,
        'Spec(name=...): call Spec.load("smoke") for a name or a path, or Spec.from_dict({...})',
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), CALLS.values(), ids=CALLS)
def test_a_wrong_call_is_answered_with_the_right_one(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


def test_a_name_without_a_similar_one_is_answered_with_all_names():
    with pytest.raises(AttributeError, match=f"has no attribute 'foo'; it has {', '.join(wanbench.__all__)}$"):
        wanbench.foo  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute '__wrapped__'$"):
        wanbench.__wrapped__  # noqa: B018


def test_a_figure_that_the_run_lacks_is_answered_with_the_available_ones(finished):
    with pytest.raises(SpecError, match=r"^finished: no figure 'scalibility'; did you mean 'scalability-by-rtt'\?$"):
        finished.figure("scalibility")
    with pytest.raises(SpecError, match=r"^finished: no figure 'x'; it has scalability-by-rtt, step-time$"):
        finished.figure("x")
