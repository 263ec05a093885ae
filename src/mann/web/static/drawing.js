// From a drawing on plain paper to what the network sees of it: as mann.data.ink and mann.data.render do it.

import { border, median, percentile } from "./statistics.js";

export const SIDE = 105; // pixels per side of a drawing, as the training data

/** The grey levels of a canvas, from 0 (black) to 1 (white), row by row. */
export function greyOf(canvas) {
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const levels = Float32Array.from({ length: width * height }, (_, i) =>
    Math.round(0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255);
  return { levels, width, height };
}

/** The ink of a drawing of SIDE × SIDE, where it is, from 0 to 255; throws if there is none. */
export function inkOf({ levels: grey, width, height }) {
  const ink = grey.map((level) => 1 - level), strongest = percentile(ink, 99.95);
  if (strongest < 8 / 255) throw new Error("The drawing is blank: draw something first.");
  const full = median(ink.filter((amount) => amount > strongest / 2));
  const faint = Math.min(Math.max(percentile(border(ink, width, height), 75), 0), full / 4);
  return ink.map((amount) => Math.round(255 * Math.min(1, Math.max(0, (amount - faint) / (full - faint)))));
}

/** What each pixel of a smaller side takes from a row or a column of SIDE: a triangle that reaches its neighbours. */
function triangles(side) {
  const pixel = SIDE / side, reach = Math.max(pixel, 1);
  return Array.from({ length: side }, (_, i) => {
    const middle = (i + 0.5) * pixel, weights = [];
    let total = 0; // with the empty paper beyond the frame
    for (let from = Math.floor(middle - reach); from < middle + reach; from++) {
      const weight = Math.max(0, 1 - Math.abs(middle - from - 0.5) / reach);
      total += weight;
      if (from >= 0 && from < SIDE) weights.push([from, weight]);
    }
    return weights.map(([from, weight]) => [from, weight / total]);
  });
}

/** Ink of SIDE × SIDE as side × side bytes. */
export function shrink(ink, side) {
  const seen = new Uint8Array(side * side), rows = new Float64Array(side * SIDE), weights = triangles(side);
  weights.forEach((row, y) => row.forEach(([from, weight]) => {
    for (let x = 0; x < SIDE; x++) rows[y * SIDE + x] += weight * ink[from * SIDE + x];
  }));
  for (let y = 0; y < side; y++) {
    weights.forEach((column, x) => {
      seen[y * side + x] = Math.round(column.reduce((sum, [from, weight]) => sum + weight * rows[y * SIDE + from], 0));
    });
  }
  return seen;
}

/** What a network of so many pixels per side sees of a canvas with a drawing, in base64. */
export const seenOn = (canvas, side) => btoa(String.fromCharCode(...shrink(inkOf(greyOf(canvas)), side)));
