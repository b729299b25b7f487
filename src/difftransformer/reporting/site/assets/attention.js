// Maps on prompts: two runs side by side, a layer and a head of each.
"use strict";
(() => {
  const {attention} = globalThis.REPORT ?? {};
  const place = document.getElementById("maps");
  if (!place || !attention) return;
  const by = (id) => document.getElementById(id);
  const {prompts, lambdas} = attention;
  const SVG = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const options = (select, pairs, wanted) => {
    select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, String(value) === String(wanted))));
  };
  const shown = (token) => token.replaceAll("\n", "⏎").trim() || "␣";

  options(by("prompt"), Object.keys(prompts).map((one) => [one, one]));
  const sides = [0, 1].map((side) => {
    const run = Object.assign(document.createElement("select"), {ariaLabel: side ? "Run on the right" : "Run on the left"});
    const head = Object.assign(document.createElement("select"), {ariaLabel: "Head"});
    const figure = document.createElement("figure");
    const tools = Object.assign(document.createElement("div"), {className: "tools"});
    tools.append(run, head);
    const map = Object.assign(document.createElement("div"), {className: "wide", tabIndex: 0, role: "region", ariaLabel: `Map on the ${side ? "right" : "left"}`});
    const words = document.createElement("figcaption");
    figure.append(tools, map, words);
    place.append(figure);
    return {side, run, head, map, words};
  });

  const heat = ({run, head, map, words}) => {
    const found = prompts[by("prompt").value][run.value];
    const layer = Math.min(Number(by("layer").value), found.heads.length - 1);
    const [size, bytes] = found.heads[layer][Number(head.value)];
    const values = Int8Array.from(atob(bytes), (one) => one.charCodeAt(0));
    const number = found.tokens.length, cell = 16, left = 96, top = 84;
    const side = left + number * cell, height = top + number * cell;
    const svg = draw("svg", {viewBox: `0 0 ${side} ${height}`, class: "heat", role: "img"});
    const sign = by("sign").value;
    let added = 0, taken = 0;
    found.tokens.forEach((token, at) => {
      svg.append(draw("text", {x: left - 6, y: top + at * cell + 12, "text-anchor": "end"}, shown(token)));
      svg.append(draw("text", {transform: `translate(${left + at * cell + 11} ${top - 6}) rotate(-60)`}, shown(token)));
    });
    for (let query = 0; query < number; query += 1) {
      for (let key = 0; key <= query; key += 1) {
        const value = values[query * number + key] / 127 * size;
        if (value > 0) added += value; else taken -= value;
        if (!value || (sign !== "both" && Math.sign(value) !== Number(sign))) continue;
        const rect = draw("rect", {x: left + key * cell, y: top + query * cell, width: cell - 1, height: cell - 1,
          class: value > 0 ? "added" : "taken", "fill-opacity": Math.min(1, Math.abs(value) / size).toFixed(3)});
        rect.append(draw("title", {}, `${shown(found.tokens[query])} → ${shown(found.tokens[key])}: ${value.toFixed(3)}`));
        svg.append(rect);
      }
    }
    const share = added + taken ? taken / (added + taken) : 0;
    const said = `${found.label}, layer ${layer + 1}, head ${Number(head.value) + 1}: largest weight ${size}, ${(100 * share).toFixed(0)}% of all weight is subtracted`;
    svg.setAttribute("aria-label", said);
    words.textContent = `${said}.`;
    map.replaceChildren(svg);
  };

  const heads = (side) => {
    const found = prompts[by("prompt").value][side.run.value];
    options(side.head, found.heads[0].map((_, head) => [head, `head ${head + 1}`]), side.head.value || 0);
    heat(side);
  };
  const runs = () => {
    const known = Object.entries(prompts[by("prompt").value]).map(([run, one]) => [run, one.label]);
    const layers = Math.max(...Object.values(prompts[by("prompt").value]).map((one) => one.heads.length));
    options(by("layer"), [...Array(layers).keys()].map((layer) => [layer, layer + 1]), by("layer").value || layers - 1);
    const subtracts = known.find(([run]) => run in lambdas) ?? known[Math.min(1, known.length - 1)];
    for (const side of sides) {
      options(side.run, known, side.run.value || (side.side ? known[0] : subtracts)[0]);
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

  const deepest = Math.max(0, ...Object.values(lambdas).map((one) => one.length));
  const labels = Object.assign({}, ...Object.values(prompts).map((one) => Object.fromEntries(Object.entries(one).map(([run, {label}]) => [run, label]))));
  const cells = (tag, texts) => texts.map((text) => Object.assign(document.createElement(tag), {textContent: text}));
  const line = (children) => { const row = document.createElement("tr"); row.append(...children); return row; };
  by("lambdas").tHead.append(line(cells("th", ["Run", ...[...Array(deepest).keys()].map((layer) => `layer ${layer + 1}`)])));
  by("lambdas").tBodies[0].append(...Object.entries(lambdas).map(([run, found]) => line([...cells("th", [labels[run]]), ...cells("td", found.map((one) => one?.toFixed(3) ?? ""))])));
  for (const head of by("lambdas").tHead.rows[0].cells) head.scope = "col";
})();
