"use strict";
// The filters: they narrow the table, the chart follows it, and the address holds them, so that a view can be shared.
(() => {
  const $ = (id) => document.getElementById(id);
  const form = $("filters");
  if (!form) return;
  const MARK = "#view?";
  const rows = Array.from($("table").tBodies[0].rows);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const view = JSON.parse($("view").textContent);
  const cells = view ? view.cells.map(([at, values]) => ({ at, values })) : [];
  const kept = Array.from(document.querySelectorAll("[data-keep]"));
  const boxes = Array.from(form.querySelectorAll("input[type=checkbox]"));
  const fits = (place, words, status, off) =>
    words.every((word) => texts[place].includes(word)) &&
    (!status || rows[place].dataset.status === status) &&
    !(view && view.cells[place][0] && view.cells[place][0].some((value, axis) => off.has(`${axis}.${value}`)));

  const first = view ? { x: String(Math.max(0, view.axes.findIndex((axis) => axis.numbers))), y: "0" } : {};
  const off = () => boxes.filter((box) => !box.checked);
  const show = () => {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const without = new Set(off().map((box) => box.value));
    const shown = rows.map((_, place) => fits(place, words, $("status").value, without));
    rows.forEach((row, place) => { row.hidden = !shown[place]; });
    $("shown").textContent = `${shown.filter(Boolean).length} of ${rows.length} cells`;
    if (view) chart.draw($("chart"), view, cells.filter((_, place) => shown[place]), Number($("x").value), Number($("y").value));
  };

  const address = () => {
    const said = new URLSearchParams();
    if ($("filter").value) said.set("words", $("filter").value);
    if ($("status").value) said.set("status", $("status").value);
    if (view && $("x").value !== first.x) said.set("across", view.axes[$("x").value].name);
    if (view && $("y").value !== first.y) said.set("up", view.measures[$("y").value].name);
    for (const box of off()) {
      const [axis, value] = box.value.split(".").map(Number);
      said.append(`not.${view.axes[axis].name}`, view.axes[axis].values[value]);
    }
    for (const input of kept) if (input.value !== input.defaultValue) said.set(input.dataset.keep, input.value);
    return String(said);
  };
  const remember = () => {
    const said = address();
    history.replaceState(null, "", said ? MARK + said : location.pathname + location.search);
  };

  // What the address does not name is as at first; what it names and this page does not have is passed over.
  const recall = () => {
    const said = new URLSearchParams(location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : "");
    const index = (list, name, otherwise) => {
      const place = list.findIndex((one) => one.name === name);
      return place < 0 ? otherwise : String(place);
    };
    $("filter").value = said.get("words") || "";
    $("status").value = said.get("status") || "";
    if ($("status").selectedIndex < 0) $("status").value = "";
    if (view) {
      $("x").value = index(view.axes, said.get("across"), first.x);
      $("y").value = index(view.measures, said.get("up"), first.y);
      for (const box of boxes) {
        const [axis, value] = box.value.split(".").map(Number);
        box.checked = !said.getAll(`not.${view.axes[axis].name}`).includes(view.axes[axis].values[value]);
      }
    }
    for (const input of kept) {
      input.value = said.get(input.dataset.keep) ?? input.defaultValue;
      input.dispatchEvent(new Event("recall"));
    }
    show();
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  for (const change of ["input", "change"]) form.addEventListener(change, () => { show(); remember(); });
  for (const input of kept) input.addEventListener("input", remember);
  form.addEventListener("click", (event) => {
    const turned = event.target.closest("[data-turn]");
    if (!turned) return;
    const mine = boxes.filter((box) => turned.closest("fieldset").contains(box));
    const on = mine.some((box) => !box.checked);
    mine.forEach((box) => { box.checked = on; });
    show();
    remember();
  });
  $("everything").addEventListener("click", () => {
    history.replaceState(null, "", location.pathname + location.search);
    recall();
  });
  $("link").addEventListener("click", () => {
    const said = address();
    copied($("linked"), location.href.replace(/#.*/, "") + (said ? MARK + said : ""));
  });
  document.querySelectorAll(".axis .line").forEach((line, place) => chart.mark(line, place, 13, 4, line.querySelector("path").getAttribute("stroke")));
  addEventListener("hashchange", () => { if (location.hash.startsWith(MARK)) recall(); });
  let width = 0;
  if (view) new ResizeObserver(() => { if ($("chart").clientWidth !== width) { width = $("chart").clientWidth; show(); } }).observe($("chart"));
  recall();
})();
