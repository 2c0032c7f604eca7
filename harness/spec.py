"""An experiment as the user writes it: strict types at the boundary, one clear line per mistake."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from harness.errors import SpecError
from netprofiles import Delay, Rate, Ratio, Size, UnitError

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _unit(parse: Any, text: str | None) -> str | None:
    """Check a quantity's spelling and keep the text: the resolved spec shows what the user wrote."""
    if text is not None:
        try:
            parse(text)
        except UnitError as error:
            raise ValueError(str(error)) from None
    return text


class WorkloadTable(_Table):
    """[workload]: exactly one of name, params, model, command."""

    name: str | None = None
    params: int | None = None
    tensors: int | None = None
    model: str | None = None
    command: list[str] | None = None
    step_time: str | None = None
    step_cv: float | None = None
    payload_scale: float | None = None


class TcpTable(_Table):
    """[network.tcp]: pinned, read back and recorded; never inherited from the host."""

    congestion: str = "reno"
    slow_start_after_idle: bool = True


class NetworkTable(_Table):
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
        return _unit(Delay.parse, text)

    @field_validator("rate")
    @classmethod
    def _rate(cls, text: str | None) -> str | None:
        return _unit(Rate.parse, text)

    @field_validator("loss")
    @classmethod
    def _loss(cls, text: str | None) -> str | None:
        return _unit(Ratio.parse, text)


class CommTable(_Table):
    """[comm]: how an all-reduce travels."""

    collective: Literal["direct", "gloo"] = "direct"
    channels: Literal["auto"] | Annotated[int, Field(ge=1, le=64)] = "auto"
    buckets: str = "25MiB"

    @field_validator("buckets")
    @classmethod
    def _size(cls, text: str) -> str | None:
        return _unit(Size.parse, text)


class TrainTable(_Table):
    """[train]: only what the optimiser and the data need."""

    optimizer: Literal["sgd"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    batch_size: int = Field(default=32, ge=1)
    shards: str = "iid"
    eval_every: int = Field(default=0, ge=0)
    target: float | None = Field(default=None, gt=0, le=1)
    until: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]* steps$")] | None = None


class RunTable(_Table):
    """[run]: where and how often."""

    testbed: Literal["auto", "netns"] = "auto"
    emulator: Literal["auto", "relay"] = "auto"
    window: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]* steps$")] = "20 steps"
    repeats: int = Field(default=3, ge=1)
    seed: int = Field(default=1, ge=0)


class Requirement(_Table):
    """[[gate.require]]: a claim about a metric; read by `check`."""

    metric: str
    where: dict[str, str | int | float]
    over: dict[str, str | int | float] | None = None
    min: float | None = None
    max: float | None = None


class GateTable(_Table):
    """[gate]."""

    require: list[Requirement] = []


class Spec(_Table):
    """A whole experiment file."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    description: str = ""
    workload: WorkloadTable
    network: NetworkTable = NetworkTable()
    comm: CommTable = CommTable()
    algorithms: dict[str, dict[str, Any]] = Field(min_length=1)
    sweep: dict[str, Any] = {}
    train: TrainTable = TrainTable()
    run: RunTable = RunTable()
    gate: GateTable = GateTable()

    @classmethod
    def load(cls, source: str | Path) -> Spec:
        """Read a TOML file or a built-in experiment by name.

        Raises:
            SpecError: no such file or name, broken TOML, or a value that is not what the key takes.
        """
        path = find(str(source))
        return cls.from_toml(path.read_text(encoding="utf-8"), where=str(source))

    @classmethod
    def from_toml(cls, text: str, where: str) -> Spec:
        """Parse TOML text; `where` names it in errors."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{where}: not valid TOML: {error}") from None
        return cls.from_dict(data, where)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> Spec:
        """Validate plain data; `where` names it in errors."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise SpecError("\n".join(_lines(error, data, where))) from None

    def override(self, assignments: Mapping[str, Any], where: str = "--set") -> Spec:
        """A copy with dotted keys replaced. Raises: SpecError."""
        data = self.to_dict()
        for key, value in assignments.items():
            set_dotted(data, key, value)
        return Spec.from_dict(data, where)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; absent keys stay absent."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)


def set_dotted(data: dict[str, Any], key: str, value: Any) -> None:
    """data["a"]["b"] = value for key "a.b", making tables on the way."""
    *tables, last = key.split(".")
    for table in tables:
        below = data.setdefault(table, {})
        if not isinstance(below, dict):
            raise SpecError(f"{key}: {table!r} is a value, not a table")
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
        return key.strip(), raw


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


def _lines(error: ValidationError, data: Mapping[str, Any], where: str) -> list[str]:
    """One line per mistake: file, dotted key, what was expected, near miss."""
    lines = []
    for item in error.errors(include_url=False):
        # Union members add their own names to the location; only what stands in the file is shown.
        location = [part for part in item["loc"] if not (isinstance(part, str) and _is_union_tag(part))]
        key = ".".join(str(part) for part in location)
        lines.append(f"{where}: {key or 'the file'}: {_explain(item, location)}")
    return list(dict.fromkeys(lines))


def _is_union_tag(part: str) -> bool:
    return part in {"int", "dict[str,int]"} or part.startswith(("literal[", "constrained-"))


def _explain(item: Any, location: list[Any]) -> str:
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"unknown key; {hint}"
    if kind == "missing":
        return "this key is required"
    if kind == "literal_error":
        close = difflib.get_close_matches(str(value), context["expected"].replace("'", "").split(", "), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{value!r} is not one of {context['expected']}{hint}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        shape = 'a count of steps such as "20 steps"' if "steps" in pattern else "letters, digits, '.', '_' and '-'"
        return f"{value!r} is not {shape}"
    message = str(item["msg"]).removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return message if kind == "value_error" else f"{message}, got {value!r}"


def _known_keys(location: list[Any]) -> list[str]:
    model: type[BaseModel] = Spec
    for part in location:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return sorted(field.alias or name for name, field in model.model_fields.items())
