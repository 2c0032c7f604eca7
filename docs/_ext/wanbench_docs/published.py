"""Predictions of published measurements, as a table by source and a section on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.published import FOLDER, PREDICTIONS, Agreement, Line, Source, compared, counted, load, read
from wanbench_docs.markdown import escaped


def of_published() -> str:
    """A Markdown table of the sources: blind ones, and those that had been compared before."""
    sources = load(FOLDER)
    lines = counted(sources, read(FOLDER / PREDICTIONS))
    rows = [
        "| source | numbers | tier | tolerance | within | within 10 % | plain law | median | its | worst | remarks |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for seen, heading in ((False, "blind"), (True, "seen before")):
        names = [name for name in lines if sources[name].seen is seen]
        rows += [_row(f"[{name}](#{name})", [name], sources, lines) for name in names]
        rows.append(_row(f"**all {heading}**", names, sources, lines))
    return "\n".join([_beside_plain_law(sources, lines), *rows, "", *(_section(name, sources[name]) for name in lines)])


def _beside_plain_law(sources: Mapping[str, Source], lines: Mapping[str, Sequence[Line]]) -> str:
    """Return where wanbench is nearer than the plain law, and where it is not, by the median error of a source."""
    nearer, farther = compared({name: Agreement.of(sources[name], of_source) for name, of_source in lines.items()})
    return f"Nearer than the plain law: {', '.join(nearer)}. Farther: {', '.join(farther)}.\n"


def _section(name: str, source: Source) -> str:
    """Return what was measured, under which conditions, and how they were read."""
    about = [
        f"## {name}\n\n{escaped(source.title)}. {escaped(source.citation)}, <{source.url}>, "
        f"{escaped(source.revision)} (licence: {escaped(source.licence)}). Tolerance {100 * source.tolerance:.0f} %: "
        f"{escaped(source.why_tolerance)}\n",
        *(f"* {escaped(key)}: {escaped(text)}" for key, text in source.conditions.items()),
        *(f"* read as *{escaped(reading.name)}*: {escaped(reading.chosen)}" for reading in source.reading),
        *([f"* beyond its tolerance: {escaped(source.cause)}"] if source.cause else []),
        *([f"* changed after looking: {escaped(source.changed)}"] if source.changed else []),
        *(f"* fitted: {escaped(number.where)}, {escaped(number.printed)}" for number in source.number if number.fitted),
    ]
    return "\n".join(about) + "\n"


def _row(title: str, names: Sequence[str], sources: Mapping[str, Source], lines: Mapping[str, Sequence[Line]]) -> str:
    of = Agreement.together(sources, {name: lines[name] for name in names})
    alone = sources[names[0]] if len(names) == 1 and not title.startswith("*") else None
    remarks = []
    unpredicted = of.numbers - len(of.errors)
    fitted = sum(len(lines[name]) for name in names) - of.numbers
    if fitted:
        remarks.append(f"{fitted} more are fitted")
    if unpredicted:
        remarks.append(f"{unpredicted} without a prediction")
    if alone is not None and alone.set_aside:
        remarks.append("set aside until the end")
    if alone is not None and alone.changed:
        remarks.append("changed after looking")
    counted_of = f"{of.within} of {len(of.errors)}"
    cells = [
        title,
        f"{of.numbers}",
        f"{alone.tier}" if alone else "",
        f"{100 * alone.tolerance:.0f} %" if alone else "",
        counted_of,
        f"{of.near} of {len(of.errors)}",
        f"{of.plain_near} of {len(of.plain)}",
        "" if of.median is None else f"{100 * of.median:.1f} %",
        "" if of.plain_median is None else f"{100 * of.plain_median:.1f} %",
        "" if of.worst is None else f"{100 * of.worst:+.1f} %",
        "; ".join(filter(None, remarks)),
    ]
    return f"| {' | '.join(cells)} |"
