// Draw a symbol, see the prediction at once, name it, draw the next.

import { $, ask, attempt, element, leftOut, paintSlots, percent, shares, showError, shownSlots } from "./common.js";
import * as asking from "./asking.js";
import * as example from "./example.js";
import { reason } from "./explain.js";
import { Pad } from "./pad.js";
import * as pictures from "./pictures.js";
import { change, check, onSession, refresh } from "./session.js";
import * as symbols from "./symbols.js";

const EVERY = 250; // milliseconds between predictions while drawing
const DOUBLE_CLICK = 600; // milliseconds
const SETTLE = 150; // milliseconds after the threshold was moved
const PHOTOGRAPHS = "Show it a photograph and give it a name. Show it another of the same thing: the network has seen it "
  + "once, and no weight has changed.";
const LONG = 14; // letters of a name that is set smaller, so that it stays on one line

let pad, drawing = 0, timer = null, running = false, wanted = false, strip = null, slots = 128;
let side = null, coloured = false; // what the network sees: so many grey pixels per side, or colours
let teaching = false, taughtAt = -Infinity, settling = null;
let latest = null; // the answer that is shown

export function start() {
  // Before the pad's own: whoever takes the pen ends the example.
  for (const name of ["pointerdown", "keydown"]) {
    $("#pad").addEventListener(name, () => example.stop() && pad.clear());
  }
  pad = new Pad($("#pad"), started, changed);
  $("#undo").onclick = () => { example.stop(); pad.undo(); };
  $("#clear").onclick = () => {
    example.stop();
    finish();
  };
  $("#example").onclick = () => {
    $("#pad").focus({ preventScroll: true });
    example.play(pad, $("#name"), teach);
  };
  $("#note button").addEventListener("click", () => example.stop());
  asking.start(() => latest && showGuess(latest));
  symbols.start({ leave: example.stop, fresh: () => pad.clear(), say });
  pictures.start({
    leave: example.stop, show: (picture) => pad.show(picture), open: symbols.open, coloured: () => coloured,
  });
  $("#threshold").oninput = () => {
    showThreshold();
    clearTimeout(settling);
    settling = setTimeout(() => setThreshold($("#threshold").value / 100), SETTLE);
  };
  $("#threshold-own").onclick = () => setThreshold(null);
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

export function hide() {
  example.stop();
  pictures.stop();
}

const showThreshold = () => {
  $("#threshold-text").textContent = $("#threshold").ariaValueText = `${$("#threshold").value} %`;
};

async function setThreshold(threshold) {
  clearTimeout(settling);
  settling = null;
  await attempt(() => change("/api/novelty", { threshold }));
  if (!pad.empty) predict();
}

/** The drawing is done with: the next one. */
function finish() {
  if (latest) asking.count(latest);
  pad.clear();
}

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
    const answer = await attempt(() => ask("/api/predict", pad.content(side)));
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
  latest = answer;
  const asked = asking.words(answer);
  $("#ranking").replaceChildren();
  $("#because").textContent = "";
  if (!answer) {
    say("Waiting for a drawing", "…", "");
    return;
  }
  say(...asked ?? ["I think this is", answer.guess ?? "something new", answer.ranked.length
    ? `${percent(answer.confidence)} sure. Name it to teach it, right or wrong.`
    : "I have not learned anything yet. Give it a name.", answer.guess === null]);
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
    strip = reading(answer);
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
  const answer = await attempt(() => change("/api/learn", { ...pad.content(side), label }));
  teaching = false;
  if (!answer) return;
  taughtAt = performance.now();
  $("#name").value = "";
  finish();
  const { label: name, examples } = answer.learned;
  say("Learned", name, examples === 1 ? "From one example. Draw it again, and I should know it."
    : `From ${examples} examples. Draw it again, or something else.`);
  $("#pad").focus({ preventScroll: true });
}

function showSession(session) {
  for (const place of document.querySelectorAll("[data-model]")) place.textContent = session.model;
  $("#example").classList.toggle("gone", session.symbols.length > 0); // it keeps its place: its neighbours shall not move
  $("#chips").replaceChildren(...session.symbols.slice(-12).map((symbol) => element("button", {
    type: "button", textContent: symbol.label, title: `Teach this drawing as ${symbol.label}`,
    onclick: () => { example.stop(); teach(symbol.label); },
  })));
  $("#threshold-own").disabled = !session.novelty.own;
  if (settling === null) {
    $("#threshold").value = Math.round(100 * (session.novelty.threshold ?? 0.5));
    showThreshold();
  }
  strip = session.memory;
  slots = session.slots;
  ({ side, coloured } = session);
  if (coloured) $("#lead").textContent = PHOTOGRAPHS;
  if (latest?.memory && latest.version === session.version) strip = reading(latest); // it is still on the pad
  paintStrip();
}

/** Where the last example was written, by slot: a prediction shows it too, and may show other slots. */
const written = (of) => of.written ?? new Map(shownSlots(of).map((slot, i) => [slot, shares(of.write)[i]]));

/** What an answer read, with where the last example was written. */
const reading = ({ memory }) => ({ ...memory, written: strip ? written(strip) : null });

function paintStrip() {
  const canvas = $("#strip");
  if (!canvas.clientWidth) return;
  const count = strip ? shownSlots(strip).length : Math.min(slots, 128);
  const of = (name) => (strip ? shares(strip[name]) : Array(count).fill(0));
  const write = strip?.written ? shownSlots(strip).map((slot) => strip.written.get(slot) ?? 0) : of("write");
  paintSlots(canvas, { read: of("read"), write, usage: of("usage") });
  $("#strip-shown").textContent = leftOut(count, slots);
}
