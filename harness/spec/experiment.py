"""An experiment as the user writes it: strict types at the boundary, one clear line per mistake."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.table import Table, unit
from wanbench.harness.spec.timeline import ChangeTable
from wanbench.netprofiles import Delay, Rate, Ratio, Size
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.data.portion import DEFAULT_BATCH_SIZE
from wanbench.workloads.workload_keys import MAX_PROCESSES

Steps = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]* steps$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]


class WorkloadTable(Table):
    """[workload]: exactly one of name, params, model, command."""

    name: str | None = None
    params: int | None = None
    tensors: int | None = None
    model: str | None = None
    command: Annotated[list[str], Field(min_length=1)] | None = None
    data: str | None = None
    step_time: str | None = None
    step_cv: float | None = None
    payload_scale: float | None = None
    step_times: Literal["hook"] | None = None
    warmup: Steps | None = None
    nproc_per_worker: int | None = Field(default=None, ge=1, le=MAX_PROCESSES)
    timeout: str | None = None

    @field_validator("timeout")
    @classmethod
    def _delay(cls, text: str | None) -> str | None:
        return unit(Delay.parse, text)


class TcpTable(Table):
    """[network.tcp]: pinned, read back and recorded; never inherited from the host."""

    congestion: str = "reno"
    slow_start_after_idle: bool = True


class NetworkTable(Table):
    """[network]: which sites, how far apart, how fast."""

    profile: str = "uniform"
    rtt: str | None = None
    rate: str | None = None
    jitter: str | None = None
    loss: str | None = None
    rtt_scale: float | None = Field(default=None, gt=0)
    rate_scale: float | None = Field(default=None, gt=0)
    place: Literal["blocked", "round-robin"] | dict[str, int] = "blocked"
    tcp: TcpTable = TcpTable()

    @field_validator("rtt", "jitter")
    @classmethod
    def _delay(cls, text: str | None) -> str | None:
        return unit(Delay.parse, text)

    @field_validator("rate")
    @classmethod
    def _rate(cls, text: str | None) -> str | None:
        return unit(Rate.parse, text)

    @field_validator("loss")
    @classmethod
    def _loss(cls, text: str | None) -> str | None:
        return unit(Ratio.parse, text)


class CommTable(Table):
    """[comm]: how an all-reduce travels."""

    collective: Literal["direct", "gloo", "ring", "halving-doubling", "hierarchical"] = "direct"
    channels: Literal["auto"] | Annotated[int, Field(ge=1, le=64)] = "auto"
    buckets: str = "25MiB"

    @field_validator("buckets")
    @classmethod
    def _size(cls, text: str) -> str | None:
        return unit(Size.parse, text)


class TrainTable(Table):
    """[train]: only what the optimiser and the data need."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = SGDConfig.lr
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = AdamWConfig.beta1
    beta2: float = AdamWConfig.beta2
    eps: float = AdamWConfig.eps
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    batch_size: int = Field(default=DEFAULT_BATCH_SIZE, ge=1)
    shards: str = "iid"
    folds: int | None = None
    eval_every: int = Field(default=0, ge=0)
    target: float | None = Field(default=None, gt=0, le=1)
    until: Steps | None = None


class RunTable(Table):
    """[run]: where and how often."""

    testbed: Literal["auto", "netns", "docker", "virtual"] = "auto"
    emulator: Literal["auto", "netem", "relay"] = "auto"
    window: Steps = "20 steps"
    repeats: int = Field(default=3, ge=1)
    seed: int = Field(default=1, ge=0)


_CPUS = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
CpuSet = Annotated[str, StringConstraints(pattern=_CPUS)]


class ContainersTable(Table):
    """[containers]: what surrounds each worker of the testbed docker."""

    image: Annotated[str, StringConstraints(min_length=1)] | None = None
    memory: str | None = None
    cpuset: CpuSet | Annotated[list[CpuSet], Field(min_length=1)] | None = None

    @field_validator("memory")
    @classmethod
    def _size(cls, text: str | None) -> str | None:
        return unit(Size.parse, text)


class VirtualTable(Table):
    """[virtual]: what the simulated clock's model of the network leaves out."""

    tcp_ramp: bool = True


class Requirement(Table):
    """[[gate.require]]: a claim about a metric; read by `check`."""

    metric: str
    where: dict[str, str | int | float]
    over: dict[str, str | int | float] | None = None
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Requirement:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both; add min = 0.9")
        return self


class GateTable(Table):
    """[gate]: when a change fails a build; read by `check`.

    `tolerance` is relative, for what a simulation repeats exactly; `loss_band`, relative as well, for what depends on
    rounding: a loss that leaves it fails. `max_slowdown` is the least change of a measured step time that counts, at
    the family-wise error rate `alpha`. `setup`: shell commands that a fresh checkout needs.
    """

    tolerance: float = Field(default=0.0, ge=0)
    loss_band: float = Field(default=0.1, gt=0)
    max_slowdown: float = Field(default=0.05, gt=0)
    alpha: float = Field(default=0.05, gt=0, le=0.5)
    setup: list[str] = Field(default=[])
    require: list[Requirement] = Field(default=[])


class Spec(Table):
    """A whole experiment file."""

    schema_: int = Field(alias="schema")
    name: Name
    description: str = ""
    workload: WorkloadTable
    network: NetworkTable = NetworkTable()
    comm: CommTable = CommTable()
    algorithms: dict[str, dict[str, Any]]
    sweep: dict[str, Any] = Field(default={})
    train: TrainTable = TrainTable()
    run: RunTable = RunTable()
    containers: ContainersTable = ContainersTable()
    virtual: VirtualTable = VirtualTable()
    timeline: list[ChangeTable] = Field(default=[])
    gate: GateTable = GateTable()

    @field_validator("schema_", mode="before")
    @classmethod
    def _version(cls, version: object) -> object:
        if type(version) is not int or version != 1:  # true and 1.0 equal 1
            raise ValueError(f"expected 1, the only version there is, got {_as_written(version)}")
        return version

    @model_validator(mode="before")
    @classmethod
    def _algorithms_of_a_command(cls, data: Any) -> Any:
        """A command brings its own; every other workload needs one."""
        workload = data.get("workload")
        if isinstance(workload, dict) and "command" in workload:
            return {"algorithms": {}, **data}
        return data

    @field_validator("algorithms")
    @classmethod
    def _needed(cls, algorithms: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        workload = info.data.get("workload")
        if not algorithms and workload is not None and workload.command is None:
            raise PydanticCustomError("too_short", "empty", {"min_length": 1})
        return algorithms

    @classmethod
    def load(cls, source: str | Path) -> Spec:
        """Read a TOML file or a built-in experiment by name.

        Raises:
            SpecError: no such file or name, broken TOML, or a value that is not what the key takes.
        """
        return cls.from_toml(read(str(source)), where=str(source))

    @classmethod
    def from_toml(cls, text: str, where: str) -> Spec:
        """Parse TOML text; `where` names it in errors."""
        try:
            data = tomllib.loads(text)
        except ValueError as error:  # that of tomllib, or of a number of too many digits
            raise SpecError(f"{where}: not valid TOML: {error}") from None
        return cls.from_dict(data, where)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> Spec:
        """Validate plain data; `where` names it in errors."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise SpecError("\n".join(explained(error, data, where))) from None

    def override(self, assignments: Mapping[str, Any], where: str = "--set") -> Spec:
        """A copy with dotted keys replaced. Raises: SpecError."""
        data = self.to_dict()
        for key, value in assignments.items():
            set_dotted(data, key, value, where)
        return Spec.from_dict(data, where)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; absent keys stay absent."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)


def set_dotted(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """data["a"]["b"] = value for key "a.b", making tables on the way. Raises: SpecError."""
    *tables, last = key.split(".")
    for table in tables:
        below = data.setdefault(table, {})
        if not isinstance(below, dict):
            raise SpecError(f"{where}: {key}: {table!r} is a value, not a table")
        data = below
    data[last] = value


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` from the command line; the value is TOML, or a bare string. Raises: SpecError."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {text}: expected key=value, e.g. --set run.repeats=1")
    try:
        return key.strip(), tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), raw.strip()


def builtin_names() -> list[str]:
    """Experiments that ship with the package."""
    folder = Path(__file__).parent / "experiments"
    return sorted(path.stem for path in folder.glob("*.toml"))


def find(source: str) -> Path:
    """The file behind a path or a built-in name. Raises: SpecError."""
    builtin = Path(__file__).parent / "experiments" / f"{source}.toml"
    if source in builtin_names():
        return builtin
    path = Path(source)
    if path.is_file():
        return path
    close = difflib.get_close_matches(source, builtin_names(), 1)
    hint = f"did you mean {close[0]!r}?" if close else f"built-in experiments: {', '.join(builtin_names())}"
    raise SpecError(f"{source}: no such file and no such experiment; {hint}")


def read(source: str) -> str:
    """The text of a spec, by path or built-in name. Raises: SpecError."""
    try:
        return find(source).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{source}: not a text file; expected TOML in UTF-8") from None


_EXPECTED = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} entry",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
}
_HOW = {
    "schema": "; add schema = 1",
    "name": '; add name = "my-experiment"',
    "workload": '; add [workload] with name = "resnet50-v100"',
    "algorithms": "; add [algorithms] with ssgd = {}",
}
_SHAPES = {
    "[0-9]+(-": 'processors, such as "0" or "0-1,3"',
    "steps": 'a count of steps, such as "20 steps"',
    "A-Z": "letters, digits, '.', '_' and '-' ('-' not first)",
}


def explained(error: ValidationError, data: Mapping[str, Any], where: str) -> list[str]:
    """One line per key that is wrong: file, dotted key, what was expected, near miss."""
    found: dict[tuple[str | int, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        found.setdefault(_location(item, data), []).append(item)
    # A table that may also be a word is wrong in one entry, not as a whole.
    inner = [key for key in found if not any(other != key and other[: len(key)] == key for other in found)]
    return [f"{where}: {'.'.join(map(str, key)) or 'the file'}: {_explain(found[key], key)}" for key in inner]


def _location(item: Any, data: Any) -> tuple[str | int, ...]:
    """Where the mistake stands in the file: pydantic adds names of its own for the members of a union."""
    location: list[str | int] = []
    for part in item["loc"]:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if inside:
            data = data[part]
        elif item["type"] != "missing":
            continue
        location.append(part)
    return tuple(location)


def _explain(items: list[Any], location: tuple[str | int, ...]) -> str:
    kind, value = items[0]["type"], items[0].get("input")
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, 1)
        return f"unknown key; {f'did you mean {close[0]!r}?' if close else 'known keys: ' + ', '.join(known)}"
    if kind == "missing":
        return f"this key is required{_HOW.get(str(location[-1]), '') if len(location) == 1 else ''}"
    if kind == "value_error":
        return str(items[0]["msg"]).removeprefix("Value error, ")
    words = [word for item in items for word in re.findall("'([^']*)'", item.get("ctx", {}).get("expected", ""))]
    close = difflib.get_close_matches(str(value), words, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"expected {' or '.join(map(_expected, items))}, got {_as_written(value)}{hint}"


def _expected(item: Any) -> str:
    """In words, what a key takes."""
    kind, context = item["type"], item.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return next(words for part, words in _SHAPES.items() if part in context["pattern"])
    return _EXPECTED[kind].format(**context) if kind in _EXPECTED else str(item["msg"])


def _as_written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _known_keys(location: Iterable[str | int]) -> list[str]:
    """The keys of the table at a location."""
    model: type[BaseModel] = Spec
    for part in location:
        field = model.model_fields.get(str(part))
        candidates = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model)
    return sorted(field.alias or name for name, field in model.model_fields.items())
