"""What ways to train a large language model cost between sites: against arithmetic on bytes, rates and round trips."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import replace
from functools import cache

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401  # the fixture is used by all

from wanbench.harness.advise.between_sites import SiteAnswer, needed_bps, ways
from wanbench.harness.advise.question import Limits, ask, workload_tables
from wanbench.harness.advise.site import site_of
from wanbench.harness.errors import SpecError
from wanbench.harness.plan.host_tcp import KERNELS
from wanbench.harness.plan.law import predict
from wanbench.harness.spec.experiment import Spec

PARAMS = 1_315_950_592
STEP_S = 524_288 / 363_645
PAYLOAD = 1448 / 1500  # of each packet


@cache
def answered(rtt="60ms", rate="1Gbit", workload="gpt-1b", workers=2, limits=Limits()):  # noqa: B008
    question, site = ask({"profile": "uniform", "rtt": rtt, "rate": rate}, workload, workers, limits), site_of(workload)
    return SiteAnswer(question, site, ways(question, site))


def way(answer, name):
    return next(way for way in answer.ways if way.name == name)


def test_a_site_has_eight_of_the_first_device_or_what_is_asked_for():
    site = site_of("gpt-1b")
    assert (site.gpus, site.device, site.tokens) == (8, "h100", 524_288)
    assert site.step_time_s == pytest.approx(STEP_S)
    other = site_of("gpt-1b, gpus=32, device=a100, tokens=2e6")
    assert other.step_time_s == pytest.approx(2e6 / (4 * 164_109))
    assert other.microbatches == math.ceil(2e6 / (32 * 14 * 2048))
    assert workload_tables("gpt-1b,gpus=16")[0] == {"name": "gpt-1b", "step_time": "720.878879ms"}
    assert site_of("resnet50-v100") is None
    assert site_of("params=7e9,step_time=1s") is None


@pytest.mark.parametrize(
    ("workload", "part"),
    [
        ("gpt-1b,gpus=0", "'gpus=0'"),
        ("gpt-1b,gpus=many", "'gpus=many'"),
        ("gpt-1b,gpu=8", "'gpu=8'"),
        ("gpt-1b,device=b200", "speeds are published for h100 and a100"),
        ("gpt-124m,device=h100", "speeds are published for a100"),
        ("gpt-1b,", "''"),
    ],
)
def test_a_wrong_site_is_refused_in_one_line(workload, part):
    with pytest.raises(SpecError, match=part) as caught:
        answered(workload=workload)
    assert "expected gpus, tokens, device, as in gpus=16" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rtt", "rate"), [("60ms", "1Gbit"), ("60ms", "10Gbit"), ("150ms", "1Gbit"), ("150ms", "10Gbit")]
)
def test_step_times_are_those_of_bytes_over_the_link(rtt, rate):
    answer = answered(rtt, rate)
    rtt_s, bytes_per_s = float(rtt[:-2]) / 1e3, float(rate[:-4]) * 1e9 / 8 * PAYLOAD
    blocking = STEP_S + (2 * PARAMS / bytes_per_s + rtt_s / 2) / 30  # bf16, to each other and back at once
    assert way(answer, "DiLoCo, H 30, bf16").step_time_s == pytest.approx(blocking, rel=1e-6)
    assert way(answer, "local SGD, H 30, bf16").step_time_s == pytest.approx(blocking, rel=1e-6)
    assert way(answer, "streaming DiLoCo, H 30, 8 bit").step_time_s == pytest.approx(STEP_S)  # hidden behind a step
    # The first gradient is ready a third into the last of three passes, and the wire is full from there on.
    for name, size in (("DP, hierarchical, float32", 4), ("DP, hierarchical, bf16", 2)):
        begin_s = STEP_S * (2 / 3 + 1 / 9)
        assert way(answer, name).step_time_s == pytest.approx(begin_s + size * PARAMS / bytes_per_s, rel=0.03)


def test_a_flat_ring_sends_nearly_twice_what_the_sites_need():
    answer = answered()
    ring, sites = (way(answer, name) for name in ("DP, flat ring, float32", "DP, hierarchical, float32"))
    assert ring.sent_a_day * ring.step_time_s / 86_400 == pytest.approx(2 * 15 / 16 * 4 * PARAMS)
    assert sites.sent_a_day * sites.step_time_s / 86_400 == pytest.approx(4 * PARAMS)


def test_bytes_tokens_and_memory():
    answer = answered(rate="10Gbit")
    diloco, streaming = way(answer, "DiLoCo, H 30, bf16"), way(answer, "streaming DiLoCo, H 100, 8 bit")
    sparse = way(answer, "SparseLoCo, H 30, 1.6 %, 2 bit")
    steps = 86_400 / diloco.step_time_s
    assert diloco.tokens_a_day(answer.site) == pytest.approx(2 * 524_288 * steps)
    assert diloco.sent_a_day == pytest.approx(2 * PARAMS / 30 * steps)
    assert streaming.sent_a_day == pytest.approx(PARAMS / 100 * 86_400 / streaming.step_time_s, rel=0.002)  # and norms
    assert sparse.sent_a_day == pytest.approx(120 / 4096 * PARAMS / 30 * 86_400 / sparse.step_time_s, rel=1e-3)
    assert diloco.memory_bytes(answer.site) == 3 * 4 * PARAMS / 8  # theta, b, and the change
    assert answer.ways[0].tokens_a_day(answer.site) == pytest.approx(86_400 * 363_645)
    assert answer.ways[0].sent_a_day == 0


def test_four_sites_gather_the_codes_of_three_others():
    sparse = way(answered(workers=4), "SparseLoCo, H 30, 1.6 %, 2 bit")
    assert sparse.sent_a_day * sparse.step_time_s / 86_400 == pytest.approx(3 * 120 / 4096 * PARAMS / 30, rel=1e-3)


def test_the_needed_rate_is_the_one_at_which_that_share_computes():
    for each in answered().ways[2:]:
        needed = needed_bps(each.law, 0.95)
        if needed is not None:
            there = replace(each.law, rate_bytes_per_s=needed / 8)
            assert each.law.step_time_s / predict(there).step_time_s == pytest.approx(0.95, rel=1e-6)
    assert needed_bps(answered(rtt="150ms").ways[2].law, 0.99) is None  # 1.44 s + 75 ms


def test_connections_carry_what_their_window_allows():
    path = answered("150ms", "10Gbit").narrow
    assert path.carried_bps == pytest.approx(8 * KERNELS["stock-6.1"].in_flight / 0.15)
    assert KERNELS["stock-6.1"].in_flight == 3 << 20  # half of 6 MiB
    assert answered("1ms", "1Gbit").narrow is None


@pytest.mark.parametrize(
    ("rate", "workload", "advised"),
    [
        ("1Gbit", "gpt-1b", "streaming DiLoCo, H 30, 8 bit"),
        ("10Gbit", "gpt-1b", "DiLoCo, H 30, bf16"),
        ("1Gbit", "gpt-7b", "streaming DiLoCo, H 100, 8 bit"),  # H 30 is not published at a similar size
        ("1Gbit", "gpt-124m", "DiLoCo, H 30, bf16"),  # in fragments, small models lose more than 0.5 %
        ("400Gbit", "gpt-7b", "DP, hierarchical, float32"),  # twice the bytes of a ring would bind
    ],
)
def test_the_least_change_is_advised_among_ways_that_keep_the_loss_and_are_about_as_fast(rate, workload, advised):
    assert answered(rate=rate, workload=workload).advised.name == advised


def test_what_is_excluded_or_not_published_is_never_advised():
    limits = Limits(excluded=frozenset({"streaming-diloco"}))
    assert answered(limits=limits).advised.name == "DiLoCo, H 30, bf16"
    none = Limits(excluded=frozenset({"streaming-diloco", "diloco"}))
    assert answered(limits=none).advised.name == "one site alone"
    for each in answered().ways:
        if each.cell.kind in ("localsgd", "sparseloco", "eager-diloco") or each.name == "DiLoCo, H 100, bf16":
            assert not each.known


def test_three_sites_count_on_trainings_of_four():
    records = way(answered(workers=3), "DiLoCo, H 30, bf16").records
    assert [record.replicas for record in records] == [4]


def test_published_numbers_change_no_step_time(monkeypatch):
    before = [each.step_time_s for each in answered().ways]
    monkeypatch.setattr("wanbench.harness.advise.between_sites.nearest", lambda *asked: [])
    after = answered.__wrapped__()
    assert [each.step_time_s for each in after.ways] == before
    assert after.advised.name == "one site alone"


def test_the_answer_says_what_it_rests_on_and_what_to_do():
    answer = answered()
    lines = answer.text(["a", "b"], 1000).splitlines()
    said = {line[:12].strip(): line[12:] for line in lines if line[:12].strip()}
    assert said["question"] == (
        "uniform 60ms 1Gbit, 2 sites of 8 H100; gpt-1b: 1,315,950,592 parameters, 524,288 tokens a step of a site"
    )
    assert said["advised"].startswith(
        "streaming DiLoCo, H 30, 8 bit: 62.8 billion tokens a day (by the law), 2 times one site alone; 20 tokens a "
        "parameter take 10.1 h."
    )
    assert said["published"].startswith(
        "by others, not measured by wanbench: 1B parameters, 2 replicas, H 30, 25B tokens: evaluation loss 2.48, data "
        "parallel 2.49, -0.4 % (Douillard et al. 2025"
    )
    assert "in 10 fragments in turn, each applied 1 step after it was sent" in said["set up"]
    assert "carries 419.4 Mbit/s of 1 Gbit/s at 60 ms, so 3 fill it: 1 from each of 8 GPUs" in said["link"]
    assert said["go back"].startswith(
        "to one site alone (31.4 billion tokens a day) if the link or the pilot is not as expected. The sites differ"
    )
    heads = ["advised", "set up", "published", "contrary", "link", "first", "not known", "assumed", "go back", "files"]
    assert list(said)[-len(heads) :] == heads
    assert "{" not in "\n".join(lines)


def test_a_fast_link_needs_no_list_of_risks():
    text = answered("1ms", "400Gbit", "gpt-7b").text(["a"], 1000)
    assert "Nothing that is published to keep the loss trains on 10 % more" in text
    assert "published   " not in text


def test_a_trial_of_fragments_sends_as_many_bytes_without_compressing(tmp_path):
    answered().write(tmp_path)
    trial = (tmp_path / "trial.py").read_text()
    numel = int(trial.partition("TENSORS = [")[2].partition("]")[0])
    assert numel == pytest.approx(PARAMS / 4, rel=0.002)  # 8 bits, and norms
    assert "'fragments': 10" in trial


def test_one_command_writes_a_spec_a_trial_and_the_answer(tmp_path):
    asked = ("advise", "uniform", "--rtt", "60ms", "--rate", "10Gbit", "--workers", "2", "--workload", "gpt-1b,gpus=16")
    printed = wanbench(*asked, "--out", str(tmp_path)).stdout
    assert re.search(r"^DiLoCo, H 30, bf16 .* <-$", printed, re.MULTILINE)
    assert max(map(len, printed.splitlines())) <= 110
    folder = tmp_path / "advise-60ms-10Gbit-gpt-1b"
    advice = json.loads((folder / "advice.json").read_text())
    assert advice["advised"] == "DiLoCo, H 30, bf16"
    assert advice["site"]["gpus"] == 16
    assert json.loads(wanbench(*asked, "--out", str(tmp_path), "--json").stdout) == advice
    spec = Spec.from_toml((folder / "advised.toml").read_text(), "advised")
    assert spec.workload.step_time == "720.878879ms"
    assert spec.algorithms["diloco"]["outer_lr"] == 0.6
    trial = (folder / "trial.py").read_text()
    ast.parse(trial)
    assert f"TENSORS = [{PARAMS // 2}]" in trial  # as float32, half as many elements have the bytes of bf16
    assert "'compression': 'none'" in trial


@pytest.mark.parametrize("option", [("--memory", "2GiB"), ("--target-loss", "2"), ("--proxy", "gpt")])
def test_what_has_no_effect_on_a_site_is_refused(option):
    asked = ("advise", "uniform", "--rtt", "60ms", "--rate", "1Gbit", "--workers", "2", "--workload", "gpt-1b", *option)
    assert f"{option[0]}: not for gpt-1b: only its speed is predicted" in refused(*asked)


def test_on_stock_hosts_a_ring_is_as_limited_by_its_windows_as_it_sends_more():
    question = ask(
        {"profile": "uniform", "rtt": "60ms", "rate": "1Gbit", "tcp": {"preset": "stock", "congestion": "cubic"}},
        "gpt-1b", 2, Limits(),
    )  # fmt: skip
    _, ring, whole, *_ = ways(question, site_of("gpt-1b"))
    assert whole.step_time_s > 4 * PARAMS * 0.06 / (3 << 20)  # one window a round trip
    assert ring.step_time_s == pytest.approx(2 * 15 / 16 * whole.step_time_s, rel=0.05)


def test_four_sites_in_the_world_count_on_trainings_of_four():
    question = ask({"profile": "world4"}, "gpt-7b", None, Limits())
    answer = SiteAnswer(question, site_of("gpt-7b"), ways(question, site_of("gpt-7b")))
    assert answer.advised.name == "DiLoCo, H 30, bf16"
    assert {record.replicas for record in answer.advised.records} == {4}


def test_a_map_is_not_drawn_of_sites():
    assert "gpt-1b: a worker is a site of GPUs, so there is no map; use `wanbench advise`" in refused(
        "map", "--workload", "gpt-1b"
    )
