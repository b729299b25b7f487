// Attention maps on prompts: two runs side by side, one layer and head of each.
"use strict";
(() => {
  const {attention} = globalThis.REPORT ?? {};
  const container = document.getElementById("maps");
  if (!container || !attention) return;
  const by = (id) => document.getElementById(id);
  const {prompts, lambdas} = attention;
  const written = (value) => value.toFixed(3).replace("-", "−");  // as in tables
  const options = (select, pairs, wanted) => {
    select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, String(value) === String(wanted))));
  };
  const readable = (token) => token.replaceAll("\n", "⏎").trim() || "␣";

  options(by("prompt"), Object.keys(prompts).map((prompt) => [prompt, prompt]));
  const sides = [0, 1].map((side) => {
    const run = Object.assign(document.createElement("select"), {ariaLabel: side ? "Run on the right" : "Run on the left"});
    const head = Object.assign(document.createElement("select"), {ariaLabel: "Head"});
    const figure = document.createElement("figure");
    const tools = Object.assign(document.createElement("div"), {className: "tools"});
    tools.append(run, head);
    const map = Object.assign(document.createElement("div"), {className: "wide", tabIndex: 0, role: "region", ariaLabel: `Map on the ${side ? "right" : "left"}`});
    const words = document.createElement("figcaption");
    figure.append(tools, map, words);
    container.append(figure);
    return {side, run, head, map, words};
  });

  const heat = ({run, head, map, words}) => {
    const map_ = prompts[by("prompt").value][run.value];
    const layer = Math.min(Number(by("layer").value), map_.heads.length - 1);
    const [size, bytes] = map_.heads[layer][Number(head.value)];
    const values = Int8Array.from(atob(bytes), (character) => character.charCodeAt(0));
    const sign = by("sign").value, number = map_.tokens.length;
    const weights = [];
    for (let query = 0; query < number; query += 1) {
      for (let key = 0; key <= query; key += 1) weights.push({query, key, weight: values[query * number + key] / 127 * size});
    }
    const [added, subtracted] = [1, -1].map((wanted) => weights.filter(({weight}) => Math.sign(weight) === wanted));
    const total = (cells) => Math.abs(cells.reduce((sum, {weight}) => sum + weight, 0));
    const fraction = subtracted.length ? total(subtracted) / (total(added) + total(subtracted)) : 0;
    const caption = `${map_.label}, layer ${layer + 1}, head ${Number(head.value) + 1}: largest weight ${size}, ${(100 * fraction).toFixed(0)}% of all weight is subtracted`;
    const signs = [["added", "var(--c3)", "1", added], ["subtracted", "var(--c1)", "-1", subtracted]].filter(([, , wanted]) => ["both", wanted].includes(sign));
    const position = {x: "key", y: "query"};
    const tokens = {domain: [...Array(number).keys()], tickFormat: (index) => readable(map_.tokens[index]), tickSize: 0, label: null, padding: 0.06};
    // Long prompts have small cells and labels; the tooltip keeps its font size.
    const cell = Math.max(5, Math.min(16, Math.floor(600 / number))), font = Math.min(10.5, cell), room = 8 * font;
    const svg = Plot.plot({
      className: "heat", style: {fontSize: `${font}px`}, width: cell * number + room + 14, height: cell * number + room + 4,
      marginLeft: room + 10, marginTop: room, marginRight: 4, marginBottom: 4,
      x: {...tokens, axis: "top", tickRotate: -60}, y: tokens, opacity: {type: "identity"},
      marks: [
        ...signs.map(([ariaDescription, fill, , cells]) => Plot.cell(cells, {...position, ariaDescription, fill, fillOpacity: ({weight}) => Math.abs(weight) / size})),
        Plot.tip(signs.flatMap(([, , , cells]) => cells), Plot.pointer({...position, fontSize: 12, title: ({query, key, weight}) => `${readable(map_.tokens[query])} → ${readable(map_.tokens[key])}: ${written(weight)}`})),
      ],
    });
    svg.style.setProperty("--drawn", `${svg.getAttribute("width")}px`);
    svg.setAttribute("aria-hidden", "true");  // its parts have labels that confuse screen readers
    const image = Object.assign(document.createElement("div"), {role: "img", ariaLabel: caption});
    image.append(svg);
    words.textContent = `${caption}.`;
    map.replaceChildren(image);
  };

  const heads = (side) => {
    const map_ = prompts[by("prompt").value][side.run.value];
    options(side.head, map_.heads[0].map((_, head) => [head, `head ${head + 1}`]), side.head.value || 0);
    heat(side);
  };
  const runs = () => {
    const labeled = Object.entries(prompts[by("prompt").value]).map(([run, map_]) => [run, map_.label]);
    const layers = Math.max(...Object.values(prompts[by("prompt").value]).map((map_) => map_.heads.length));
    options(by("layer"), [...Array(layers).keys()].map((layer) => [layer, layer + 1]), by("layer").value || layers - 1);
    const subtracts = labeled.find(([run]) => run in lambdas) ?? labeled[Math.min(1, labeled.length - 1)];
    for (const side of sides) {
      options(side.run, labeled, side.run.value || (side.side ? labeled[0] : subtracts)[0]);
      heads(side);
    }
  };
  by("prompt").addEventListener("change", runs);
  for (const id of ["layer", "sign"]) by(id).addEventListener("change", () => sides.forEach(heat));
  for (const side of sides) {
    side.run.addEventListener("change", () => heads(side));
    side.head.addEventListener("change", () => heat(side));
  }
  runs();

  const deepest = Math.max(0, ...Object.values(lambdas).map((layers) => layers.length));
  const labels = Object.assign({}, ...Object.values(prompts).map((byRun) => Object.fromEntries(Object.entries(byRun).map(([run, {label}]) => [run, label]))));
  const cells = (tag, texts) => texts.map((text) => Object.assign(document.createElement(tag), {textContent: text}));
  const line = (children) => { const row = document.createElement("tr"); row.append(...children); return row; };
  by("lambdas").tHead.append(line(cells("th", ["Run", ...[...Array(deepest).keys()].map((layer) => `layer ${layer + 1}`)])));
  by("lambdas").tBodies[0].append(...Object.entries(lambdas).map(([run, layers]) => line([...cells("th", [labels[run]]), ...cells("td", layers.map((value) => (value == null ? "" : written(value))))])));
  for (const head of by("lambdas").tHead.rows[0].cells) head.scope = "col";
})();
