"""Networks whose uplinks are not known have two answers."""

from __future__ import annotations

from wanbench.harness.advise.candidates import Setting, with_collective, with_setting
from wanbench.harness.advise.evidence import Evidence, Tier
from wanbench.harness.advise.question import Limits, ask
from wanbench.harness.advise.ranking import Candidate, Measured, law_s
from wanbench.harness.advise.sensitivity import missing, shared

PATHS = "src,dst,rtt_ms,rate_mbps,up_mbps\nparis,tokyo,100,200,\nparis,oregon,100,100,\noregon,tokyo,100,100,\n"


def question(tmp_path, text):
    (tmp_path / "offices.csv").write_text(text)
    return ask({"profile": str(tmp_path / "offices.csv")}, "params=1e6,step_time=100ms", None, Limits())


def test_a_site_without_an_uplink_is_answered_for_as_if_its_paths_shared_its_fastest(tmp_path):
    asked = question(tmp_path, PATHS)
    assert {site: rate.mbit for site, rate in missing(asked).items()} == {"paris": 200, "tokyo": 200, "oregon": 100}
    cell = with_collective(with_setting(asked.reference, Setting("ssgd", "ssgd", {})))
    measured = Measured(Candidate(cell, Evidence(Tier.NO_RISK), law_s(cell)), 2 * law_s(cell))
    found = shared(asked, [measured])
    assert found.best == "ssgd on direct"
    # Two equal paths share one link: their bytes take twice as long. The correction of 2 stays.
    assert found.step_time_s > 2 * law_s(cell) * 1.3


def test_known_uplinks_leave_one_answer(tmp_path):
    asked = question(tmp_path, PATHS + "".join(f"{site},,,,300\n" for site in ("paris", "tokyo", "oregon")))
    assert missing(asked) == {}
    assert shared(asked, []) is None
