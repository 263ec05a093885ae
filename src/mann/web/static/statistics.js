// Levels of a picture: percentiles, and those of its border.

const BORDER = 0.05; // of the shorter side

export function percentile(values, share) {
  const sorted = Float64Array.from(values).sort(), place = (sorted.length - 1) * share / 100;
  const low = Math.floor(place), high = Math.ceil(place);
  return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

export const median = (values) => percentile(values, 50);

/** The levels within the border: what they mostly show is paper. */
export function border(values, width, height) {
  const wide = Math.max(1, Math.round(BORDER * Math.min(width, height)));
  return values.filter((_, i) => {
    const x = i % width, y = Math.floor(i / width);
    return Math.min(x, y, width - 1 - x, height - 1 - y) < wide;
  });
}
