"""MNIST-1D (Greydanus and Kobak, ICML 2024): signals of 40 numbers that resemble digits, generated here.

Each is a stroke of 12 numbers that is padded, stretched, scaled, shifted, tilted and made noisy. Strokes and ranges are
those of github.com/greydanus/mnist1d, the random numbers are not. Of the published 4000 signals to train on there are
500 here, so that a good network still errs in 5 to 15 %, and 5000 instead of 1000 to test on.
Signals are images of height 1, shape (1, 1, 40), so that networks for images take them.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from wanbench.workloads.data.datasets import Images

TRAIN, TEST = 500, 5000
LENGTH = 40
_STROKES = (
    (5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5), (5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5),
    (5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5), (5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5),
    (5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5), (5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5),
    (5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5), (5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5), (5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5),
)  # fmt: skip
_PADDING = (36, 60)
_SCALE = 0.4
_MOST_SHIFTED = 48
_NOISE, _BLURRED_NOISE, _BLUR = 0.02, 0.25, 2.0
_TILT = 0.75
_NOT_PADDING = 1e-8  # strokes have zeros too
_EVALUATED_AT_ONCE = 500


@lru_cache(maxsize=1)
def read(folder: Path | None = None) -> Images:
    """Return all signals, which are the same on every machine with the same numpy. `folder` is not read."""
    import numpy as np
    import torch

    random = np.random.default_rng(1)
    labels = random.permutation(np.arange(TRAIN + TEST) % len(_STROKES))
    strokes = np.array(_STROKES)
    strokes = (strokes - strokes[:, :1]) / strokes.std(axis=1, keepdims=True) / 6  # they begin and end at 0
    signals = torch.tensor(np.stack([_signal(strokes[label], random) for label in labels]), dtype=torch.float32)
    signals = signals.view(-1, 1, 1, LENGTH)
    return Images(
        train=signals[:TRAIN],
        test=signals[TRAIN:],
        train_labels=tuple(labels[:TRAIN].tolist()),
        test_labels=torch.tensor(labels[TRAIN:]),
        mean=signals[:TRAIN].mean().view(1, 1, 1),
        std=signals[:TRAIN].std().view(1, 1, 1),
        at_once=_EVALUATED_AT_ONCE,
    )


def _signal(stroke: Any, random: Any) -> Any:
    """A signal, shape (40,), of a stroke, shape (12,)."""
    import numpy as np
    from scipy.ndimage import gaussian_filter

    padded = np.concatenate([stroke + _NOT_PADDING, np.zeros(random.integers(_PADDING[0], _PADDING[1] + 1))])
    signal = _resampled(padded, len(stroke) + _PADDING[1])
    signal = np.roll(signal * (1 + _SCALE * (random.random() - 0.5)), random.integers(_MOST_SHIFTED))
    blurred = gaussian_filter(_BLURRED_NOISE * random.standard_normal(len(signal)), _BLUR)
    signal = np.where(signal == 0, blurred, signal) + _NOISE * random.standard_normal(len(signal))
    tilt = _TILT * (random.random() - 0.5)
    return _resampled(signal - tilt * np.linspace(-0.5, 0.5, len(signal)), LENGTH)


def _resampled(values: Any, length: int) -> Any:
    import numpy as np

    return np.interp(np.linspace(0, 1, length), np.linspace(0, 1, len(values)), values)
