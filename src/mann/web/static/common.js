// What every view uses: the server, errors as sentences, elements, numbers in base64.

export { ask } from "./transport.js";

export const $ = (selector, root = document) => root.querySelector(selector);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** One sentence at the foot of the window: what went wrong, or what there is to know. Empty: none. */
const showIn = (selector) => (message) => {
  const box = $(selector);
  $("span", box).textContent = message;
  box.hidden = !message;
};
export const showError = showIn("#error");
export const showNote = showIn("#note");

/** Run something that may fail, and show the failure. */
export async function attempt(work) {
  try {
    const value = await work();
    showError("");
    return value;
  } catch (error) {
    showError(error.message);
    return undefined;
  }
}

export const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Numbers from 0 to 1 that the server sent as bytes. */
export const shares = (text) => Array.from(bytes(text), (level) => level / 255);

export const percent = (share) => `${Math.round(100 * share)} %`;

/** A square picture as the network sees it: black ink on white paper, or three colours per pixel. */
export function paintPicture(canvas, text) {
  const levels = bytes(text);
  const grey = Number.isInteger(Math.sqrt(levels.length));
  const side = Math.round(Math.sqrt(levels.length / (grey ? 1 : 3)));
  canvas.width = canvas.height = side;
  const image = new ImageData(side, side);
  for (let i = 0; i < side * side; i++) {
    const pixel = grey ? Array(3).fill(255 - levels[i]) : levels.subarray(3 * i, 3 * i + 3);
    image.data.set([...pixel, 255], 4 * i);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** A small picture; with a name for those who cannot see it, unless that is said beside it. */
export const thumbnail = (text, name = "") => paintPicture(
  element("canvas", { className: "thumb", ...(name ? { role: "img", ariaLabel: name } : { ariaHidden: "true" }) }), text);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Make a canvas as sharp as the screen; returns its context and size in CSS pixels. */
export function prepareCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** The numbers, from 0, of the slots that the server told of: the first ones, or the most used of a large memory. */
export const shownSlots = ({ read, shown }) => shown ?? [...bytes(read).keys()];

/** What a picture of slots leaves out, in words; empty if nothing. */
export const leftOut = (count, total) => (count < total
  ? `Shown are ${count} of ${total.toLocaleString("en").replaceAll(",", "\u202f")} slots, the most used. ` : "");

/** The slots as a grid of cells, from shares: usage fills, reading colours, writing frames. Returns cell geometry. */
export function paintSlots(canvas, { usage, read, write }, selected = -1) {
  const width = canvas.clientWidth || 320;
  const count = usage.length;
  const columns = Math.min(count, width < 420 ? 16 : 32);
  const cell = width / columns, rows = Math.ceil(count / columns);
  const context = prepareCanvas(canvas, width, rows * cell);
  const shades = { use: colour("--use"), read: colour("--read"), write: colour("--write"), line: colour("--line") };
  for (let slot = 0; slot < count; slot++) {
    const x = (slot % columns) * cell + 1, y = Math.floor(slot / columns) * cell + 1, side = cell - 2;
    const fill = (shade, share) => {
      context.globalAlpha = share;
      context.fillStyle = shade;
      context.fillRect(x, y, side, side);
      context.globalAlpha = 1;
    };
    fill(shades.use, 0.1 + 0.45 * usage[slot]);
    // Square roots: the eye should find a weight of 10 % too.
    if (read[slot] > 0.02) fill(shades.read, Math.sqrt(read[slot]));
    if (write[slot] > 0.05) {
      context.globalAlpha = Math.min(1, 0.3 + write[slot]);
      context.strokeStyle = shades.write;
      context.lineWidth = 2.5;
      context.strokeRect(x + 1, y + 1, side - 2, side - 2);
      context.globalAlpha = 1;
    }
    if (slot === selected) {
      context.strokeStyle = colour("--ink");
      context.lineWidth = 1.5;
      context.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
    }
  }
  return { columns, cell, count };
}
