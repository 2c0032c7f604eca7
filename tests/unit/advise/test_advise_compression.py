"""What `advise` says of the time that compression takes."""

from __future__ import annotations

import pytest

from wanbench.harness.advise import answer
from wanbench.harness.advise.answer import ns_per_byte, unpriced_s
from wanbench.harness.advise.candidates import Setting, with_setting
from wanbench.harness.advise.question import Limits, ask

QUESTION = ask({"profile": "uniform", "rtt": "100ms", "rate": "1Gbit"}, "resnet50-v100", 4, Limits())


def cell(kind, **params):
    return with_setting(QUESTION.reference, Setting(kind, kind, params))


def test_it_is_that_of_a_vector_in_each_period(monkeypatch):
    monkeypatch.setattr(answer, "ns_per_byte", lambda _: (4.0, 1.0))
    topk = {"kind": "topk", "ratio": 0.01}
    every_step, in_four = cell("ssgd", compression=topk), cell("sparse", period=4, compression=topk)
    assert unpriced_s(every_step) == pytest.approx(5e-9 * every_step.workload.message_bytes)
    assert unpriced_s(in_four) == pytest.approx(unpriced_s(every_step) / 4)
    assert unpriced_s(cell("sparseloco", period=1)) == unpriced_s(every_step)  # a compressor by default


def test_without_compression_or_where_a_spec_charges_it_there_is_none():
    assert unpriced_s(cell("ssgd")) is None
    assert unpriced_s(cell("ssgd", compression={"kind": "topk", "ratio": 0.01, "ns_per_byte": 3})) is None


@pytest.mark.parametrize("kind", ["topk", "powersgd", "fp16"])
def test_a_compressor_is_measured(kind):
    compress, restore = ns_per_byte(kind, side=64, repeats=2)
    assert compress > 0
    assert restore > 0
