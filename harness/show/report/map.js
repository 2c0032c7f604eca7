"use strict";
// The map: a point to drag, or two sliders, and what is best at the nearest computed network.
(() => {
  const $ = (id) => document.getElementById(id);
  if (!$("map-data")) return;
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse($("map-data").textContent);
  const [rtt, rate, said] = [$("map-rtt"), $("map-rate"), $("map-said")];
  const svg = $("map").querySelector("svg");
  const point = document.createElementNS(SVG, "circle");
  point.setAttribute("r", "6");
  point.setAttribute("class", "point");
  svg.append(point);

  // The corners are the lowest and the highest point of the grid, in the drawing's coordinates.
  const [left, bottom, right, top] = data.corners;
  const [columns, rows] = [data.rtts.length, data.rates.length];
  const inside = (value, count) => Math.min(count - 1, Math.max(0, Math.round(value)));

  const show = () => {
    const [column, row] = [Number(rtt.value), Number(rate.value)];
    const place = row * columns + column;
    point.setAttribute("cx", left + ((right - left) * column) / (columns - 1));
    point.setAttribute("cy", bottom + ((top - bottom) * row) / (rows - 1));
    rtt.setAttribute("aria-valuetext", data.rtts[column]);
    rate.setAttribute("aria-valuetext", data.rates[row]);
    const more = data.unknown[place] ? "; a faster setting is not known to be accurate" : "";
    const gain = data.gains[place] > 1 ? `, ${data.gains[place]} times as fast as ssgd` : "";
    said.textContent = `${data.rtts[column]}, ${data.rates[row]}: ${data.names[data.best[place]]}${gain}${more}`;
  };

  const move = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    rtt.value = inside(((at.x - left) / (right - left)) * (columns - 1), columns);
    rate.value = inside(((at.y - bottom) / (top - bottom)) * (rows - 1), rows);
    rtt.dispatchEvent(new Event("input", { bubbles: true }));
  };
  let dragging = false;
  // Only the point takes a touch for itself, so that the page and the drawing scroll elsewhere.
  point.addEventListener("pointerdown", (event) => { dragging = true; point.setPointerCapture(event.pointerId); });
  point.addEventListener("pointermove", (event) => { if (dragging) move(event); });
  for (const end of ["pointerup", "pointercancel"]) point.addEventListener(end, () => { dragging = false; });
  for (const input of [rtt, rate]) for (const change of ["input", "recall"]) input.addEventListener(change, show);
  show();
})();
