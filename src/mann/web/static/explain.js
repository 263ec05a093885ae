// Why the network answered as it did, in a sentence.

import { percent } from "./common.js";

/** Of a prediction, or of a step in the memory's history: the slot that it read, and whose name was written there. */
export function reason({ because: { slot, share, step, name }, guess }) {
  if (slot === null) return "It read no slot in particular, so its answer does not come from one memory.";
  const read = `It read slot ${slot} most (${percent(share)} of its reading)`;
  if (step === null) return `${read}, to which nothing had been written.`;
  if (name === null) return `${read}, written at step ${step}, before any name had come in.`;
  const where = `${read}, where “${name}” was written at step ${step}`;
  if (guess === name) return `${where}: that is why it says “${guess}”.`;
  return guess === null ? `${where}, but it does not match well enough.` : `${where}; its answer comes from elsewhere.`;
}
