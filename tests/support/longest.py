"""The longest round trip of a profile, by which tests compare whole networks."""

from wanbench.netprofiles import Delay, Profile


def max_rtt(profile: Profile) -> Delay:
    """The longest round trip between two sites; with a single site, its `local_rtt`."""
    return max((profile.rtt(a, b) for a, b in profile.paths), default=profile.sites[0].local_rtt)
