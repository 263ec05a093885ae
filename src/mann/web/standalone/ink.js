// From a drawing of 105×105 pixels on plain paper to what the network sees: as mann.data.ink and render do it.

import { frame } from "./photograph.js";
import { border, median, percentile } from "./statistics.js";

const SIDE = 105;

/** The grey levels of a PNG in base64, from 0 (black) to 1 (white), row by row. */
export async function decode(png) {
  const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" })), { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const levels = Float32Array.from({ length: width * height }, (_, i) =>
    Math.round(0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255);
  return { levels, width, height };
}

/** Levels of ink as bytes, side × side of them; throws if there is no ink. */
export function see(grey, { side, downscale }) {
  const isDrawing = grey.width === SIDE && grey.height === SIDE;
  return shrink(isDrawing ? levelsOf(grey) : frame(grey), side, downscale);
}

/** Of a drawing from the pad: its ink, where it is. */
function levelsOf({ levels: grey, width, height }) {
  const ink = grey.map((level) => 1 - level), strongest = percentile(ink, 99.95);
  if (strongest < 8 / 255) throw new Error("The drawing is blank: draw something first.");
  const full = median(ink.filter((amount) => amount > strongest / 2));
  const faint = Math.min(Math.max(percentile(border(ink, width, height), 75), 0), full / 4);
  return ink.map((amount) => Math.round(255 * Math.min(1, Math.max(0, (amount - faint) / (full - faint)))));
}

function shrink(levels, side, downscale) {
  const seen = new Uint8Array(side * side), rows = new Float64Array(side * SIDE);
  for (let y = 0; y < side; y++) {
    for (let from = 0; from < SIDE; from++) {
      const weight = downscale[y * SIDE + from];
      if (weight) for (let x = 0; x < SIDE; x++) rows[y * SIDE + x] += weight * levels[from * SIDE + x];
    }
  }
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      let sum = 0;
      for (let from = 0; from < SIDE; from++) sum += downscale[x * SIDE + from] * rows[y * SIDE + from];
      seen[y * side + x] = Math.round(sum);
    }
  }
  return seen;
}
