// Tables: a heading sorts its column, a box hides what is published.
"use strict";
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    const given = cell?.dataset.value;
    return given === undefined ? null : Number(given);
  };
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const compare = (one, two, column) => {
    const [a, b] = [value(one, column), value(two, column)];
    if (a === null && b === null) return text(one, column).localeCompare(text(two, column));
    return a === null ? NaN : b === null ? NaN : a - b;
  };
  const sort = (heading) => {
    const table = heading.closest("table");
    const column = heading.cellIndex;
    const next = {undefined: "ascending", ascending: "descending", descending: undefined}[heading.ariaSort ?? undefined];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    if (next) heading.setAttribute("aria-sort", next);
    for (const body of table.tBodies) arrange(body, column, next);
  };
  const arrange = (body, column, next) => {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    const sign = next === "descending" ? -1 : 1;
    rows.sort((one, two) => {
      if (!next) return one.dataset.place - two.dataset.place;
      const found = compare(one, two, column);
      // What has no number stands below, whichever way the others go.
      if (Number.isNaN(found)) return (value(one, column) === null) - (value(two, column) === null);
      return sign * found || one.dataset.place - two.dataset.place;
    });
    body.append(...rows);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".sort");
    if (button) sort(button.closest("th"));
  });
  for (const box of document.querySelectorAll(".published-toggle")) {
    box.addEventListener("change", () => box.closest("section").classList.toggle("hide-published", !box.checked));
  }
})();
