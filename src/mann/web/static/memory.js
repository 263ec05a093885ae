// The memory: at one step, over time, and what is stored where; of what was taught, or of a replayed test episode.

import {
  $, ask, attempt, bytes, colour, element, leftOut, paintPicture, paintSlots, percent, prepareCanvas, shares, shownSlots, thumbnail,
} from "./common.js";
import { reason } from "./explain.js";
import { onSession } from "./session.js";

const PACE = 600; // milliseconds per step while playing
const WRITTEN = 0.5; // a write weight, summed over the heads, that counts as stored
const BELOW = 18; // pixels for the numbers of steps
const MAPS = { written: ["writes", "--write"], reads: ["readings", "--read"], usage: ["uses", "--ink"] };

// A slot is known by its place among those that the server told of at any step: `numbers` has their numbers, from 0.
let numbers = [], total = 0, LEFT = 30; // LEFT: pixels for the numbers of slots
let data = null, at = 0, slot = 0, head = 0, replaying = false, timer = null, episode = 0, grid = null;

export function start() {
  if ($("#replay")) { // the page that stands alone has no test episodes
    $("#live").onclick = () => choose(false);
    $("#replay").onclick = () => choose(true);
  }
  $("#another").onclick = () => { episode = (episode + 1) % 1000; load(); };
  $("#run").onclick = () => (timer ? pause() : run());
  $("#back").onclick = () => visit(at - 1);
  $("#forward").onclick = () => visit(at + 1);
  $("#position").oninput = (event) => visit(Number(event.target.value) - 1);
  $("#slots").onpointermove = $("#slots").onpointerdown = (event) => pointAt(event);
  $("#slots").onkeydown = moveSlot;
  for (const name of [...Object.keys(MAPS), "contents"]) {
    $(`#${name}`).onclick = (event) => pickCell(event, name);
    $(`#${name}`).onkeydown = moveCell;
  }
  onSession(() => {
    if (!$("#view-memory").hidden && !replaying) load();
  });
  new ResizeObserver(() => data?.steps.length && paint()).observe($("#memory-shown"));
}

export async function show() { await load(); }

export function hide() { pause(); }

async function choose(replay) {
  replaying = replay;
  $("#live").setAttribute("aria-pressed", String(!replay));
  $("#replay").setAttribute("aria-pressed", String(replay));
  await load();
}

async function load() {
  pause();
  const wanted = replaying;
  const answer = await attempt(() => ask(replaying ? `/api/replay?episode=${episode}` : "/api/memory"));
  if (!answer || wanted !== replaying) return;
  data = answer;
  numbers = [...new Set(data.steps.flatMap(shownSlots))].sort((a, b) => a - b);
  total = data.steps[0]?.slots ?? 0;
  LEFT = 30 + 7 * Math.max(0, String(total).length - 3);
  const places = new Map(numbers.map((number, place) => [number, place]));
  for (const step of data.steps) unpack(step, shownSlots(step).map((number) => places.get(number)));
  const empty = data.steps.length === 0;
  $("#memory-empty").hidden = !empty;
  $("#memory-shown").hidden = empty;
  $("#transport").hidden = !replaying;
  if (empty) return;
  chooseHead(0);
  if (replaying) {
    $("#position").max = data.steps.length;
    $("#replay-about").textContent = `Test episode ${data.episode + 1}: ${data.dataset}; model ${data.model}. `
      + "Below each picture: the guess, and → the right label if it was wrong.";
    $("#film").replaceChildren(...data.steps.map((step, i) => element("li", {}, element("button", {
      type: "button", onclick: () => visit(i),
    }, thumbnail(step.picture), element("span")))));
  }
  visit(replaying ? 0 : data.steps.length - 1);
}

/** Weights from bytes to shares, by place: of all heads together at first, then of each. */
function unpack(step, places) {
  const each = (text) => {
    const all = shares(text);
    return Array.from({ length: all.length / places.length }, (_, head) => {
      const spread = Array(numbers.length).fill(0);
      places.forEach((place, i) => { spread[place] = all[head * places.length + i]; });
      return spread;
    });
  };
  step.readings = [...each(step.read), ...each(step.head_reads)];
  step.writes = [...each(step.write), ...each(step.head_writes)];
  step.uses = each(step.usage);
  // A first slot should not fill the picture.
  const rows = places.slice(0, Math.max(12, step.contents.slots));
  step.rows = [...rows, ...Array(Math.max(0, 12 - rows.length)).fill(-1)];
}

/** What is shown of a step: of the chosen head if there is one such (usage has none, an NTM has one write head). */
const weights = (step, field) => step[field][Math.min(head, step[field].length - 1)];

function chooseHead(number) {
  head = number;
  const count = data.steps[0].readings.length;
  $("#heads").hidden = count <= 2; // all of one head are that one
  $("#heads").replaceChildren(...Array.from({ length: count }, (_, i) => element("button", {
    type: "button", textContent: i === 0 ? "All heads" : i, ariaPressed: String(i === head),
    ariaLabel: i === 0 ? "All heads" : `Head ${i}`, onclick: () => { chooseHead(i); paint(); $("#heads").children[i].focus(); },
  })));
}

function run() {
  if (at >= data.steps.length - 1) visit(0);
  $("#run").textContent = "Pause";
  timer = setInterval(() => {
    if (at >= data.steps.length - 1) pause();
    else visit(at + 1);
  }, PACE);
}

function pause() {
  clearInterval(timer);
  timer = null;
  $("#run").textContent = "Play";
}

/** Go to a step, and select the slot that its answer came from. */
function visit(step) {
  at = Math.min(data.steps.length - 1, Math.max(0, step));
  const { slot: read, heads } = data.steps[at].because;
  slot = Math.max(0, numbers.indexOf((read ?? heads[0].wrote) - 1));
  paint();
}

/** Go to a step, with the same slot. */
function go(step) {
  at = Math.min(data.steps.length - 1, Math.max(0, step));
  paint();
}

/** The steps so far: a replay does not show what is to come. */
const visible = () => (replaying ? data.steps.slice(0, at + 1) : data.steps);

function paint() {
  const step = data.steps[at];
  $("#step-title").textContent = `Step ${step.step}`;
  paintPicture($("#step-picture"), step.picture);
  const before = data.steps[at - 1];
  const verdict = step.guess === null ? "took it for something new"
    : step.guess === step.label ? `knew it: “${step.guess}”` : `took it for “${step.guess}”`;
  $("#step-text").textContent = `Shown: “${step.label}”. The network ${verdict}. `
    + (before ? `With the picture came the name of the one before, “${before.label}”, and was written.`
      : step.step > 1 ? "With the picture came the name of the one before, and was written." : "No name has come in yet.");
  $("#step-reason").textContent = reason(step);
  $("#head-table tbody").replaceChildren(...step.because.heads.map((one, i) => element("tr", {},
    ...[i + 1, one.slot, one.share.toFixed(2), one.similarity?.toFixed(2) ?? "–", one.wrote, one.gate?.toFixed(2) ?? "–"]
      .map((text, column) => element("td", { textContent: text, className: column ? "number" : "" })))));
  paintStored(step);
  paintSelection();
  if (replaying) paintFilm();
}

/** What changes when another slot is selected. */
function paintSelection() {
  const step = data.steps[at];
  grid = paintSlots($("#slots"), { read: weights(step, "readings"), write: weights(step, "writes"), usage: weights(step, "uses") }, slot);
  const steps = visible(), slots = usedSlots();
  for (const [name, [field, shade]] of Object.entries(MAPS)) {
    paintMap($(`#${name}`), steps.length, slots, shade, (x, y) => {
      const share = weights(steps[x], field)[slots[y]];
      if (share < 0.015) return 0; // 128 equal shares are 0.008 each
      return field === "uses" ? 0.8 * share : Math.sqrt(Math.min(1, 1.5 * share)); // the eye should find 10 % too
    }, (x) => `step ${steps[x].step}`, at);
  }
  paintContents(step);
  const holds = held(slot)[0];
  $("#slots-shown").textContent = leftOut(numbers.length, total);
  $("#slot-text").textContent = $("#cell-text").textContent = `Slot ${numbers[slot] + 1} at step ${step.step}: `
    + `read ${percent(weights(step, "readings")[slot])}, written ${percent(weights(step, "writes")[slot])}, `
    + `usage ${percent(step.uses[0][slot])} of the most used; `
    + (holds ? `it holds ${told(holds)}.` : "it holds nothing yet.");
}

function paintFilm() {
  $("#position").value = at + 1;
  [...$("#film").children].forEach((item, i) => {
    const step = data.steps[i], button = item.firstChild, right = step.guess === step.label;
    button.className = i > at ? "later" : right ? "right" : step.instance === 1 ? "first" : "wrong";
    button.lastChild.textContent = i > at ? step.step : right ? `✓ ${step.guess}` : `${step.guess} → ${step.label}`;
    button.ariaLabel = i > at ? `Step ${step.step}, still to come`
      : `Step ${step.step}: guess ${step.guess}, right label ${step.label}`;
    button.ariaPressed = String(i === at);
  });
  const film = $("#film"), item = film.children[at];
  film.scrollLeft = item.offsetLeft - film.offsetLeft - film.clientWidth / 2;
}

/** Slots that were used so far, in order: the rows of the pictures over time. */
function usedSlots() {
  const steps = visible();
  const used = [...steps[0].writes[0].keys()].filter((one) =>
    steps.some((step) => step.writes[0][one] > 0.1 || step.readings[0][one] > 0.1));
  return used.length ? used : [0];
}

/** A map of cells with the numbers of slots on the left and, below, what `column(x)` calls the first, the last and the
 *  marked column; the selected slot has an arrow. */
function paintMap(canvas, columns, slots, shade, level, column, marked = -1) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width) return;
  const context = prepareCanvas(canvas, width, height);
  canvas.style.height = "";
  const across = (width - LEFT) / columns, down = (height - BELOW) / slots.length;
  const box = (x, y) => { // on whole pixels, so that neighbours neither overlap nor leave a gap
    const left = Math.round(LEFT + x * across), top = Math.round(y * down);
    return [left, top, Math.round(LEFT + (x + 1) * across) - left, Math.round((y + 1) * down) - top];
  };
  context.fillStyle = colour(shade);
  for (let x = 0; x < columns; x++) {
    for (let y = 0; y < slots.length; y++) {
      const alpha = level(x, y);
      if (alpha < 0.02) continue;
      context.globalAlpha = alpha;
      context.fillRect(...box(x, y));
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--line");
  context.strokeRect(LEFT + 0.5, 0.5, width - LEFT - 1, height - BELOW - 1);
  context.fillStyle = context.strokeStyle = colour("--soft");
  context.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const middle = (y) => Math.max(7, (y + 0.5) * down); // a number in a thin first row is not cut off
  const every = Math.ceil(slots.length * 13 / (height - BELOW)), row = slots.indexOf(slot);
  slots.forEach((one, y) => {
    if (one >= 0 && y % every === 0 && (row < 0 || y === row || Math.abs(y - row) * down > 12)) context.fillText(numbers[one] + 1, LEFT - 7, middle(y));
  });
  if (row >= 0) {
    context.fillStyle = colour("--accent");
    context.font = `bold ${context.font}`;
    context.fillText(`${numbers[slot] + 1}▸`, LEFT - 1, middle(row));
    context.font = context.font.replace("bold ", "");
    context.fillStyle = colour("--soft");
  }
  context.textBaseline = "bottom";
  const write = (x, align) => {
    context.textAlign = align;
    context.fillText(column(x), align === "left" ? LEFT : align === "right" ? width : LEFT + (x + 0.5) * across, height - 1);
  };
  if (columns > 1) write(0, "left");
  write(columns - 1, "right");
  if (marked >= 0) {
    const [left, , wide] = box(marked, 0);
    context.strokeRect(left + 0.5, 0.5, wide - 1, height - BELOW - 1);
    if (marked < columns - 1 && LEFT + marked * across > 110 && LEFT + marked * across < width - 130) write(marked, "center");
  }
}

function paintContents(step) {
  const { slots, width, values } = step.contents, levels = bytes(values);
  paintMap($("#contents"), width, step.rows, "--ink",
    (x, y) => (y < slots ? levels[y * width + x] / 255 : 0), (x) => `number ${x + 1}`);
}

/** The examples that a slot holds, newest first: of a step that wrote to it, the example of the step before. */
const held = (one) => data.steps.slice(0, at + 1).flatMap((step, i) =>
  (step.writes[0][one] > WRITTEN ? [{ example: data.steps[i - 1], step: step.step }] : [])).reverse();

const told = ({ example, step }) => (example
  ? `“${example.label}”, shown at step ${example.step} and written at step ${step}`
  : `what was written at step ${step}${step > 1 ? "" : ", before any name had come in"}`);

function paintStored(step) {
  const rows = [...step.uses[0].keys()]
    .map((one) => [one, held(one)])
    .filter(([, examples]) => examples.length)
    .sort((a, b) => step.uses[0][b[0]] - step.uses[0][a[0]])
    .slice(0, 12);
  $("#stored tbody").replaceChildren(...rows.map(([one, examples]) => element("tr", {},
    element("td", { className: "number", textContent: numbers[one] + 1 }),
    element("td", {}, ...examples.slice(0, 3).map((each) => (each.example
      ? element("span", { className: "written", title: told(each) }, thumbnail(each.example.picture), `${each.example.label} (step ${each.step})`)
      : element("span", { className: "written none", textContent: `nothing with a name (step ${each.step})` })))),
    element("td", { className: "number", textContent: percent(step.uses[0][one]) }))));
}

function select(one) {
  const count = data.steps[0].writes[0].length;
  if (one < 0 || one >= count) return;
  slot = one;
  paintSelection();
}

function pointAt(event) {
  if (!grid) return;
  const column = Math.floor(event.offsetX / grid.cell);
  if (column < 0 || column >= grid.columns) return;
  select(Math.floor(event.offsetY / grid.cell) * grid.columns + column);
}

function moveSlot(event) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns, Home: -slot, End: grid.count - 1 - slot };
  if (!(event.key in moves)) return;
  event.preventDefault();
  select(slot + moves[event.key]);
}

/** Left and right go from step to step, up and down from slot to slot. */
function moveCell(event) {
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: visible().length - 1 };
  const slots = usedSlots(), place = slots.indexOf(slot);
  const rows = { ArrowUp: slots.findLast((one) => one < slot), ArrowDown: slots.find((one) => one > slot) };
  if (event.key in steps) go(steps[event.key]);
  else if (event.key in rows) select(rows[event.key] ?? (place < 0 ? slots[0] : slot));
  else return;
  event.preventDefault();
}

function pickCell(event, name) {
  const canvas = event.target, x = event.offsetX - LEFT;
  const slots = name === "contents" ? data.steps[at].rows : usedSlots();
  const picked = slots[Math.min(slots.length - 1, Math.floor(slots.length * event.offsetY / (canvas.clientHeight - BELOW)))];
  if (picked >= 0) slot = picked;
  const steps = visible().length;
  if (name === "contents" || x < 0) paintSelection();
  else go(Math.min(steps - 1, Math.floor(steps * x / (canvas.clientWidth - LEFT))));
}
