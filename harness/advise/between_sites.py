"""A large language model on sites of several GPUs: what each way to train it costs between the sites, by the law.

A site is one worker. Its GPUs share the parameters (FSDP) or replicate them; between the sites flows one gradient, or
one change of the parameters. Nothing is simulated: at gigabytes a message, the step-time law is arithmetic on bytes.
Which way keeps the loss of data parallelism is what others published (`published`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from wanbench.harness.advise.answer import ADVICE, SPEC, TRIAL, filled, write_texts
from wanbench.harness.advise.candidates import Setting, with_setting
from wanbench.harness.advise.published import Record, nearest, published, similar
from wanbench.harness.advise.question import Question
from wanbench.harness.advise.reproduce import emulation_spec, trial
from wanbench.harness.advise.site import Site
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.host_tcp import KERNELS, Bottleneck, bottleneck
from wanbench.harness.plan.law import PredictInputs, predict, sent_bytes
from wanbench.harness.plan.registry import algorithm
from wanbench.harness.show.grid import aligned
from wanbench.harness.text import percent, rate, size

_DAY_S, _FLOAT32 = 86_400, 4
_STOCK = "stock-6.1"
_BUSY = 0.95  # the share of the time that computes, for which a rate is given
_NEAR = 0.9  # of the most tokens a day: among these, the way that changes training the least is advised
_LOSS = 0.005  # above data parallelism, in the nearest published trainings
_ENOUGH = 20  # tokens a parameter (Hoffmann et al. 2022)
_LEAST, _MOST = math.log(1e3), math.log(1e14)  # rates, bytes/s
_EIGHT_BITS = {"kind": "qsgd", "levels": 127, "bucket": 4096}


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        name: for people. cell: its setting; of one site alone and of the flat ring, that of `ssgd`.
        law: what the step-time law reads. sites: that train.
        copies: vectors of the parameters' size that it keeps in addition to data-parallel training.
        exact: whether it is data parallelism. records: the published trainings that are nearest to it.
    """

    name: str
    cell: TrainingCell
    law: PredictInputs
    sites: int
    copies: float = 0.0
    exact: bool = False
    records: Sequence[Record] = ()

    @property
    def step_time_s(self) -> float:
        """Seconds of a step, by the law."""
        return predict(self.law).step_time_s

    @property
    def busy(self) -> float:
        """The share of the time in which the sites compute."""
        return self.law.step_time_s / self.step_time_s

    @property
    def sent_a_day(self) -> float:
        """Bytes that leave a site in a day."""
        sizes = [nbytes for nbytes, _ in self.law.buckets] if self.law.buckets else [self.law.message_bytes]
        return sum(sent_bytes(self.law, nbytes) for nbytes in sizes) / self.law.period / self.step_time_s * _DAY_S

    @property
    def known(self) -> bool:
        """Whether it can be advised: exact, or published with a loss that is hardly higher."""
        return self.exact or (bool(self.records) and self.records[0].excess <= _LOSS)

    def tokens_a_day(self, site: Site) -> float:
        """Tokens that all sites train on in a day."""
        return self.sites * site.tokens / self.step_time_s * _DAY_S

    def memory_bytes(self, site: Site) -> float:
        """Additional bytes of each GPU, if its site shares them as it shares the parameters."""
        return self.copies * _FLOAT32 * self.cell.workload.params / site.gpus


def needed_bps(law: PredictInputs, busy: float) -> float | None:
    """The lowest rate in bit/s at which computing takes a share `busy` of a step, by bisection; None if none does."""
    low, high = _LEAST, _MOST
    for _ in range(60):
        middle = (low + high) / 2
        fast = predict(replace(law, rate_bytes_per_s=math.exp(middle))).step_time_s <= law.step_time_s / busy
        low, high = (low, middle) if fast else (middle, high)
    return None if high == _MOST else 8 * math.exp(high)


def ways(question: Question, site: Site) -> list[Way]:
    """Every way that is compared, from what changes training the least to what changes it the most."""
    sites, ssgd = question.workers, _cell(question, "ssgd", {})
    law = replace(ssgd.law_inputs, step_cv=0.0)
    alone = replace(law, workers=1, buckets=None, message_bytes=0)
    ring = replace(_gradient(law, site), workers=sites * site.gpus, collective="ring", one_shot_bytes=0)
    # Of the hops of a ring of all GPUs, few leave a site.
    ring = replace(ring, rtt_s=law.rtt_s / site.gpus, windows_bytes=law.windows_bytes and law.windows_bytes / site.gpus)
    half = _cell(question, "ssgd", {"compression": "bf16"})
    every = [
        Way("one site alone", ssgd, alone, 1, exact=True),
        Way("DP, flat ring, float32", ssgd, ring, sites, exact=True),
        Way("DP, hierarchical, float32", ssgd, _gradient(law, site), sites, exact=True),
        Way("DP, hierarchical, bf16", half, _gradient(law, site, 0.5), sites, exact=True),
        *(_apart(question, *row) for row in _APART),
    ]
    return [way for way in every if way.exact or way.cell.kind not in question.limits.excluded]


# (name, kind, parameters, copies): copies are theta, what the outer step keeps, and the message in float32.
_APART: tuple[tuple[str, str, dict[str, Any], float], ...] = (
    ("local SGD, H 30, bf16", "localsgd", {"period": 30, "compression": "bf16"}, 2),
    ("DiLoCo, H 30, bf16", "diloco", {"period": 30, "outer_lr": 0.6, "compression": "bf16"}, 3),
    ("DiLoCo, H 100, bf16", "diloco", {"period": 100, "outer_lr": 0.6, "compression": "bf16"}, 3),
    ("streaming DiLoCo, H 30, 8 bit", "streaming-diloco",
     {"period": 30, "fragments": 10, "delay": 1, "outer_lr": 0.4, "compression": _EIGHT_BITS}, 2.1),
    ("streaming DiLoCo, H 100, 8 bit", "streaming-diloco",
     {"period": 100, "fragments": 10, "delay": 1, "outer_lr": 0.4, "compression": _EIGHT_BITS}, 2.1),
    ("eager DiLoCo, H 100, 8 bit", "eager-diloco", {"period": 100, "outer_lr": 0.4, "compression": _EIGHT_BITS}, 4),
    ("SparseLoCo, H 30, 1.6 %, 2 bit", "sparseloco", {"period": 30}, 3),
)  # fmt: skip


def _apart(question: Question, name: str, kind: str, params: dict[str, Any], copies: float) -> Way:
    cell = _cell(question, kind, params)
    law = replace(cell.law_inputs, step_cv=0.0)
    if not cell.algorithm().promises.follows_law:  # all gather the messages of the others
        law = replace(law, message_bytes=law.message_bytes * question.workers // 2, one_shot_bytes=0)
    records = nearest(kind, params["period"], cell.workload.params, question.workers)
    return Way(name, cell, law, question.workers, copies, records=records)


def _cell(question: Question, kind: str, params: dict[str, Any]) -> TrainingCell:
    cell = with_setting(question.reference, Setting(algorithm(kind, params).label, kind, params))
    return replace(cell, comm=cell.comm.model_copy(update={"collective": "direct"}), channels=1)


def _gradient(law: PredictInputs, site: Site, share: float = 1.0) -> PredictInputs:
    """Buckets with a share of their bytes, ready only in the backward pass of the last microbatch."""
    end_s = law.step_time_s
    buckets = tuple((int(n * share), end_s - (end_s - ready_s) / site.microbatches) for n, ready_s in law.buckets or ())
    return replace(law, message_bytes=int(law.message_bytes * share), buckets=buckets)


def _uncompressed(way: Way) -> TrainingCell:
    """The cell with a smaller model that sends as many bytes in float32: a processor would compress too slowly."""
    numel = way.law.message_bytes * way.cell.params.get("fragments", 1) // _FLOAT32
    task = way.cell.task.model_copy(update={"name": None, "params": numel, "tensors": 1})
    return replace(way.cell, task=task, params={**way.cell.params, "compression": "none"})


@dataclass(frozen=True)
class SiteAnswer:
    """Every way to train; the first is one site alone."""

    question: Question
    site: Site
    ways: Sequence[Way]

    @property
    def advised(self) -> Way:
        """Of those that are known and train on nearly the most tokens a day, the one that changes training the least.

        One site alone only if it trains on the most.
        """
        known = sorted((way for way in self.ways if way.known), key=lambda way: -way.tokens_a_day(self.site))
        near = [way for way in known if way.tokens_a_day(self.site) >= _NEAR * known[0].tokens_a_day(self.site)]
        return known[0] if known[0].sites == 1 else min(near, key=lambda way: (way.sites == 1, self.ways.index(way)))

    @property
    def narrow(self) -> Bottleneck | None:
        """What a TCP connection of Linux as it is installed carries between two sites; None if it fills the link."""
        return bottleneck(self.question.reference.emulated_network, KERNELS[_STOCK])

    def to_json(self) -> dict[str, Any]:
        """What the text says, with numbers in seconds, bytes and bit/s."""
        site = self.site
        return {
            "network": self.question.network_name,
            "sites": self.question.workers,
            "site": {key: getattr(site, key) for key in ("workload", "gpus", "device", "tokens", "step_time_s")},
            "advised": self.advised.name,
            "ways": [
                {
                    "name": way.name,
                    "kind": way.cell.kind,
                    "params": dict(way.cell.params),
                    "law_step_time_s": way.step_time_s,
                    "computes": way.busy,
                    "tokens_a_day": way.tokens_a_day(site),
                    "bytes_from_a_site_a_day": way.sent_a_day,
                    "needed_bps": needed_bps(way.law, _BUSY),
                    "memory_bytes_of_a_gpu": way.memory_bytes(site),
                    "can_be_advised": way.known,
                    "published_by_others": [asdict(record) for record in way.records],
                }
                for way in self.ways
            ],
        }

    def write(self, folder: Path) -> list[Path]:
        """Write the files into the run's folder. Return their paths."""
        way = self.advised
        texts = {
            ADVICE: json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n",
            SPEC: emulation_spec(self.question, [way.cell, self.ways[2].cell], 3),
        }
        if not way.exact:
            texts[TRIAL] = trial(_uncompressed(way), way.step_time_s)
        return write_texts(texts, folder)

    def text(self, files: Sequence[str], width: int = 110) -> str:
        """The answer as lines of a title and text, around a table."""
        values = {**_question_values(self), **_advice_values(self), "files": ", ".join(files)}
        advice = _EXACT if self.advised.exact else _ADVICE
        header = ("", "step s", "computes", "10^9\ntokens\na day", "bytes a\nday from\na site",
                  f"Gbit/s\nfor\n{percent(_BUSY)}", "stock\nTCP", "more GB\na GPU",
                  "published loss\nagainst DP")  # fmt: skip
        table = aligned(header, [_line(self, way) for way in self.ways])
        return "\n".join([*_filled(_ASKED, values, width), "", table, *_filled(advice, values, width)])


def _filled(template: str, values: dict[str, str], width: int) -> Iterator[str]:
    """The lines of a template, "head: text" each, or "-: text" without a head; a text that is empty is left out."""
    for line in template.strip().splitlines():
        head, _, body = line.partition(": ")
        yield from filled("" if head == "-" else head, body.format(**values), width)


def _line(answer: SiteAnswer, way: Way) -> list[str]:
    apart, needed = way.sites > 1, needed_bps(way.law, _BUSY)
    connections = 1 if (path := answer.narrow) is None else _connections(path, needed or math.inf)
    losses = [f"{100 * record.excess:+.1f} %" for record in way.records]
    mark = " <-" if way == answer.advised else ""
    others = {f" ({record.replicas} sites)" for record in way.records if record.replicas != way.sites}
    return [
        way.name,
        f"{way.step_time_s:.2f}",
        percent(way.busy),
        f"{way.tokens_a_day(answer.site) / 1e9:.3g}",
        size(way.sent_a_day) if apart else "-",
        f"{needed / 1e9:.{0 if needed > 1e10 else 2}f}" if apart and needed else "-",
        str(connections) if apart else "-",
        f"{way.memory_bytes(answer.site) / 1e9:.2g}",
        ("the same" if way.exact else ", ".join(losses) + "".join(others) or "not known") + mark,
    ]


_ASKED = """
question: {network}, {sites} sites of {gpus} {device}; {workload}: {params} parameters, {tokens} tokens a step of a site
compute: {step_s} s a step, from the {per_s} tokens/s published for {published_gpus} {device} with FSDP and bf16 (llm-foundry){scaled}; a step takes {microbatches} microbatches, and a gradient leaves behind the last of them
binds: a gradient in float32 is {gradient}, {gradient_s} s of the link. Data parallelism (DP, hierarchical, bf16) trains on {dp_tokens}, one site alone on {alone_tokens}. DP equals one site {even}, and computes {busy} of the time {enough}
"""  # noqa: E501
_EXACT = """
advised: {way}: {way_tokens} (by the law), {times} times one site alone; {most} tokens a parameter take {hours} h. Nothing that is published to keep the loss trains on {near} more
link: {link}
assumed: the link carries nothing else, at this rate and without loss, and no site is slower
files: {files}
"""  # noqa: E501
_ADVICE = """
advised: {way}: {way_tokens} (by the law), {times} times one site alone; {most} tokens a parameter take {hours} h. Of the ways within {near} of the most tokens a day whose published loss is at most {loss} above data parallelism, it changes training the least
set up: AdamW and FSDP inside a site, as before, on the site's own share of the data. Every {period} steps Nesterov SGD on the averaged change of the parameters: outer learning rate {outer_lr}, momentum 0.9{fragments}. Evaluate the outer parameters. `wrap` is tested on CPUs only; how-to/two-sites has the keys of torchft
published: by others, not measured by wanbench: {published}
contrary: {contrary}
link: {link}
first: 1. The link, for a day with its busy hours: wanbench measure, and iperf3 with as many connections as you will open. At half its rate the sites compute {half} of the time
-: 2. One site alone: does it reach the published tokens/s? All times here are in proportion
-: 3. trial.py under torchrun, on one host of each site: {way_s} s a step, with as many real bytes in the memory of the hosts, and no compression
-: 4. The pilot, with your data: a day on one site alone ({alone_tokens}) with the batch of all sites, then as many tokens the advised way, each with a whole schedule of learning rates. Go on if the loss is at most {loss} higher; otherwise change the outer learning rate by 0.2, then shorten the period
not known: the loss over a real WAN at this size: the published losses are of replicas in data centres, with tuned rates; any loss after more tokens a parameter than quoted; mixtures of experts; your library's code for the messages, where it differs
assumed: the link carries nothing else, at this rate and without loss; compression, copies to the host and outer steps take no time. All sites wait for the slowest, and for one that is lost
go back: to {better} ({better_tokens}) if the link or the pilot is not as expected. {resume}
files: {files}
"""  # noqa: E501
_FRAGMENTS = (
    ", in {fragments} fragments in turn, each applied {delay} step after it was sent (up to 5 steps if the link has "
    "slow hours: the published loss rises by less than 0.2 % up to 10)"
)
_RESUME = {
    True: "After an outer step all sites have the same model: one can go on alone, with its own AdamW state",
    False: "The sites differ, so one that goes on alone does it from the outer parameters, with its own AdamW state",
}


def _question_values(answer: SiteAnswer) -> dict[str, str]:
    site, law, fastest = answer.site, answer.ways[2].law, answer.ways[3]
    rates = [needed_bps(fastest.law, busy) for busy in (1 / fastest.sites, _BUSY)]
    even, enough = (
        "at no rate, because of the round trip" if bps is None else f"at {rate(bps / 1e6)}" for bps in rates
    )
    return {
        "network": answer.question.network_name, "sites": str(fastest.sites), "gpus": str(site.gpus),
        "device": site.device.upper(), "workload": site.workload, "params": f"{fastest.cell.workload.params:,}",
        "tokens": f"{site.tokens:,}", "step_s": f"{site.step_time_s:.3g}",
        "per_s": f"{site.published.per_s[site.device]:,}", "published_gpus": str(site.published.gpus),
        "scaled": "" if site.gpus == site.published.gpus else f", times {site.gpus / site.published.gpus:g}",
        "microbatches": str(site.microbatches), "gradient": size(law.message_bytes),
        "gradient_s": f"{law.message_bytes / (law.rate_bytes_per_s or math.inf):.3g}",
        "dp_tokens": _tokens(fastest, site), "alone_tokens": _tokens(answer.ways[0], site),
        "even": even, "busy": percent(_BUSY), "enough": enough,
    }  # fmt: skip


def _advice_values(answer: SiteAnswer) -> dict[str, str]:
    way, site, path = answer.advised, answer.site, answer.narrow
    kind, params = way.cell.kind, way.cell.workload.params
    better = max((other for other in answer.ways if other.exact and other != way), key=lambda w: w.tokens_a_day(site))
    contrary = [record for record in similar(kind, params) if record not in way.records]
    said = [record for record in published() if record.says and record.method == kind]
    slow = replace(way.law, rate_bytes_per_s=(way.law.rate_bytes_per_s or math.inf) / 2)
    used = {"period": 1, "outer_lr": 1.0, **way.cell.params}
    return {
        "way": way.name, "way_tokens": _tokens(way, site), "way_s": f"{way.step_time_s:.3g}",
        "times": f"{way.tokens_a_day(site) / answer.ways[0].tokens_a_day(site):.3g}", "most": str(_ENOUGH),
        "hours": f"{24 * _ENOUGH * params / way.tokens_a_day(site):.3g}", "near": percent(1 - _NEAR),
        "loss": f"{100 * _LOSS:g} %", "period": str(used["period"]), "outer_lr": f"{used['outer_lr']:g}",
        "fragments": _FRAGMENTS.format(**used) if "fragments" in used else "",
        "published": "; ".join(map(str, [*way.records, *said])),
        "contrary": f"by others: {contrary[0]}" if contrary else "",
        "link": "" if path is None else _link(path, site.gpus),
        "half": percent(way.law.step_time_s / predict(slow).step_time_s),
        "better": better.name, "better_tokens": _tokens(better, site),
        "resume": _RESUME[way.cell.algorithm().promises.agrees],
    }  # fmt: skip


def _connections(path: Bottleneck, needed_bps: float) -> int:
    """The number of connections that carry a rate, or else fill the link."""
    return math.ceil(min(needed_bps, path.rate_bps) / path.carried_bps)


def _link(path: Bottleneck, gpus: int) -> str:
    connections = _connections(path, math.inf)
    return (
        f"a connection of Linux as installed ({_STOCK}) carries {rate(path.carried_bps / 1e6)} of "
        f"{rate(path.rate_bps / 1e6)} at {path.rtt_ms:.0f} ms, so {connections} fill it: {-(-connections // gpus)} "
        f"from each of {gpus} GPUs, if each sends its shard. Or set the last numbers of net.ipv4.tcp_rmem and "
        f"net.ipv4.tcp_wmem to {path.buffer_bytes} (how-to/tcp)"
    )


def _tokens(way: Way, site: Site) -> str:
    return f"{way.tokens_a_day(site) / 1e9:.3g} billion tokens a day"
