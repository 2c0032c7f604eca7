"""The values that a worker's messages can hold. They are declared once, beside the code that sends them.

The controller has pydantic check them (`harness.testbeds.messages`), which asks `Bounds`. A worker needs no pydantic.
"""

from collections.abc import Callable
from typing import Annotated, Any


class Bounds:
    """What a value may be, in pydantic's words. Values of other types are never converted."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), "strict": True, **self._limits}


Count = Annotated[int, Bounds(ge=0, lt=1 << 63)]
Whole = Annotated[int, Bounds(ge=-(1 << 63), lt=1 << 63)]
Number = Annotated[float, Bounds()]
Word = Annotated[str, Bounds(max_length=200)]
MANY = Bounds(max_length=1_000_000, fail_fast=True)
