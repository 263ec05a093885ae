// Draw a symbol, see the prediction at once, name it, draw the next.

import { $, ask, attempt, element, leftOut, paintSlots, percent, shares, showError, shownSlots, thumbnail } from "./common.js";
import * as example from "./example.js";
import { reason } from "./explain.js";
import { Pad } from "./pad.js";
import { change, check, onSession, refresh } from "./session.js";

const EVERY = 250; // milliseconds between predictions while drawing
const DOUBLE_CLICK = 600; // milliseconds
const LARGEST = 10_000_000; // bytes of a file that is opened
const LONG = 14; // letters of a name that is set smaller, so that it stays on one line

let pad, drawing = 0, timer = null, running = false, wanted = false, strip = null, slots = 128;
let teaching = false, taughtAt = -Infinity;

export function start() {
  // Before the pad's own: whoever takes the pen ends the example.
  for (const name of ["pointerdown", "keydown"]) {
    $("#pad").addEventListener(name, () => example.stop() && pad.clear());
  }
  pad = new Pad($("#pad"), started, changed);
  $("#undo").onclick = () => { example.stop(); pad.undo(); };
  $("#clear").onclick = () => { example.stop(); pad.clear(); };
  $("#example").onclick = () => {
    $("#pad").focus({ preventScroll: true });
    example.play(pad, $("#name"), teach);
  };
  $("#note button").addEventListener("click", () => example.stop());
  $("#forget").onclick = () => {
    example.stop();
    $("#forget-dialog").showModal();
  };
  $("#forget-dialog").onclose = () => {
    if ($("#forget-dialog").returnValue === "forget") forget();
    $("#forget-dialog").returnValue = "";
  };
  $("#save").onclick = () => attempt(save);
  $("#open").onclick = () => $("#file").click();
  $("#file").onchange = () => attempt(open);
  $("#teach").onsubmit = (event) => {
    event.preventDefault();
    example.stop();
    teach($("#name").value);
  };
  document.addEventListener("keydown", (event) => {
    const undo = event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    // In a field that holds text, it takes back letters.
    if (!undo || $("#view-play").hidden || (event.target.matches("input") && event.target.value)) return;
    event.preventDefault();
    example.stop();
    pad.undo();
  });
  onSession(showSession);
  new ResizeObserver(paintStrip).observe($("#strip"));
  showGuess(null);
}

export async function show() {
  await refresh();
  paintStrip();
}

export function hide() { example.stop(); }

function started() {
  $("#hint").hidden = true;
}

function changed(done) {
  $("#hint").hidden = $("#example").disabled = !pad.empty;
  if (pad.empty) {
    drawing += 1;
    clearTimeout(timer);
    timer = null;
    showGuess(null);
  } else if (done) {
    predict();
  } else {
    timer ??= setTimeout(predict, EVERY);
  }
}

async function predict() {
  clearTimeout(timer);
  timer = null;
  wanted = true;
  if (running) return; // the newest drawing is asked for when this answer is here
  running = true;
  while (wanted && !pad.empty) {
    wanted = false;
    const asked = drawing;
    const answer = await attempt(() => ask("/api/predict", { image: pad.png() }));
    if (!answer) break;
    if (asked === drawing) showGuess(answer);
    await check(answer);
  }
  running = false;
}

/** The three lines that never change their height: what is going on, a name, a remark. */
function say(heading, name, remark, isNew = false) {
  const text = $("#guess .guess");
  $("#guess .label").textContent = heading;
  text.textContent = text.title = name;
  text.classList.toggle("new", isNew);
  text.classList.toggle("long", name.length > LONG);
  $("#guess .remark").textContent = remark;
}

function showGuess(answer) {
  $("#ranking").replaceChildren();
  $("#because").textContent = "";
  if (!answer) {
    say("Waiting for a drawing", "…", "");
    return;
  }
  const unknown = answer.guess === null;
  say("I think this is", answer.guess ?? "something new", answer.ranked.length
    ? `${percent(answer.confidence)} sure. Name it to teach it, right or wrong.`
    : "I have not learned anything yet. Give it a name.", unknown);
  const rows = [...answer.ranked.map((r) => [r.label, r.probability, ""]), ["something new", answer.new, "new"]];
  if (answer.ranked.length) {
    for (const [label, share, kind] of rows.sort((a, b) => b[1] - a[1]).slice(0, 5)) {
      const bar = element("span");
      bar.style.width = `${100 * share}%`;
      $("#ranking").append(element("li", { className: kind },
        element("span", { className: "name", textContent: label, title: label }),
        element("span", { className: "track" }, bar),
        element("span", { className: "percent", textContent: percent(share) })));
    }
  }
  if (answer.memory) {
    strip = { ...answer.memory, written: strip ? written(strip) : null };
    paintStrip();
  }
  if (answer.because && answer.ranked.length) $("#because").textContent = reason(answer);
}

async function teach(label) {
  if (teaching) return;
  if (pad.empty) {
    if (performance.now() - taughtAt < DOUBLE_CLICK) return; // the second click of a double click
    showError("Draw the symbol first, then give it a name.");
    $("#pad").focus();
    return;
  }
  teaching = true;
  const answer = await attempt(() => change("/api/learn", { image: pad.png(), label }));
  teaching = false;
  if (!answer) return;
  taughtAt = performance.now();
  $("#name").value = "";
  pad.clear();
  const { label: name, examples } = answer.learned;
  say("Learned", name, examples === 1 ? "From one example. Draw it again, and I should know it."
    : `From ${examples} examples. Draw it again, or something else.`);
  $("#pad").focus({ preventScroll: true });
}

const forget = () => attempt(async () => {
  await change("/api/forget", {});
  pad.clear();
});

/** Offer what was taught as a file. */
async function save() {
  const { text } = await ask("/api/save");
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "symbols.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Take what was taught from a file, in place of what is here. */
async function open() {
  const [file] = $("#file").files;
  $("#file").value = ""; // the same file can be chosen again
  if (!file) return;
  if (file.size > LARGEST) throw new Error("This file is too large to be one of this page.");
  example.stop();
  await change("/api/load", { text: await file.text() });
  pad.clear();
}

const forgetSymbol = (label) => element("button", {
  type: "button", className: "quiet", textContent: "✕", title: `Forget ${label}`, ariaLabel: `Forget ${label}`,
  onclick: () => attempt(() => change("/api/forget", { label })),
});

function showSession(session) {
  for (const place of document.querySelectorAll("[data-model]")) place.textContent = session.model;
  const count = session.symbols.length;
  $("#no-symbols").hidden = count > 0;
  $("#example").classList.toggle("gone", count > 0); // it keeps its place: its neighbours shall not move
  $("#symbols").hidden = $("#forget").hidden = count === 0;
  $("#forget-count").textContent = count === 1 ? "the symbol" : `all ${count} symbols`;
  $("#symbols tbody").replaceChildren(...session.symbols.map((symbol) => element("tr", {},
    element("td", { textContent: symbol.label }),
    element("td", {}, ...symbol.pictures.map(thumbnail)),
    element("td", { className: "number", textContent: symbol.examples === 1 ? "once" : `${symbol.examples} times` },
      ...(session.standalone ? [forgetSymbol(symbol.label)] : [])))));
  $("#files").hidden = !session.standalone;
  $("#chips").replaceChildren(...session.symbols.slice(-12).map((symbol) => element("button", {
    type: "button", textContent: symbol.label, title: `Teach this drawing as ${symbol.label}`,
    onclick: () => { example.stop(); teach(symbol.label); },
  })));
  strip = session.memory;
  slots = session.slots;
  paintStrip();
}

/** Where the last example was written, by slot: a prediction shows it too, and may show other slots. */
const written = (of) => of.written ?? new Map(shownSlots(of).map((slot, i) => [slot, shares(of.write)[i]]));

function paintStrip() {
  const canvas = $("#strip");
  if (!canvas.clientWidth) return;
  const count = strip ? shownSlots(strip).length : Math.min(slots, 128);
  const of = (name) => (strip ? shares(strip[name]) : Array(count).fill(0));
  const write = strip?.written ? shownSlots(strip).map((slot) => strip.written.get(slot) ?? 0) : of("write");
  paintSlots(canvas, { read: of("read"), write, usage: of("usage") });
  $("#strip-shown").textContent = leftOut(count, slots);
}
