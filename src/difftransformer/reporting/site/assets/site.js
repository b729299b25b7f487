// Head of every page: the colors, the menu, and the board of claims.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const schemes = ["light dark", "light", "dark"];
  const names = {"light dark": "as the system", light: "light", dark: "dark"};
  const kept = () => { try { return localStorage.getItem("colors"); } catch { return null; } };
  const show = (scheme) => {
    root.style.colorScheme = scheme;
    button.setAttribute("aria-label", `Colors: ${names[scheme]}`);
    button.title = `Colors: ${names[scheme]}`;
    try { localStorage.setItem("colors", scheme); } catch { /* a page from disk may keep nothing */ }
    document.dispatchEvent(new Event("colors"));
  };
  if (names[kept()]) show(kept());
  button.addEventListener("click", () => {
    const now = root.style.colorScheme || schemes[0];
    show(schemes[(schemes.indexOf(now) + 1) % schemes.length]);
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
    const wanted = chips.filter((one) => one.ariaPressed === "true").map((one) => one.dataset.verdict);
    let shown = 0;
    for (const row of board.querySelectorAll("tr[data-verdict]")) {
      const fits = !wanted.length || wanted.includes(row.dataset.verdict);
      row.hidden = !(fits && (!paper.value || row.dataset.paper === paper.value));
      shown += !row.hidden;
    }
    document.getElementById("shown").textContent = `${shown} ${word}${shown === 1 ? "" : "s"}`;
  };
  for (const one of chips) {
    one.addEventListener("click", () => {
      one.ariaPressed = String(one.ariaPressed !== "true");
      filter();
    });
  }
  paper.addEventListener("change", filter);
})();
