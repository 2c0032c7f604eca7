"""Adds settings to a recording without training the others again.

The reference is trained again with every seed. Only if each of its losses and accuracies is the recorded one do old and
new trajectories come from the same recipe, data and arithmetic, so that they can stand side by side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.harness.learning.design import BASE, REFERENCE
from wanbench.harness.learning.recording import Recording

_RECIPE = ("workload", "network", "train", "workers", "seeds", "seed", "tune")


def extended(old: Recording, new: Recording, about: dict[str, Any]) -> Recording:
    """The old recording with the settings and conditions of the new one, which replace those of equal name.

    Args:
        about: of the whole design, of which `new` has a part.

    Raises:
        SpecError: the recipe differs, or the reference trained otherwise than recorded.
    """
    for key in _RECIPE:
        if old.about.get(key) != about.get(key):
            raise SpecError(
                f"{old.design}: {key} differs from what is recorded; record the whole design, without --only"
            )
    if old.by_setting.get((BASE, REFERENCE)) != new.by_setting.get((BASE, REFERENCE)):
        raise SpecError(
            f"{old.design}: {REFERENCE} trains otherwise here than recorded, so new settings cannot be compared with "
            "the old ones; record the whole design, without --only"
        )
    trained = new.by_setting.keys()
    tuned = {(each["condition"], each["setting"]) for each in new.tuned}
    return replace(
        new,
        about=about,
        made={**new.made, "code": sorted({*old.made["code"], *new.made["code"]})},
        tuned=[each for each in old.tuned if (each["condition"], each["setting"]) not in tuned] + [*new.tuned],
        trajectories=[each for each in old.trajectories if (each.condition, each.setting) not in trained]
        + [*new.trajectories],
        step_time_s={
            profile: {**old.step_time_s.get(profile, {}), **new.step_time_s.get(profile, {})}
            for profile in {**old.step_time_s, **new.step_time_s}
        },
    )
