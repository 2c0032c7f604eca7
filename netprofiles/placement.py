"""Which site each rank runs on."""

from __future__ import annotations

from collections.abc import Mapping

from wanbench.netprofiles.errors import PlacementError, ProfileError, did_you_mean
from wanbench.netprofiles.profile import Profile

POLICIES = ("blocked", "round-robin")


def place(profile: Profile, workers: int, how: str | Mapping[str, int] = "blocked") -> tuple[str, ...]:
    """The site name of every rank 0 .. workers-1.

    "blocked" orders ranks by site, as evenly as possible, the first sites taking the remainder;
    "round-robin" deals them out one by one. Either uses the first `workers` sites where there are more
    sites than workers. A mapping gives the workers of each site (names or region codes); ranks then
    follow the order of sites in the profile, whatever the order of the mapping.

    Raises:
        PlacementError: less than one worker, an unknown policy or site, or counts that do not add up.
    """
    if workers < 1:
        raise PlacementError(f"cannot place {workers} workers; expected at least 1")
    names = [site.name for site in profile.sites]
    if isinstance(how, Mapping):
        counts = _counts(profile, workers, how)
        return tuple(name for name in names for _ in range(counts.get(name, 0)))
    if how == "blocked":
        each, extra = divmod(workers, len(names))
        return tuple(name for i, name in enumerate(names) for _ in range(each + (i < extra)))
    if how == "round-robin":
        return tuple(names[rank % len(names)] for rank in range(workers))
    near = did_you_mean(how, POLICIES)
    raise PlacementError(f"unknown placement {how!r}; expected 'blocked', 'round-robin' or workers per site{near}")


def _counts(profile: Profile, workers: int, how: Mapping[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for alias, count in how.items():
        try:
            name = profile.site(alias).name
        except ProfileError as error:
            raise PlacementError(f"placement: {error}") from None
        if name in counts:
            raise PlacementError(f"placement gives {name!r} twice, once as {alias!r}; expected one count a site")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlacementError(f"placement gives {alias!r} {count!r} workers; expected a whole number from 1")
        counts[name] = count
    total = sum(counts.values())
    if total != workers:
        parts = " + ".join(str(count) for count in counts.values()) or "nothing"
        raise PlacementError(f"placement has {total} workers ({parts}), the experiment {workers}; expected equal")
    return counts
