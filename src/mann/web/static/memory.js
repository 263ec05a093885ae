// The memory: at one step, over time, and what is stored where; of what was taught, or of a replayed test episode.

import { $, ask, attempt, bytes, colour, element, paintPicture, paintSlots, percent, prepareCanvas, thumbnail } from "./common.js";

const PACE = 600; // milliseconds a step while playing
const WRITTEN = 0.25; // a write weight that counts as stored

let data = null, at = 0, replaying = false, timer = null, episode = 0, grid = null;

export function start() {
  $("#live").onclick = () => choose(false);
  $("#replay").onclick = () => choose(true);
  $("#another").onclick = () => { episode = (episode + 1) % 1000; load(); };
  $("#run").onclick = () => (timer ? pause() : run());
  $("#back").onclick = () => go(at - 1);
  $("#forward").onclick = () => go(at + 1);
  $("#position").oninput = (event) => go(Number(event.target.value) - 1);
  $("#slots").onpointermove = $("#slots").onpointerdown = (event) => pointAt(event);
  for (const name of ["written", "reads", "usage"]) {
    $(`#${name}`).onclick = (event) => go(Math.floor(visible().length * event.offsetX / event.target.clientWidth));
  }
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
  data = await attempt(() => ask(replaying ? `/api/replay?episode=${episode}` : "/api/memory"));
  if (!data) return;
  for (const step of data.steps) {
    step.writes = bytes(step.write);
    step.readings = bytes(step.read);
    step.uses = bytes(step.usage);
  }
  const empty = data.steps.length === 0;
  $("#memory-empty").hidden = !empty;
  $("#memory-shown").hidden = empty;
  $("#transport").hidden = !replaying;
  if (empty) return;
  if (replaying) {
    $("#position").max = data.steps.length;
    $("#replay-about").textContent = `Test episode ${data.episode + 1}: ${data.dataset}; model ${data.model}. ` +
      "Below each picture: the guess, and → the right label if it was wrong.";
    $("#film").replaceChildren(...data.steps.map((step, i) => {
      const right = step.guess === step.label;
      const kind = right ? "right" : step.instance === 1 ? "first" : "wrong";
      return element("li", {}, element("button", {
        type: "button", className: kind, onclick: () => go(i),
        ariaLabel: `Step ${step.step}: guess ${step.guess}, right label ${step.label}`,
      }, thumbnail(step.picture), element("span", { textContent: right ? `✓ ${step.guess}` : `${step.guess} → ${step.label}` })));
    }));
  }
  go(replaying ? 0 : data.steps.length - 1);
}

function run() {
  if (at >= data.steps.length - 1) go(0);
  $("#run").textContent = "Pause";
  timer = setInterval(() => {
    if (at >= data.steps.length - 1) pause();
    else go(at + 1);
  }, PACE);
}

function pause() {
  clearInterval(timer);
  timer = null;
  $("#run").textContent = "Play";
}

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
    : step.guess === step.label ? `knew it: ${step.guess}` : `took it for ${step.guess}`;
  $("#step-text").textContent = `Shown: ${step.label}. The network ${verdict}. With the picture came ` +
    (before ? `the label of the step before, ${before.label}.` : step.step > 1 ? "the label of the step before." : "no label yet.");
  grid = paintSlots($("#slots"), step);
  $("#slot-text").textContent = "Point at a slot to see what was written there.";
  paintHeat($("#written"), "writes", "--write");
  paintHeat($("#reads"), "readings", "--read");
  paintHeat($("#usage"), "uses", "--ink");
  const steps = visible();
  $("#heat-axis").replaceChildren(element("span", { textContent: `step ${steps[0].step}` }),
    element("span", { textContent: `step ${steps.at(-1).step}` }));
  paintStored(step);
  paintContents();
  if (!replaying) return;
  $("#position").value = at + 1;
  [...$("#film").children].forEach((item, i) => {
    item.firstChild.classList.toggle("later", i > at);
    item.firstChild.setAttribute("aria-pressed", String(i === at));
  });
  const film = $("#film"), item = film.children[at];
  film.scrollLeft = item.offsetLeft - film.offsetLeft - film.clientWidth / 2;
}

/** Slots that were ever used, in order: the rows of the pictures over time. */
function usedSlots() {
  const count = data.steps[0].writes.length;
  const used = [...Array(count).keys()].filter((slot) =>
    data.steps.some((step) => step.writes[slot] > 25 || step.readings[slot] > 25));
  return used.length ? used : [0];
}

/** One cell of a grid, on whole pixels, so that neighbours neither overlap nor leave a gap. */
function fillCell(context, x, y, across, down) {
  const left = Math.round(x * across), top = Math.round(y * down);
  context.fillRect(left, top, Math.round((x + 1) * across) - left, Math.round((y + 1) * down) - top);
}

function paintHeat(canvas, field, shade) {
  const slots = usedSlots(), steps = visible();
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width) return;
  const context = prepareCanvas(canvas, width, height);
  canvas.style.height = "";
  const across = width / steps.length, down = height / slots.length;
  context.fillStyle = colour(shade);
  steps.forEach((step, x) => slots.forEach((slot, y) => {
    const share = step[field][slot] / 255;
    if (share < 0.02) return;
    context.globalAlpha = field === "uses" ? 0.7 * share : Math.sqrt(Math.min(1, 1.5 * share));
    fillCell(context, x, y, across, down);
  }));
  context.globalAlpha = 1;
  if (!replaying) {
    context.strokeStyle = colour("--soft");
    context.strokeRect(at * across + 0.5, 0.5, across - 1, height - 1);
  }
}

/** Steps that wrote to a slot, newest first, up to the one that is shown. */
const written = (slot) => data.steps.slice(0, at + 1).filter((step) => step.writes[slot] > 255 * WRITTEN).reverse();

function paintStored(step) {
  const rows = [...step.uses.keys()]
    .map((slot) => [slot, written(slot)])
    .filter(([, steps]) => steps.length)
    .sort((a, b) => step.uses[b[0]] - step.uses[a[0]])
    .slice(0, 12);
  $("#stored tbody").replaceChildren(...rows.map(([slot, steps]) => element("tr", {},
    element("td", { className: "number", textContent: slot + 1 }),
    element("td", {}, ...steps.slice(0, 3).map((one) =>
      element("span", { className: "written" }, thumbnail(one.picture), `${one.label} (step ${one.step}) `))),
    element("td", { className: "number", textContent: percent(step.uses[slot] / 255) }))));
}

function paintContents() {
  const { slots, width, values } = data.steps[at].contents;
  const canvas = $("#contents");
  const rows = Math.max(12, slots); // a first slot should not fill the picture
  const context = prepareCanvas(canvas, canvas.clientWidth, canvas.clientHeight);
  canvas.style.height = "";
  const across = canvas.clientWidth / width, down = canvas.clientHeight / rows;
  context.fillStyle = colour("--ink");
  bytes(values).forEach((value, i) => {
    context.globalAlpha = value / 255;
    fillCell(context, i % width, Math.floor(i / width), across, down);
  });
}

function pointAt(event) {
  if (!grid) return;
  const slot = Math.floor(event.offsetY / grid.cell) * grid.columns + Math.floor(event.offsetX / grid.cell);
  if (slot < 0 || slot >= grid.count) return;
  const step = data.steps[at], steps = written(slot);
  paintSlots($("#slots"), step, slot);
  const what = steps.length
    ? `written with ${steps.slice(0, 3).map((one) => `${one.label} (step ${one.step})`).join(", ")}`
    : "nothing written";
  $("#slot-text").textContent = `Slot ${slot + 1}: read ${percent(step.readings[slot] / 255)}, ` +
    `usage ${percent(step.uses[slot] / 255)} of the most used; ${what}.`;
}
