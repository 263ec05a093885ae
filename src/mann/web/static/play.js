// Draw a symbol, see the prediction at once, name it, draw the next.

import { $, ask, attempt, element, paintSlots, percent, thumbnail } from "./common.js";
import { Pad } from "./pad.js";

const EVERY = 250; // milliseconds between predictions while drawing

let pad, running = false, wanted = false, last = 0, guess = null, strip = null;

export function start() {
  pad = new Pad($("#pad"), (done) => changed(done));
  $("#undo").onclick = () => pad.undo();
  $("#clear").onclick = () => pad.clear();
  $("#forget").onclick = () => attempt(async () => {
    showSession(await ask("/api/forget", {}));
    strip = null;
    pad.clear();
    paintStrip();
  });
  $("#teach").onsubmit = (event) => {
    event.preventDefault();
    teach($("#name").value);
  };
  new ResizeObserver(paintStrip).observe($("#strip"));
  showGuess(null);
}

export async function show() {
  await attempt(async () => {
    const session = await ask("/api/session");
    showSession(session);
    strip ??= session.memory;
  });
  paintStrip();
}

function changed(done) {
  if (pad.empty) {
    showGuess(null);
    return;
  }
  if (done || performance.now() - last > EVERY) predict();
}

async function predict() {
  wanted = true;
  if (running) return; // the newest drawing is asked for when this answer is here
  running = true;
  while (wanted && !pad.empty) {
    wanted = false;
    last = performance.now();
    const answer = await attempt(() => ask("/api/predict", { image: pad.png() }));
    if (answer && !pad.empty) showGuess(answer);
  }
  running = false;
}

function showGuess(answer) {
  guess = answer;
  const text = $("#guess .guess"), remark = $("#guess .remark"), ranking = $("#ranking");
  $("#guess .label").textContent = answer ? "I think this is" : "Waiting for a drawing";
  text.textContent = !answer ? "…" : answer.guess ?? "something new";
  text.classList.toggle("new", !!answer && answer.guess === null);
  ranking.replaceChildren();
  remark.textContent = "";
  if (!answer) return;
  remark.textContent = answer.ranked.length
    ? `${percent(answer.confidence)} sure. Name it to teach it, right or wrong.`
    : "I have not learned anything yet. Give it a name below.";
  const rows = [...answer.ranked.map((r) => [r.label, r.probability, ""]), ["something new", answer.new, "new"]];
  if (answer.ranked.length) {
    for (const [label, share, kind] of rows.sort((a, b) => b[1] - a[1]).slice(0, 5)) {
      const bar = element("span");
      bar.style.width = `${100 * share}%`;
      ranking.append(element("li", { className: kind },
        element("span", { className: "name", textContent: label, title: label }),
        element("span", { className: "track" }, bar),
        element("span", { className: "percent", textContent: percent(share) })));
    }
  }
  if (answer.memory) {
    strip = { ...answer.memory, write: strip?.write ?? answer.memory.write };
    paintStrip();
  }
}

async function teach(label) {
  if (pad.empty) {
    $("#pad").focus();
    await attempt(() => { throw new Error("Draw the symbol first, then give it a name."); });
    return;
  }
  const image = pad.png();
  const session = await attempt(() => ask("/api/learn", { image, label }));
  if (!session) return;
  $("#name").value = "";
  pad.clear();
  showSession(session);
  strip = session.memory;
  paintStrip();
  $("#pad").focus({ preventScroll: true });
}

function showSession(session) {
  for (const place of document.querySelectorAll("[data-model]")) place.textContent = session.model;
  $("#no-symbols").hidden = session.symbols.length > 0;
  $("#symbols").hidden = $("#forget").hidden = session.symbols.length === 0;
  $("#symbols tbody").replaceChildren(...session.symbols.map((symbol) => element("tr", {},
    element("td", { textContent: symbol.label }),
    element("td", {}, ...symbol.pictures.map(thumbnail)),
    element("td", { className: "number", textContent: symbol.examples === 1 ? "once" : `${symbol.examples} times` }))));
  $("#chips").replaceChildren(...session.symbols.slice(-12).map((symbol) => element("button", {
    type: "button", textContent: symbol.label, onclick: () => teach(symbol.label),
    title: `Teach this drawing as ${symbol.label}`,
  })));
}

function paintStrip() {
  const canvas = $("#strip");
  if (!canvas.clientWidth) return;
  const blank = btoa("\0".repeat(128));
  paintSlots(canvas, strip ?? { read: blank, write: blank, usage: blank });
}
