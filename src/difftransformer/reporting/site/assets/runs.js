// Runs: a table to select from, the curves of the selected runs, and the settings that differ.
"use strict";
(() => {
  const table = document.getElementById("run-table");
  const {runs, settings} = globalThis.REPORT ?? {};
  if (!table || !runs) return;
  const by = (id) => document.getElementById(id);
  const selected = new Set();
  const element = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };
  const short = (value) => value == null ? "" : Math.abs(value) >= 1e6 ? `${(value / 1e6).toPrecision(3)}M`
    : Math.abs(value) >= 1e4 ? `${(value / 1e3).toPrecision(3)}K` : String(Number(value.toPrecision(4)));
  const time = (seconds) => seconds < 60 ? `${seconds}\u00a0s` : seconds < 3600 ? `${(seconds / 60).toFixed(1)}\u00a0min` : `${(seconds / 3600).toFixed(1)}\u00a0h`;

  const memory = (gib) => gib < 1 ? `${Math.round(gib * 1024)}\u00a0MiB` : `${gib.toPrecision(3)}\u00a0GiB`;

  // A run has the color of its table row, else a free one. Selected runs of one color differ in dashes.
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [3, 9], [16, 3, 2, 3, 2, 3]];
  for (let number = 0; number < 7; number += 1) document.body.append(element("span", {id: `c${number}`, className: `c${number}`, hidden: true}));
  const lineStyles = () => {
    const styles = {}, owners = Array(7).fill(0);
    let free = 0;
    for (const run of selected) {
      const number = (runs[run].color ?? ++free) % 7;
      styles[run] = {tone: getComputedStyle(by(`c${number}`)).backgroundColor, dash: dashes[owners[number]++ % dashes.length]};
    }
    return styles;
  };
  // The same dashes in the legend, as a striped background.
  const swatch = (tone, dash) => {
    let end = 0;
    const stops = (dash.length ? dash : [1]).map((length, place) => `${place % 2 ? "transparent" : tone} ${end}px ${end += length}px`);
    return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
  };

  const readable = (name) => name.replaceAll("_", " ");
  const capitalized = (name) => readable(name[0].toUpperCase() + name.slice(1));
  const namesOf = (part) => [...new Set(Object.values(runs).flatMap((run) => Object.keys(run[part])))];

  // --- the table ---
  const finalMetrics = namesOf("final");
  const columns = [["Base", (run) => run.base ?? ""], ["Seeds", (run) => run.seeds.length], ["Params", (run) => run.facts.parameters],
    ["Tokens", (run) => run.facts.tokens], ...finalMetrics.map((name) => [capitalized(name), (run) => run.final[name]]),
    ["Time", (run) => run.seconds, time], ["Tokens/s", (run) => run.speed], ["Memory", (run) => run.memory, memory]]
    .filter(([, get]) => Object.values(runs).some((run) => get(run) != null && get(run) !== ""));
  for (const [name] of columns) {
    table.tHead.rows[0].append(element("th", {scope: "col", className: name === "Base" ? "words" : ""}, element("button", {type: "button", className: "sort"}, name)));
  }
  for (const [name, run] of Object.entries(runs)) {
    const box = element("input", {type: "checkbox", value: name});
    const dot = element("span", {className: `dot c${run.color === null ? "" : run.color % 7}`, ariaHidden: "true"});
    const head = element("th", {scope: "row"}, element("label", {}, box, element("span", {}, dot, run.label, element("span", {className: "soft small"}, run.label === name ? "" : ` ${name}`))));
    const row = element("tr", {}, head, ...columns.map(([, get, write]) => {
      const value = get(run);
      const cell = element("td", {}, typeof value === "number" ? (write ?? short)(value) : value ?? "");
      if (typeof value === "number") cell.dataset.value = value;
      else cell.className = "words";
      return cell;
    }));
    row.dataset.find = `${name} ${run.label}`.toLowerCase();
    table.tBodies[0].append(row);
    box.addEventListener("change", () => { selected[box.checked ? "add" : "delete"](name); draw(); });
  }
  by("find-run").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) row.hidden = !words.every((word) => row.dataset.find.includes(word));
  });

  // --- the curves ---
  const names = namesOf("curves");  // final metrics of the table first
  for (const name of new Set([...finalMetrics.filter((name) => names.includes(name)), ...names])) by("curve").append(element("option", {value: name}, readable(name)));
  let plot = null;
  const curves = () => {
    plot?.destroy();
    plot = null;
    const name = by("curve").value;
    const chart = by("chart");
    const drawn = [...selected].filter((run) => runs[run].curves[name]);
    if (!drawn.length) {
      chart.replaceChildren(element("p", {className: "empty"}, selected.size ? "No selected run has this curve." : "Select runs in the table below."));
      return;
    }
    chart.replaceChildren();
    const style = getComputedStyle(document.documentElement);
    const ink = getComputedStyle(document.body).color;
    const line = getComputedStyle(table.tBodies[0].rows[0].cells[0]).borderBottomColor;
    const styles = lineStyles(), sets = [], series = [{label: "tokens", stroke: "transparent", dash: [], value: (_, v) => v == null ? "" : short(v)}], bands = [];
    for (const run of drawn) {
      const curve = runs[run].curves[name], {tone, dash} = styles[run], label = runs[run].label;
      const add = (options) => series.push({stroke: tone, dash, width: 1.8, spanGaps: true, points: {show: curve.x.length < 12}, value: (_, v) => v == null ? "" : String(v), ...options});
      if (curve.seeds) {
        sets.push([curve.x, ...curve.seeds]);
        curve.seeds.forEach((_, seed) => add({label: `${label}, seed ${runs[run].seeds[seed]}`, width: 1}));
        continue;
      }
      sets.push([curve.x, curve.mean, ...(curve.low ? [curve.high, curve.low] : [])]);
      add({label});
      if (!curve.low) continue;
      const clear = {label: "", width: 0, stroke: "transparent", points: {show: false}};
      add({...clear, class: "range"});
      add({...clear, class: "range"});
      bands.push({series: [series.length - 2, series.length - 1], fill: tone.replace("rgb(", "rgba(").replace(")", ", 0.16)")});
    }
    const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, font: `13px ${style.getPropertyValue("--sans")}`};
    plot = new uPlot({
      width: chart.clientWidth, height: 360, series, bands, legend: {markers: {width: 0, fill: (self, index) => swatch(series[index].stroke, series[index].dash)}},
      scales: {x: {time: false}, y: {distr: by("logarithm").checked ? 3 : 1}},
      axes: [{...axis, label: "training tokens", values: (_, ticks) => ticks.map(short)}, {...axis, size: 64}],
    }, uPlot.join(sets, sets.map((set) => set.slice(1).map(() => 1))), chart);
    for (const row of chart.querySelectorAll(".u-legend .range")) row.remove();
    chart.setAttribute("aria-label", `${readable(name)} over training tokens of ${drawn.map((run) => runs[run].label).join(", ")}`);
  };

  // --- the settings ---
  const written = (value) => value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
  const compareSettings = () => {
    const compared = [...selected];
    if (compared.length === 1 && runs[runs[compared[0]].base]) compared.unshift(runs[compared[0]].base);
    const of = (run) => settings.runs[run] ?? {};
    const keys = [...new Set(compared.flatMap((run) => Object.keys(of(run))))].sort()
      .filter((key) => compared.some((run) => written(of(run)[key]) !== written(of(compared[0])[key])));
    const head = by("settings").tHead, body = by("settings").tBodies[0];
    if (compared.length < 2 || !keys.length) {
      head.replaceChildren();
      body.replaceChildren(element("tr", {}, element("td", {className: "soft"}, compared.length < 2 ? "Select two runs, or one with a base run." : "All settings are the same.")));
      return;
    }
    head.replaceChildren(element("tr", {}, element("th", {scope: "col"}, "Setting"), ...compared.map((run) => element("th", {scope: "col"}, runs[run].label))));
    body.replaceChildren(...keys.map((key) => element("tr", {}, element("th", {scope: "row"}, key), ...compared.map((run) => {
      const differs = written(of(run)[key]) !== written(of(compared[0])[key]);
      return element("td", {className: differs ? "changed" : ""}, written(of(run)[key]));
    }))));
  };
  by("shared").append(...Object.entries(settings.shared).flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, written(value))]));

  const draw = () => { curves(); compareSettings(); };
  by("curve").addEventListener("change", curves);
  by("logarithm").addEventListener("change", curves);
  document.addEventListener("colors", curves);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", curves);
  new ResizeObserver(() => plot?.setSize({width: by("chart").clientWidth, height: 360})).observe(by("chart"));
  by("no-runs").addEventListener("click", () => {
    selected.clear();
    for (const box of table.querySelectorAll("input:checked")) box.checked = false;
    draw();
  });
  for (const box of [...table.querySelectorAll("input")].slice(0, 2)) { box.checked = true; selected.add(box.value); }
  draw();
})();
