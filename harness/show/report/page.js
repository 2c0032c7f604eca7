"use strict";
// Copy a text, and say so in `said`. Return whether it was possible.
const copied = async (said, text) => {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
    return true;
  } catch {
    said.textContent = "This browser does not copy from here.";
    return false;
  }
};

(() => {
  const $ = (id) => document.getElementById(id);
  const table = $("table");
  if (table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const heads = Array.from(table.querySelectorAll("thead th[aria-sort]"));

    const key = (row, column) => {
      const cell = row.cells[column];
      return "v" in cell.dataset ? Number(cell.dataset.v.replace("inf", "Infinity")) : cell.textContent;
    };
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b || 0 : String(a).localeCompare(String(b), "en", { numeric: true }));

    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keyed = rows.map((row, place) => [key(row, column), place, row]);
        keyed.sort((a, b) => {
          // Missing values stay last in both directions.
          const gone = (a[0] === Infinity) - (b[0] === Infinity);
          return gone || (down ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1];
        });
        body.append(...keyed.map((item) => item[2]));
      });
    });
  }

  const tip = $("tip");
  document.addEventListener("pointerover", (event) => {
    const hit = event.target.closest && event.target.closest(".hit");
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = hit.getAttribute("aria-label");
    const box = hit.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.left + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, box.top - tip.offsetHeight - 6)}px`;
  });

  if ($("copy")) {
    $("copy").addEventListener("click", async () => {
      if (!(await copied($("copied"), $("text").textContent))) getSelection().selectAllChildren($("text"));
    });
  }

  $("save").addEventListener("click", () => {
    const data = JSON.parse($("results").textContent);
    const objects = data.rows.map((row) => Object.fromEntries(data.columns.map((name, place) => [name, row[place]])));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(objects, null, 1)], { type: "application/json" }));
    link.download = "results.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
