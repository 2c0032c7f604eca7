"""Place ranks on sites."""

from collections.abc import Mapping

from wanbench.netprofiles.errors import PlacementError, ProfileError, did_you_mean
from wanbench.netprofiles.profile import Profile

POLICIES = ("blocked", "round-robin")


def place(profile: Profile, workers: int, how: str | Mapping[str, int] = "blocked") -> tuple[str, ...]:
    """Return the site name of every rank 0 .. workers-1.

    "blocked" orders ranks by site, as evenly as possible; the first sites take the remainder. "round-robin" gives one
    rank to each site in turn. If there are more sites than workers, both use the first `workers` sites. A mapping
    gives the number of workers of each site (name or region code). Ranks then follow the order of sites in the
    profile, not the order of the mapping.

    Raises:
        PlacementError: less than one worker, an unknown policy or site, or counts with the wrong sum.
    """
    if workers < 1:
        raise PlacementError(f"cannot place {workers} workers; expected at least 1")
    names = [site.name for site in profile.sites]
    if isinstance(how, Mapping):
        counts = _counts(profile, workers, how)
        return tuple(name for name in names for _ in range(counts.get(name, 0)))
    if how == "blocked":
        share, extra = divmod(workers, len(names))
        return tuple(name for i, name in enumerate(names) for _ in range(share + (i < extra)))
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
            raise PlacementError(f"placement counts {name!r} twice, once as {alias!r}; expected one count per site")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlacementError(f"placement gives {alias!r} {count!r} workers; expected a whole number, 1 or more")
        counts[name] = count
    total = sum(counts.values())
    if total != workers:
        parts = " + ".join(str(count) for count in counts.values()) or "nothing"
        raise PlacementError(f"placement has {total} workers ({parts}); expected {workers}, as in the experiment")
    return counts
