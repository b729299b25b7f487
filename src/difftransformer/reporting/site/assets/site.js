// Header of every page: color scheme, menu, and the filters of a table.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const schemes = ["light dark", "light", "dark"];
  const names = {"light dark": "as the system", light: "light", dark: "dark"};
  const storedScheme = () => { try { return localStorage.getItem("colors"); } catch { return null; } };
  const show = (scheme) => {
    root.style.colorScheme = scheme;
    button.setAttribute("aria-label", `Colors: ${names[scheme]}`);
    button.title = `Colors: ${names[scheme]}`;
    try { localStorage.setItem("colors", scheme); } catch { /* pages from disk may have no storage */ }
    document.dispatchEvent(new Event("colors"));
  };
  if (names[storedScheme()]) show(storedScheme());
  button.addEventListener("click", () => {
    const current = root.style.colorScheme || schemes[0];
    show(schemes[(schemes.indexOf(current) + 1) % schemes.length]);
  });

  const menu = document.querySelector(".menu");
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
  });
  menu.addEventListener("click", (event) => { if (event.target.closest("a")) menu.open = false; });

  const board = document.querySelector("[data-word]");
  if (!board) return;
  const word = board.dataset.word;
  const chips = [...document.querySelectorAll("button.chip[data-verdict]")];
  const paper = document.getElementById("paper");
  const filter = () => {
    const wanted = chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.dataset.verdict);
    let visible = 0;
    for (const row of board.querySelectorAll("tr[data-verdict]")) {
      const matches = !wanted.length || wanted.includes(row.dataset.verdict);
      row.hidden = !(matches && (!paper.value || row.dataset.paper === paper.value));
      visible += !row.hidden;
    }
    document.getElementById("shown").textContent = `${visible} ${word}${visible === 1 ? "" : "s"}`;
  };
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = String(chip.ariaPressed !== "true");
      filter();
    });
  }
  paper.addEventListener("change", filter);
})();
