// The tables and figures of the results folder.

import { $, ask, attempt, element } from "./common.js";

export function start() {}

export async function show() {
  const answer = await attempt(() => ask("/api/results"));
  if (!answer) return;
  const cards = answer.results.map((result) => {
    const card = element("article", { className: "card" }, element("h2", { textContent: result.title }));
    if (result.problem) card.append(element("p", { textContent: result.problem }));
    if (result.columns) card.append(element("div", { className: "scroll" }, table(result)));
    if (result.note) card.append(element("p", { className: "small faint", textContent: result.note }));
    for (const figure of result.figures) {
      const address = `/results/${encodeURIComponent(result.name)}/${encodeURIComponent(figure)}`;
      card.append(element("img", { src: address, alt: `Figure ${figure} of ${result.title}`, loading: "lazy" }));
    }
    return card;
  });
  $("#results").replaceChildren(...(cards.length ? cards : [element("p", { className: "card" },
    "There are no results here yet: start mann serve beside a folder named results, or give its path with ",
    element("code", { textContent: "--results" }), ".")]));
}

function table(result) {
  const numeric = result.columns.map((_, i) => result.rows.every((row) => !row[i] || /^[-–+±\d.,\s%()]+$/.test(row[i])));
  const cell = (name) => (text, i) => element(name, { textContent: text, className: numeric[i] ? "number" : "" });
  return element("table", {},
    element("thead", {}, element("tr", {}, ...result.columns.map(cell("th")))),
    element("tbody", {}, ...result.rows.map((row) => element("tr", {}, ...row.map(cell("td"))))));
}
