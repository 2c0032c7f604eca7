"use strict";
// A chart of the cells that the filters leave: chart.draw(host, view, cells, x, y) replaces what is in `host`.
const chart = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const node = (name, attributes, parent, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const short = (value) => (value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(4))));

  // A mark for each algorithm in turn, around the origin.
  const SHAPES = ["M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0Z", "M-3-3H3V3H-3Z", "M0-4L4 3H-4Z", "M0-4.4L4.4 0L0 4.4L-4.4 0Z",
    "M0 4L4-3H-4Z", "M-4-1.3H-1.3V-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4Z"];
  const mark = (parent, algorithm, left, top, fill) =>
    node("path", { d: SHAPES[algorithm % SHAPES.length], transform: `translate(${left} ${top})`, fill }, parent);

  // Ticks between two values: powers of ten with their 2 and 5 if there are few, or steps of 1, 2 or 5.
  const ticks = (low, high, logarithmic, most) => {
    const found = [];
    if (logarithmic) {
      const decades = Math.log10(high / low);
      const parts = decades > most ? [1] : decades > most / 3 ? [1, 3] : [1, 2, 5];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
        for (const part of parts) found.push(part * 10 ** power);
      }
    } else {
      const raw = (high - low) / most;
      const unit = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((part) => part * unit).find((size) => size >= raw);
      for (let place = Math.ceil(low / step); place * step <= high * (1 + 1e-9); place++) found.push(place * step);
    }
    return found.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  };

  // A scale from values to pixels, with its ticks as [value, text].
  const scaled = (values, logarithmic, from, to, most) => {
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (logarithmic) [low, high] = [low / 1.15, high * 1.15];
    else {
      low = low >= 0 && low < 0.5 * high ? 0 : low - 0.05 * (high - low || Math.abs(high) || 1);
      high += 0.05 * (high - low || 1);
    }
    const at = logarithmic ? Math.log : (value) => value;
    const place = (value) => from + ((at(value) - at(low)) / (at(high) - at(low))) * (to - from);
    return { place, ticks: ticks(low, high, logarithmic, most).map((value) => [value, short(value)]) };
  };

  const named = (axis, from, to) => {
    const width = (to - from) / axis.values.length;
    return { place: (index) => from + (index + 0.5) * width, ticks: axis.values.map((text, index) => [index, text]) };
  };

  const draw = (host, view, cells, x, y) => {
    host.replaceChildren();
    const measure = view.measures[y];
    const axis = view.axes[x];
    const across = (cell) => (axis.numbers ? axis.numbers[cell.at[x]] : cell.at[x]);
    const seen = cells.filter((cell) => cell.at && cell.values[y][0] !== null);
    if (!seen.length) {
      host.textContent = "None of these cells has a value to draw.";
      return;
    }
    const without = cells.filter((cell) => cell.at).length - seen.length;
    const text = `${measure.title} against ${axis.title}: ${seen.length} cells, all in the table below`;
    const width = Math.max(300, host.clientWidth);
    const height = Math.min(440, Math.max(280, width * 0.5));
    const names = axis.numbers ? null : { ...axis, values: [...new Set(seen.map((cell) => cell.at[x]))].sort((a, b) => a - b) };
    const tilted = names && names.values.length * 75 > width;
    const box = { left: 52, right: width - 12, top: 26, bottom: height - (tilted ? 110 : 44) };
    const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group" }, host);
    svg.setAttribute("aria-label", text);
    if (without) {
      const said = document.createElement("p");
      said.textContent = `Not drawn: ${without} of these cells, which have no such value.`;
      host.append(said);
    }

    const ends = seen.flatMap((cell) => cell.values[y].filter((value) => value !== null));
    const upLog = measure.logarithmic && Math.min(...ends) > 0 && Math.max(...ends) > 8 * Math.min(...ends);
    const up = scaled(ends, upLog, box.bottom, box.top, 6);
    let over;
    if (names) {
      const order = new Map(names.values.map((value, place) => [value, place]));
      over = named({ values: names.values.map((value) => axis.values[value]) }, box.left, box.right);
      const place = over.place;
      over.place = (value) => place(order.get(value));
      over.ticks = over.ticks.map(([index, text]) => [names.values[index], text]);
    } else {
      const values = seen.map(across);
      const log = Math.min(...values) > 0 && Math.max(...values) > 8 * Math.min(...values);
      over = scaled(values, log, box.left, box.right, width / 90);
    }

    for (const [value, text] of up.ticks) {
      node("line", { x1: box.left, x2: box.right, y1: up.place(value), y2: up.place(value), class: "grid" }, svg);
      node("text", { x: box.left - 6, y: up.place(value) + 4, "text-anchor": "end" }, svg, text);
    }
    for (const [value, text] of over.ticks) {
      const [left, top] = [over.place(value), box.bottom + 16];
      const turned = tilted ? { transform: `rotate(-40 ${left} ${top})`, "text-anchor": "end" } : { "text-anchor": "middle" };
      node("line", { x1: left, x2: left, y1: box.bottom, y2: box.bottom + 4, class: "tick" }, svg);
      node("text", { x: left, y: top, ...turned }, svg, text);
    }
    node("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "tick" }, svg);
    node("text", { x: 4, y: 14, class: "title" }, svg, measure.title);
    node("text", { x: box.right, y: height - 4, class: "title", "text-anchor": "end" }, svg, axis.title);
    curves(svg, view, seen, { x, y, across, up, over, top: box.top, joined: Boolean(axis.numbers) });
  };

  const label = (view, cell) => view.axes.map((axis, place) => (place ? `${axis.title} ` : "") + axis.values[cell.at[place]]).join(", ");

  const curves = (svg, view, seen, look) => {
    const { x, y, across, up, over } = look;
    const series = new Map();
    for (const cell of seen) {
      const key = cell.at.filter((_, place) => place !== x).join();
      series.set(key, [...(series.get(key) || []), cell]);
    }
    for (const mine of series.values()) {
      mine.sort((a, b) => across(a) - across(b));
      const points = mine.map((cell) => `${over.place(across(cell)).toFixed(1)},${up.place(cell.values[y][0]).toFixed(1)}`);
      const colour = (cell) => `var(--c${view.colours[cell.at[0]].slice(1)}, ${view.colours[cell.at[0]]})`;
      if (look.joined && mine.length > 1) {
        node("polyline", { points: points.join(" "), class: "curve", stroke: colour(mine[0]), "stroke-dasharray": view.dashes[mine[0].at[0]] }, svg);
      }
      for (const cell of mine) {
        const [middle, low, high] = cell.values[y];
        const left = over.place(across(cell));
        const end = high === null ? look.top : up.place(high);
        if (end < up.place(low)) node("line", { x1: left, x2: left, y1: up.place(low), y2: end, stroke: colour(cell) }, svg);
        mark(svg, cell.at[0], left, up.place(middle), colour(cell));
        const range = ` (${short(low)} to ${high === null ? "never, in some repetitions" : short(high)})`;
        const spread = end < up.place(low) ? range : "";
        const text = `${label(view, cell)}: ${view.measures[y].title} ${short(middle)}${spread}`;
        node("circle", { cx: left, cy: up.place(middle), r: 8, class: "hit", role: "img", "aria-label": text }, svg);
      }
    }
  };
  return { draw, mark };
})();
