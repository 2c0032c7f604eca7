"""What both file formats share: reading the text, and the values that a file states about one path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File

from wanbench.netprofiles.errors import ProfileError
from wanbench.netprofiles.path import PATH_VALUES, Pair, Path, Provenance
from wanbench.netprofiles.units import NO_DELAY, NO_LOSS, Delay, Rate, Ratio, Size


@dataclass(frozen=True, slots=True)
class PathValues:
    """The values of a path that a file gives, named as in `PATH_VALUES`; None is one that it leaves out.

    `rtt` is twice the one-way delay where the file gives that instead.
    """

    rtt: Delay | None = None
    jitter: Delay | None = None
    loss: Ratio | None = None
    rate: Rate | None = None
    buffer: Size | None = None

    def stated(self) -> tuple[str, ...]:
        """The names of the values that are there."""
        return tuple(key for key in PATH_VALUES if getattr(self, key) is not None)

    def over(self, defaults: PathValues) -> PathValues:
        """These values, with `defaults` where they are silent."""
        return PathValues(
            **{key: mine if (mine := getattr(self, key)) is not None else getattr(defaults, key) for key in PATH_VALUES}
        )

    def path(self, src: str, dst: str, provenance: Mapping[str, Provenance]) -> Path:
        """The path from `src` to `dst` with these values.

        Raises:
            ProfileError: no delay, or values that contradict each other.
        """
        if self.rtt is None:
            raise ProfileError(f"{src} -> {dst}: no delay; expected an RTT or a one-way delay")
        return Path(
            src=src,
            dst=dst,
            delay=Delay(self.rtt.ns // 2),
            jitter=NO_DELAY if self.jitter is None else self.jitter,
            loss=NO_LOSS if self.loss is None else self.loss,
            rate=self.rate,
            buffer=self.buffer,
            provenance={key: provenance[key] for key in self.stated()},
        )


def read_text(file: File) -> str:
    """The text of `file`. Raises ProfileError where it cannot be opened or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{file}: is not text in UTF-8") from None


def add_path(
    paths: dict[Pair, Path],
    where: str,
    values: PathValues,
    pair: Pair,
    provenance: Mapping[str, Provenance],
) -> None:
    """Put a path into `paths`. `provenance` has every key of `PATH_VALUES`.

    Raises:
        ProfileError: led by `where`: the pair is there already, or its values contradict each other.
    """
    if pair in paths:
        raise ProfileError(f"{where}: {pair[0]} -> {pair[1]} is given twice; expected once per direction")
    try:
        paths[pair] = values.path(*pair, provenance)
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None
