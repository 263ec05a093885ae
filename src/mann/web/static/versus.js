// The paper's human experiment: answer, be told, two seconds, the next picture; no way back.

import { $, ask, attempt, element, showError, thumbnail } from "./common.js";

const PAUSE = 2000; // milliseconds between the feedback and the next picture, as in the paper

const WIDTHS = { network: 7, you: 3, paper: 1.5 }; // of the lines in the chart

let trial = null, shownAt = 0, waiting = false;

export function start() {
  $("#digits").append(...[1, 2, 3, 4, 5].map((digit) => element("button", {
    type: "button", textContent: digit, onclick: () => answer(digit),
  })));
  $("#begin").onclick = $("#begin-anew").onclick = () => begin(false); // a trial run
  $("#skip").onclick = () => begin(true);
  $("#again").onclick = () => begin(true);
  document.addEventListener("keydown", (event) => {
    if (!$("#view-versus").hidden && !$("#trial").hidden && /^[1-5]$/.test(event.key) && !event.repeat
      && !event.ctrlKey && !event.metaKey && !event.altKey) answer(Number(event.key));
  });
}

export async function show() {
  if (trial) return;
  const [about, current] = await attempt(() => Promise.all([ask("/api/experiment"), ask("/api/trial")])) ?? [];
  if (!about) return;
  $("[data-length]").textContent = about.length;
  $("[data-dataset]").textContent = about.dataset;
  if (current.trial && !trial) takeUp(current); // the page was loaded anew
}

/** Show one of the four: what it is about, the trial, its outcome, or that it is lost. */
function turnTo(name) {
  for (const card of ["intro", "trial", "outcome", "lost"]) $(`#${card}`).hidden = card !== name;
}

/** Go on with a trial where the server is. */
function takeUp(current) {
  waiting = false;
  if (current.result) {
    trial = current;
    finish(current, current.result);
  } else {
    turnTo("trial");
    present(current);
  }
}

async function begin(scored) {
  const next = await attempt(() => ask("/api/trial", { scored }));
  if (next) takeUp(next);
}

function present(next) {
  trial = next;
  $("#trial-kind").textContent = next.scored ? "Scored trial" : "Trial run, not scored";
  $("#skip").hidden = next.scored || !next.practised;
  $("#trial-picture").src = `data:image/png;base64,${next.picture}`;
  $("#trial-picture").hidden = false;
  $("#feedback").hidden = true;
  $("#progress").textContent = `Picture ${next.step} of ${next.length}`;
  $("#bar").value = (next.step - 1) / next.length;
  setDigits(false);
  shownAt = performance.now();
}

function setDigits(disabled, chosen = 0) {
  [...$("#digits").children].forEach((button, i) => {
    button.disabled = disabled;
    button.classList.toggle("chosen", i + 1 === chosen);
  });
}

async function answer(digit) {
  if (waiting || $("#trial").hidden) return;
  waiting = true;
  const current = trial, seconds = (performance.now() - shownAt) / 1000;
  setDigits(true, digit);
  const told = await attempt(() => ask("/api/answer", {
    trial: current.trial, step: current.step, answer: digit, seconds: Math.round(seconds * 1000) / 1000,
  }));
  if (!told) {
    setDigits(false);
    waiting = false;
    await recover(current);
    return;
  }
  $("#trial-picture").hidden = true;
  $("#trial-picture").removeAttribute("src");
  const feedback = $("#feedback");
  feedback.className = told.correct ? "right" : "wrong";
  feedback.replaceChildren(told.correct ? "Right, it was" : "No, it was", element("b", { textContent: told.label }));
  feedback.hidden = false;
  $("#bar").value = current.step / current.length;
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  if (trial !== current) return; // a new trial was begun in the meantime
  waiting = false;
  if (told.result) finish(current, told.result);
  else present(told.next);
}

/** An answer was refused: another tab has gone on with the trial, or the server no longer knows it. */
async function recover(current) {
  const known = await ask("/api/trial").catch(() => null); // no answer at all: the sentence for that is shown
  if (!known || trial !== current) return;
  if (known.trial !== current.trial) {
    trial = null;
    showError("");
    turnTo("lost");
    $("#begin-anew").focus();
  } else if (known.step !== current.step || known.result) {
    takeUp(known);
  }
}

function finish(current, result) {
  turnTo("outcome");
  const { you, network } = result.overall;
  $("#outcome-title").textContent = current.scored ? "Your result" : "The trial run is over";
  $("#outcome-text").textContent = `You were right on ${you} % of the pictures, the network on ${network} %. ` +
    (current.scored ? "The trial has been kept." : "This one does not count: now you know how it goes.");
  $("#again").textContent = current.scored ? "Another scored trial" : "Begin the scored trial";
  const rows = [["You", "you", result.you], ["The network", "network", result.network],
    ["Paper's people", "paper", result.paper]];
  drawChart(rows, result.instances);
  window.onresize = () => drawChart(rows, result.instances);
  const shown = result.instances.filter((_, i) => rows.some(([, , values]) => values[i] !== null));
  const cell = (value) => (value === null || value === undefined ? "–" : value.toFixed(value % 1 ? 1 : 0));
  $("#outcome-table").replaceChildren(
    element("thead", {}, element("tr", {}, element("th", { textContent: "Instance" }),
      ...shown.map((i) => element("th", { textContent: i })))),
    element("tbody", {}, ...rows.map(([name, , values]) => element("tr", {}, element("td", { textContent: name }),
      ...shown.map((i) => element("td", { textContent: cell(values[i - 1]) }))))));
  showPictures(result.pictures);
  $("#again").focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Every picture with what it was and what both said, in the order in which they came. */
function showPictures(pictures) {
  const verdict = (who, said, label) => {
    const right = said === label;
    return element("span", { className: right ? "right" : "wrong" }, `${who} ${right ? "✓" : "✗"} ${said}`);
  };
  $("#pictures").replaceChildren(...pictures.map((one) => element("li", {},
    thumbnail(one.picture),
    element("b", { textContent: one.label, title: `Picture ${one.step}: the right digit, seen ${one.instance}×` }),
    verdict("You", one.you, one.label), verdict("Net", one.network, one.label))));
}

/** Lines over instances, in real pixels, so that the letters are as large on a phone as elsewhere. */
function drawChart(rows, instances) {
  const svg = $("#chart"), width = Math.max(280, svg.clientWidth), height = 320;
  const roomy = width > 520; // names beside the lines, else above them
  const left = 48, right = width - (roomy ? 160 : 14), top = roomy ? 14 : 44, bottom = height - 46;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const make = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const x = (i) => left + (right - left) * (i - 1) / (instances.length - 1);
  const y = (value) => bottom - (bottom - top) * value / 100;
  svg.replaceChildren();
  for (const value of [0, 25, 50, 75, 100]) {
    svg.append(make("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      make("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, `${value} %`));
  }
  for (const i of instances) svg.append(make("text", { x: x(i), y: bottom + 20, "text-anchor": "middle" }, i));
  svg.append(make("text", { x: (left + right) / 2, y: bottom + 40, "text-anchor": "middle" }, "times the character was seen"));
  const names = [];
  // The widest first: where lines and marks coincide, the thinner lie upon the wider, and all can be seen.
  for (const [name, kind, values] of rows.toReversed().sort((a, b) => WIDTHS[b[1]] - WIDTHS[a[1]])) {
    const points = instances.filter((i) => values[i - 1] !== null).map((i) => [x(i), y(values[i - 1])]);
    if (!points.length) continue;
    const width = WIDTHS[kind], group = make("g", { class: kind });
    group.append(make("path", { d: "M" + points.map((point) => point.join(" ")).join("L"), "stroke-width": width }));
    for (const [px, py] of points) group.append(make("circle", { cx: px, cy: py, r: 2 + width }));
    svg.append(group);
    names.push({ name, group, height: points.at(-1)[1] });
  }
  // Names beside the ends of the lines, pushed apart where they would overlap.
  let lowest = -Infinity, across = left;
  if (roomy) names.sort((a, b) => a.height - b.height);
  for (const { name, group, height: end } of names) {
    lowest = Math.max(end + 4, lowest + 19);
    group.append(make("text", roomy ? { class: "name", x: right + 12, y: Math.min(lowest, bottom + 20) }
      : { class: "name", x: across, y: 18 }, name));
    across += 9 * name.length + 14;
  }
}
