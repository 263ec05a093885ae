// Any picture of a drawing to 105×105 levels of ink: as mann.data.ink does it, but for a sheet on a desk, which is not
// looked for: the drawing should fill the picture.

import { border, median, percentile } from "./statistics.js";

const SIDE = 105, EXTENT = 68, STROKE = [3.2, 5], FINE = 3; // as in mann.data.ink
const CONTRAST = 8 / 255, PLAIN = 0.04, MOSTLY = 0.9, WIDEST = 0.33, DARK = 0.03;

/** Centred, scaled, and with strokes of the width of a pen; throws if there is no ink. */
export function frame(grey) {
  const ink = onPlainPaper(grey) ?? strokesOn(grey);
  if (!ink) throw new Error("No drawing was found in this picture: take one of dark strokes on plain paper, or the other way round.");
  const { amount, full, faint } = ink, { width, height } = grey, limit = (full + faint) / 2;
  const mask = withoutSpecks(Uint8Array.from(amount, (one) => +(one > limit)), width, height);
  let [left, top, right, bottom, count] = [width, height, 0, 0, 0];
  mask.forEach((inked, i) => {
    if (!inked) return;
    const x = i % width, y = Math.floor(i / width);
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x + 1), Math.max(bottom, y + 1)];
    count += 1;
  });
  const extent = Math.max(bottom - top, right - left), largest = Math.max(width, height);
  const dot = count > 0.6 * (bottom - top) * (right - left) && extent <= 0.05 * largest; // it stays a dot
  const span = dot ? largest : extent * SIDE / EXTENT;
  const level = amount.map((one, i) => (mask[i] ? Math.min(1, Math.max(0, (one - faint) / (full - faint))) : 0));
  const cover = resample(level, width, height, (left + right - span) / 2, (top + bottom - span) / 2, span, FINE * SIDE);
  const strongest = cover.reduce((most, one) => Math.max(most, one), 0);
  const edge = median(cover.filter((one) => one > strongest / 2)) / 2; // half of what a typical stroke has
  return redraw(Uint8Array.from(cover, (one) => +(one > edge)));
}

/** What differs from the paper, where all of the paper has one level; null where it has not. */
function onPlainPaper({ levels, width, height }) {
  const paper = median(border(levels, width, height)), change = levels.map((level) => level - paper);
  const darkest = percentile(change, 0.05), lightest = percentile(change, 99.95), strongest = Math.max(-darkest, lightest);
  if (strongest < CONTRAST) return null;
  const amount = -darkest >= lightest ? change.map((one) => -one) : change;
  const nearly = change.map(Math.abs).filter((one) => one < strongest / 2);
  if (nearly.filter((one) => one <= PLAIN * strongest).length < MOSTLY * nearly.length) return null;
  const full = median(amount.filter((one) => one > strongest / 2));
  return { amount, full, faint: Math.min(Math.max(percentile(border(amount, width, height), 75), 0), full / 4) };
}

/** Strokes on paper of any light and shade; null where there are none. */
function strokesOn({ levels, width, height }) {
  if (percentile(levels, 99.95) - percentile(levels, 0.05) < CONTRAST) return null;
  const light = blurred(levels, width, height).map((level) => Math.log(level + DARK));
  const dark = darkLines(light, width, height), bright = darkLines(light.map((level) => -level), width, height);
  // In a light drawing the gaps between strokes are dark lines as well, but as dark as everything around.
  const around = surroundings(light, width, height), stands = (lines) => {
    const half = percentile(lines, 99.95) / 2;
    return median(light.map((level, i) => level - around[i]).filter((_, i) => lines[i] >= half));
  };
  const lines = -stands(dark) >= stands(bright) ? dark : bright, usual = median(lines), amount = lines.map((one) => one - usual);
  const noise = 1.4826 * median(amount.map(Math.abs)), strongest = percentile(amount, 99.95);
  if (strongest < Math.max(CONTRAST, 5 * noise)) return null;
  const full = median(amount.filter((one) => one > strongest / 2));
  return { amount, full, faint: full / 4 };
}

/** The median level within a quarter of the picture: that of the paper, since ink is the lesser part. */
function surroundings(levels, width, height) {
  const step = Math.max(1, Math.ceil(Math.max(width, height) / 80)), columns = Math.ceil(width / step), rows = Math.ceil(height / step);
  const small = Float32Array.from({ length: rows * columns }, (_, i) => {
    let sum = 0, count = 0;
    const left = (i % columns) * step, top = Math.floor(i / columns) * step;
    for (let y = top; y < Math.min(height, top + step); y++) {
      for (let x = left; x < Math.min(width, left + step); x++, count++) sum += levels[y * width + x];
    }
    return sum / count;
  });
  const clip = (value, length) => Math.min(length - 1, Math.max(0, value)), every = 2; // pixels: half of them tell as much
  const usual = small.map((_, i) => {
    const near = [];
    for (let y = -10; y <= 10; y += every) {
      for (let x = -10; x <= 10; x += every) near.push(small[clip(Math.floor(i / columns) + y, rows) * columns + clip(i % columns + x, columns)]);
    }
    return near.sort((a, b) => a - b)[near.length >> 1];
  });
  return levels.map((_, i) => usual[Math.floor(Math.floor(i / width) / step) * columns + Math.floor((i % width) / step)]);
}

/** Along rows, then along columns: `combine(get, place, length)` makes every number from those of its line. */
function along(values, width, height, combine) {
  const rows = new Float32Array(values.length), all = new Float32Array(values.length);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) rows[y * width + x] = combine((i) => values[y * width + i], x, width);
  for (let x = 0; x < width; x++) for (let y = 0; y < height; y++) all[y * width + x] = combine((i) => rows[i * width + x], y, height);
  return all;
}

const KERNEL = [-3, -2, -1, 0, 1, 2, 3].map((x) => Math.exp(-x * x / 2));

const blurred = (values, width, height) => along(values, width, height, (get, place, length) =>
  KERNEL.reduce((sum, weight, i) => sum + weight * get(Math.min(length - 1, Math.max(0, place + i - 3))), 0)
  / KERNEL.reduce((sum, weight) => sum + weight));

/** By how much each pixel is darker than the closing by a square that is wider than any stroke. */
function darkLines(levels, width, height) {
  const half = Math.round(WIDEST * Math.max(width, height)) >> 1;
  const highest = extreme(levels, width, height, half, (a, b) => a > b);
  const closed = extreme(highest, width, height, half, (a, b) => a < b);
  return closed.map((level, i) => level - levels[i]);
}

/** The largest (or smallest) within a square, by van Herk's way: three comparisons per pixel. */
function extreme(values, width, height, half, better) {
  const line = (get, set, length) => {
    const size = 2 * half + 1, padded = Math.ceil((length + 2 * half) / size) * size;
    const at = (i) => get(Math.min(length - 1, Math.max(0, i - half)));
    const before = new Float32Array(padded), after = new Float32Array(padded);
    for (let i = 0; i < padded; i++) before[i] = i % size && better(before[i - 1], at(i)) ? before[i - 1] : at(i);
    for (let i = padded - 1; i >= 0; i--) after[i] = (i + 1) % size && better(after[i + 1], at(i)) ? after[i + 1] : at(i);
    for (let i = 0; i < length; i++) set(i, better(after[i], before[i + size - 1]) ? after[i] : before[i + size - 1]);
  };
  const rows = new Float32Array(values.length), all = new Float32Array(values.length);
  for (let y = 0; y < height; y++) line((i) => values[y * width + i], (i, value) => { rows[y * width + i] = value; }, width);
  for (let x = 0; x < width; x++) line((i) => rows[i * width + x], (i, value) => { all[i * width + x] = value; }, height);
  return all;
}

/** The drawing alone: no dust, and nothing small that the edge of the picture cuts off. */
function withoutSpecks(mask, width, height) {
  const labels = new Int32Array(mask.length), sizes = [0], cut = [false];
  for (let start = 0; start < mask.length; start++) {
    if (!mask[start] || labels[start]) continue;
    const label = sizes.length, waiting = [start];
    sizes.push(0);
    cut.push(false);
    labels[start] = label;
    while (waiting.length) {
      const place = waiting.pop(), x = place % width, y = Math.floor(place / width);
      sizes[label] += 1;
      if (x === 0 || y === 0 || x === width - 1 || y === height - 1) cut[label] = true;
      for (let v = Math.max(0, y - 1); v <= Math.min(height - 1, y + 1); v++) {
        for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
          const next = v * width + u;
          if (mask[next] && !labels[next]) {
            labels[next] = label;
            waiting.push(next);
          }
        }
      }
    }
  }
  const most = sizes.reduce((a, b) => Math.max(a, b));
  return mask.map((_, i) => +(labels[i] > 0 && sizes[labels[i]] >= (cut[labels[i]] ? 0.5 : 0.02) * most));
}

/** A square part of a picture at another size: the mean over each pixel's area, or between pixels where it is smaller. */
export function resample(values, width, height, left, top, span, side) {
  const result = new Float32Array(side * side), step = span / side, fine = Math.max(1, Math.ceil(step));
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : values[y * width + x]);
  for (let i = 0; i < side * side; i++) {
    let sum = 0;
    for (let k = 0; k < fine * fine; k++) {
      const x = left + (i % side + (k % fine + 0.5) / fine) * step - 0.5, y = top + (Math.floor(i / side) + (Math.floor(k / fine) + 0.5) / fine) * step - 0.5;
      const u = Math.floor(x), v = Math.floor(y), a = x - u, b = y - v;
      sum += (1 - b) * ((1 - a) * at(u, v) + a * at(u + 1, v)) + b * ((1 - a) * at(u, v + 1) + a * at(u + 1, v + 1));
    }
    result[i] = sum / (fine * fine);
  }
  return result;
}

/** The distance of every pixel to the nearest that is not set (Felzenszwalb and Huttenlocher: exact, line by line). */
function distances(mask, side) {
  const far = 4 * side * side, squares = Float64Array.from(mask, (set) => (set ? far : 0));
  const line = new Float64Array(side), hull = new Int32Array(side), ends = new Float64Array(side + 1);
  const transform = (start, step) => {
    for (let i = 0; i < side; i++) line[i] = squares[start + i * step];
    let last = 0;
    hull[0] = 0;
    [ends[0], ends[1]] = [-Infinity, Infinity];
    for (let i = 1; i < side; i++) {
      const meet = () => (line[i] + i * i - line[hull[last]] - hull[last] ** 2) / (2 * (i - hull[last]));
      while (meet() <= ends[last]) last -= 1;
      ends[last + 1] = meet();
      last += 1;
      hull[last] = i;
      ends[last + 1] = Infinity;
    }
    for (let i = 0, k = 0; i < side; i++) {
      while (ends[k + 1] < i) k += 1;
      squares[start + i * step] = (i - hull[k]) ** 2 + line[hull[k]];
    }
  };
  for (let i = 0; i < side; i++) transform(i, side);
  for (let i = 0; i < side; i++) transform(i * side, 1);
  return squares.map(Math.sqrt);
}

/** Widen or thin the strokes of a drawing of `FINE` times the size, and average. */
function redraw(mask) {
  const side = FINE * SIDE, inside = distances(mask, side), outside = distances(mask.map((set) => 1 - set), side);
  let sum = 0, count = 0;
  mask.forEach((set, i) => {
    sum += set * (inside[i] - 0.5);
    count += set;
  });
  const width = 4 * sum / count / FINE; // of a band, the mean distance to its edge is a quarter of its width
  const wanted = Math.min(STROKE[1], Math.max(STROKE[0], width)), filled = width > 2 * STROKE[1]; // no stroke at all
  const change = filled ? 0 : (wanted - width) / 2 * FINE;
  const result = new Float32Array(SIDE * SIDE);
  mask.forEach((set, i) => {
    const cover = Math.min(1, Math.max(0, (set ? inside[i] - 0.5 : 0.5 - outside[i]) + change + 0.5));
    result[Math.floor(Math.floor(i / side) / FINE) * SIDE + Math.floor((i % side) / FINE)] += cover / FINE ** 2;
  });
  return result.map((cover) => Math.round(255 * cover));
}
