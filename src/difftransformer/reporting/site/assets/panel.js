// What a cell opens: its seeds and jobs, what its run differs in, and the command that makes it again.
"use strict";
(() => {
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const report = globalThis.REPORT ?? {};
  let opener = null;

  const element = (tag, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children.filter((one) => one !== null));
    return made;
  };
  const facts = (pairs) => element("dl", {className: "facts"}, ...pairs.flatMap(([name, what]) =>
    [element("dt", {}, name), element("dd", {}, what)]));
  const written = (value) => value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);

  // `make ui` marks the pages that it serves; from disk there is only the id.
  const tracked = (id) => document.documentElement.dataset.mlflow === undefined
    ? element("code", {}, id)
    : element("a", {href: `${document.documentElement.dataset.mlflow}${encodeURIComponent(id)}`, target: "mlflow", textContent: "open in MLflow"});

  const job = (id, open) => {
    const found = report.jobs.jobs[id];
    if (!found) return element("p", {className: "soft"}, element("code", {}, id), " is not among the results any more.");
    const [kind, run, suite, seed, fingerprint, commit, machine, seconds, threads, file] = found;
    return element("details", {className: "job", open},
      element("summary", {}, `${kind} of ${run}${suite ? `, ${suite}` : ""}, seed ${seed}`),
      facts([["Job", element("code", {}, id)], ["MLflow run", tracked(id)], ["Commit", element("code", {}, report.jobs.commits[commit])],
        ["Fingerprint", element("code", {}, fingerprint)], ["Took", `${seconds} s on ${threads} thread${threads === 1 ? "" : "s"}`],
        ["Machine", report.jobs.machines[machine]], ["File", element("code", {}, file)]]));
  };

  const differing = (run, rows) => {
    const runs = report.settings.runs;
    const others = Object.keys(rows).filter((one) => one !== run && runs[one]);
    if (!runs[run] || !others.length) return null;
    const keys = [...new Set([run, ...others].flatMap((one) => Object.keys(runs[one])))].sort();
    const differs = keys.filter((key) => others.some((one) => written(runs[one][key]) !== written(runs[run][key])));
    if (!differs.length) return element("p", {className: "soft"}, "None: its neighbors are trained alike.");
    const lines = differs.map((key) => {
      const rest = [...new Set(others.map((one) => written(runs[one][key])))];
      return element("tr", {}, element("th", {scope: "row"}, key), element("td", {}, written(runs[run][key])),
        element("td", {className: "soft"}, rest.slice(0, 4).join(" · ") + (rest.length > 4 ? " …" : "")));
    });
    const heads = ["Setting", "Here", "Neighbors"].map((one) => element("th", {scope: "col"}, one));
    return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines));
  };

  const copied = (text) => {
    const button = element("button", {type: "button", className: "quiet copy", textContent: "copy"});
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
      catch { getSelection().selectAllChildren(button.previousSibling); }
    });
    return element("div", {}, element("pre", {}, element("code", {}, text)), button);
  };

  const show = (button) => {
    const artifact = button.closest("section").dataset.artifact;
    const section = report[`table:${artifact}`][button.closest("table").dataset.section];
    const key = button.dataset.cell;
    const cell = section.cells[key];
    const run = key.slice(0, key.indexOf("/"));
    const ids = [...new Set(cell.seeds.flatMap(([, , jobs]) => jobs))];
    document.getElementById("panel-title").textContent = `${section.rows[run] ?? run}: ${cell.header}`;
    const seeds = cell.seeds.filter(([, text]) => text).map(([seed, text]) =>
      element("tr", {}, element("th", {scope: "row"}, `${cell.each} ${seed}`), element("td", {}, text)));
    const files = ids.map((id) => report.jobs.jobs[id]?.at(-1)).filter(Boolean);
    const differences = differing(run, section.rows);
    const heading = (text) => element("h3", {}, text);
    body.replaceChildren(...[
      element("p", {className: "big"}, cell.text),
      cell.interval && element("p", {className: "soft"}, `95% interval ${cell.interval[0]} to ${cell.interval[1]}`),
      cell.published && element("p", {className: "soft"}, `published: ${cell.published}`),
      seeds.length ? heading("Seeds") : null,
      seeds.length ? element("table", {}, element("tbody", {}, ...seeds)) : null,
      differences && heading("Settings that differ from its neighbors"), differences,
      heading(ids.length === 1 ? "Job" : "Jobs"), ...ids.map((id) => job(id, ids.length === 1)),
      files.length ? heading("Exactly this again") : null,
      files.length ? copied(`snakemake ${files.join(" ")} --force ${report.site.config_option}`) : null,
    ].filter(Boolean));
    close();
    // The page makes room for the panel; its table scrolls and keeps the width of its columns.
    const table = button.closest("table");
    table.style.minWidth = `${table.offsetWidth}px`;
    opener = button;
    opener.setAttribute("aria-expanded", "true");
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.focus({preventScroll: true});
    button.scrollIntoView({block: "nearest", inline: "nearest"});
  };
  const close = () => {
    panel.hidden = true;
    opener?.removeAttribute("aria-expanded");
    opener?.closest("table").style.removeProperty("min-width");
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.cell");
    if (button) show(button);
  });
  panel.querySelector(".close").addEventListener("click", () => { close(); opener?.focus(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) { close(); opener?.focus(); }
  });
})();
