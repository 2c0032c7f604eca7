"""Check that a figure can be read: no text is small or cut, and none covers another."""

from __future__ import annotations

import itertools

from matplotlib.backends.backend_agg import FigureCanvasAgg

from wanbench.harness.show.figures.style import wanbench_style


def visible_texts(axes):
    """Return the title, labels and texts of a set of axes, and the labels of its visible ticks."""
    ticks = []
    for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
        ticks += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    others = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
    return [text for text in [*ticks, *others] if text.get_visible() and text.get_text()]


def assert_nothing_overlaps(figure):
    with wanbench_style():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()  # which lays it out
        texts = [*figure.texts, *(text for axes in figure.axes for text in visible_texts(axes))]
        assert min(text.get_fontsize() for text in texts) >= 6
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
        boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
        for axes in figure.axes:
            boxes += [label.get_window_extent(renderer) for label in visible_texts(axes)]
    page = figure.bbox
    for box in boxes:
        assert box.x0 >= page.x0
        assert box.x1 <= page.x1
        assert box.y0 >= page.y0
        assert box.y1 <= page.y1
    # A contact of a tenth of a point is not an overlap.
    slim = [box.padded(-0.2) for box in boxes]
    assert not [pair for pair in itertools.combinations(slim, 2) if pair[0].overlaps(pair[1])]
