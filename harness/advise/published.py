"""What others published of methods that train large language models apart: quoted from `published.toml`, and ranked.

It is evidence of how methods compare, at the scale and with the period of the source. It is never a prediction.
"""

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_SIMILAR, _ABOUT = math.log(3), 0.3  # powers of e


@dataclass(frozen=True)
class Record:
    """A training and its data-parallel counterpart, or what a source says without such a number.

    Attributes:
        method: kind of algorithm. read: "primary", or "second-hand" on a page that quotes the source.
        says: in words; "" if there is a number.
        params: of the model. replicas: that train apart. period: H in steps.
        tokens, metric, data_parallel, value: as printed; both numbers are better if they are lower.
    """

    method: str
    source: str
    read: str
    says: str = ""
    params: float = math.inf
    replicas: int = 0
    period: int = 0
    tokens: str = ""
    metric: str = ""
    data_parallel: str = "1"
    value: str = "1"

    @property
    def excess(self) -> float:
        """How much higher the number is than that of data parallelism, as a share."""
        return float(self.value) / float(self.data_parallel) - 1

    def distance(self, params: float) -> float:
        """From a model of that size, in powers of e."""
        return abs(math.log(self.params / params))

    def __str__(self) -> str:
        printed = self.says or (
            f"{self.params / 1e9:.3g}B parameters, {self.replicas} replicas, H {self.period}, {self.tokens} tokens: "
            f"{self.metric} {self.value}, data parallel {self.data_parallel}, {100 * self.excess:+.1f} %"
        )
        return f"{printed} ({self.source}; {self.read})"


@cache
def published() -> tuple[Record, ...]:
    """Every record."""
    text = (files(__package__) / "published.toml").read_text(encoding="utf-8")
    return tuple(Record(**table) for table in tomllib.loads(text)["record"])


def similar(method: str, params: float) -> list[Record]:
    """The numbers of a method, of models up to three times as large or as small, the least favourable first."""
    of_method = [record for record in published() if record.method == method and record.distance(params) <= _SIMILAR]
    return sorted(of_method, key=lambda record: -record.excess)


def nearest(method: str, period: int, params: float, replicas: int) -> list[Record]:
    """Of these, the numbers with this period, of models of about the nearest size, the least favourable first.

    With as many replicas, or else with the fewest that are more.
    """
    alike = [record for record in similar(method, params) if record.period == period and record.replicas >= replicas]
    same = [record for record in alike if record.replicas == min(other.replicas for other in alike)]
    least = min((record.distance(params) for record in same), default=0.0)
    return [record for record in same if record.distance(params) <= least + _ABOUT]
