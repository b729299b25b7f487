// Panel of a cell: its seeds and jobs, the settings that differ from other rows, and the command.
"use strict";
(() => {
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const report = globalThis.REPORT ?? {};
  let opener = null;

  const element = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children.filter((child) => child !== null));
    return node;
  };
  const facts = (pairs) => element("dl", {className: "facts"}, ...pairs.flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, value)]));
  const written = (value) => value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);

  // Pages served by `make ui` have the address of MLflow; pages from disk show the id only.
  const tracked = (id) => document.documentElement.dataset.mlflow === undefined
    ? element("code", {}, id)
    : element("a", {href: `${document.documentElement.dataset.mlflow}${encodeURIComponent(id)}`, target: "mlflow", textContent: "open in MLflow"});

  const job = (id, open) => {
    const details = report.jobs.jobs[id];
    if (!details) return element("p", {className: "soft"}, element("code", {}, id), " is no longer among the results.");
    const [kind, run, suite, seed, fingerprint, commit, machine, seconds, threads, file] = details;
    return element("details", {className: "job", open},
      element("summary", {}, `${kind} of ${run}${suite ? `, ${suite}` : ""}, seed ${seed}`),
      facts([["Job", element("code", {}, id)], ["MLflow run", tracked(id)], ["Commit", element("code", {}, report.jobs.commits[commit])],
        ["Fingerprint", element("code", {}, fingerprint)], ["Time", `${seconds} s on ${threads} thread${threads === 1 ? "" : "s"}`],
        ["Machine", report.jobs.machines[machine]], ["File", element("code", {}, file)]]));
  };

  const differing = (run, rows) => {
    const runs = report.settings.runs;
    const others = Object.keys(rows).filter((other) => other !== run && runs[other]);
    if (!runs[run] || !others.length) return null;
    const keys = [...new Set([run, ...others].flatMap((name) => Object.keys(runs[name])))].sort();
    const differs = keys.filter((key) => others.some((other) => written(runs[other][key]) !== written(runs[run][key])));
    if (!differs.length) return element("p", {className: "soft"}, "None: all rows have the same settings.");
    const lines = differs.map((key) => {
      const values = [...new Set(others.map((other) => written(runs[other][key])))];
      return element("tr", {}, element("th", {scope: "row"}, key), element("td", {}, written(runs[run][key])),
        element("td", {className: "soft"}, values.slice(0, 4).join(" · ") + (values.length > 4 ? " …" : "")));
    });
    const heads = ["Setting", "This row", "Other rows"].map((text) => element("th", {scope: "col"}, text));
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
      differences && heading("Settings that differ from other rows"), differences,
      heading(ids.length === 1 ? "Job" : "Jobs"), ...ids.map((id) => job(id, ids.length === 1)),
      files.length ? heading("Command to rebuild it") : null,
      files.length ? copied(`snakemake ${files.join(" ")} --force ${report.site.config_option}`) : null,
    ].filter(Boolean));
    close();
    // The page shrinks for the panel; the table keeps its width and scrolls.
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
