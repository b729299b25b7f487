// Tables: a heading sorts its column, a checkbox hides published values.
"use strict";
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    const number = cell?.dataset.value;
    return number === undefined ? null : Number(number);
  };
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const compare = (first, second, column) => {
    const [a, b] = [value(first, column), value(second, column)];
    if (a === null && b === null) return text(first, column).localeCompare(text(second, column));
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
    rows.forEach((row, index) => { row.dataset.index ??= index; });
    const sign = next === "descending" ? -1 : 1;
    rows.sort((first, second) => {
      if (!next) return first.dataset.index - second.dataset.index;
      const order = compare(first, second, column);
      // Rows without a number come last in both directions.
      if (Number.isNaN(order)) return (value(first, column) === null) - (value(second, column) === null);
      return sign * order || first.dataset.index - second.dataset.index;
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
