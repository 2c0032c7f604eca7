"""What every table of a spec is: strict, frozen, without keys that nobody knows."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from wanbench.netprofiles import UnitError


class Table(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def unit(parse: Callable[[str], object], text: str | None) -> str | None:
    """Check a quantity's spelling and keep the text: the resolved spec shows what the user wrote."""
    if text is not None:
        try:
            parse(text)
        except UnitError as error:
            raise ValueError(str(error)) from None
    return text
