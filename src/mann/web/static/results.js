// The tables and figures of the results folder.

import { $, ask, attempt, element } from "./common.js";

const NUMBER = /^[-–−+±\d.,\s%()]+(\[[^\]]*\])?$/; // maybe with a range

export function start() {}

export async function show() {
  const answer = await attempt(() => ask("/api/results"));
  if (!answer) return;
  $("#results-about").textContent = answer.shipped
    ? "The paper's tables and figures beside ours, as they ship with this package."
    : "The tables and figures in the results folder of this machine.";
  const cards = answer.results.map((result) => {
    const card = element("article", { className: "card" }, element("h2", { textContent: result.title }));
    if (result.problem) card.append(element("p", { textContent: result.problem }));
    for (const figure of result.figures) {
      const address = `/results/${encodeURIComponent(result.name)}/${encodeURIComponent(figure)}`;
      card.append(element("a", { href: address, target: "_blank", title: "In its full size" },
        element("img", { src: address, alt: `Figure ${figure} of ${result.title}`, loading: "lazy" })));
    }
    // A phone shows the figures, and a table when it is asked for.
    const open = !result.figures.length || !matchMedia("(max-width: 46rem)").matches;
    if (result.columns) card.append(element("details", { open }, element("summary", { textContent: "Table" }), table(result)));
    if (result.note) card.append(element("p", { className: "small faint" }, ...withCode(result.note)));
    return card;
  });
  $("#results").replaceChildren(...(cards.length ? cards : [element("p", { className: "card" },
    "There are no results here: give a folder that mann reproduce has written with ",
    element("code", { textContent: "--results" }), ".")]));
}

/** Text in which words between backticks are code. */
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", { textContent: part }) : part));

/** On a narrow screen every row becomes a block, and every cell carries the name of its column. */
function table(result) {
  const numeric = result.columns.map((_, i) => result.rows.every((row) => !row[i] || NUMBER.test(row[i])));
  const head = (text, i) => element("th", { textContent: text, scope: "col", className: numeric[i] ? "number" : "" });
  const cell = (text, i) => {
    const [value, range] = numeric[i] ? text.split(/ (?=\[)/) : [text]; // 92.2 [92.1, 92.3]
    const made = element("td", { className: numeric[i] ? "number" : i === 1 ? "second" : "" }, value);
    if (range) made.append(" ", element("small", { textContent: range }));
    made.dataset.column = result.columns[i];
    return made;
  };
  const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: result.title });
  scroll.append(element("table", {},
    element("thead", {}, element("tr", {}, ...result.columns.map(head))),
    element("tbody", {}, ...result.rows.map((row) => element("tr", {}, ...row.map(cell))))));
  return scroll;
}
