// The learner: what was taught, the state that it led to, and why it answers as it does. The counterpart of
// mann.online and of the server's sessions; what it returns is what the server would send.

import { encode, probabilities } from "./answers.js";
import { resample } from "./photograph.js";

const KEPT_STEPS = 60, KEPT_THUMBNAILS = 4, RANKED = 5, MOST_SYMBOLS = 100, MOST_LETTERS = 30, MOST_EXAMPLES = 2000;
const WRITTEN = 0.5, ATTENTION = 0.025; // as in mann.web.explain
const MOST_SLOTS = 128, NOTICED = 0.01; // as in mann.web.encoding
const FORMAT = "mann page 1";

const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Numbers from 0 to `largest` as bytes in base64. */
const levels = (values, largest = 1) => base64(Uint8Array.from(values, (value) =>
  Math.round(Math.min(255, Math.max(0, 255 * value / Math.max(largest, 1e-9))))));

const most = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

const rowsOf = (values, length) => Array.from({ length: values.length / length }, (_, i) =>
  values.subarray(i * length, (i + 1) * length));

const random = () => crypto.getRandomValues(new Uint32Array(2)).join("-"); // randomUUID is for https alone

const letters = (name) => [...name].length; // as Python counts them

const tidy = (name) => {
  const tidied = name.trim().split(/\s+/).join(" ");
  if (!tidied || letters(tidied) > MOST_LETTERS) throw new Error(`Give the symbol a name of 1 to ${MOST_LETTERS} letters.`);
  return tidied;
};

/** The largest magnitude of every row. */
function largest(values, rows) {
  const found = new Float32Array(rows), length = values.length / rows;
  for (let row = 0, i = 0; row < rows; row++) {
    let top = 0;
    for (const end = i + length; i < end; i++) top = Math.max(top, Math.abs(values[i]));
    found[row] = top;
  }
  return found;
}

const sum = (rows) => rows[0].map((_, i) => rows.reduce((total, row) => total + row[i], 0));

export class Learner {
  constructor(network) {
    this.network = network;
    const memory = network.nodes.flatMap((node) => node.outputs).find(({ name }) => name === "trace.memory");
    this.slots = memory.shape[0];
    this.forget();
  }

  get about() { return this.network.about; }

  /** From which probability on something is new; null: if that is more probable than any label. */
  get from() { return this.threshold ?? this.about.novelty?.threshold ?? null; }

  /** How many symbols there may be. */
  get room() { return Math.min(this.about.capacity, MOST_SYMBOLS); }

  forget() {
    this.id = random();
    this.threshold = null; // as the model has it
    this.version = (this.version ?? 0) + 1; // counts every change
    this.examples = [];
    this.codes = new Map();
    this.replay();
  }

  /** Show all examples again, from a wiped memory. */
  replay() {
    this.state = this.network.start;
    this.pending = new Float32Array(this.about.letters * this.about.alphabet);
    this.shown = 0;
    this.shows = new Map(); // label: how many examples
    this.steps = [];
    this.written = new Map(); // slot: the step that wrote it, and the name that came in then
    this.name = null;
    this.reads = null;
    const examples = this.examples;
    this.examples = [];
    this.codes = new Map([...this.codes].filter(([label]) => examples.some((example) => example.label === label)));
    for (const { label, pixels } of examples) this.learn(pixels, label);
  }

  look(pixels) {
    const x = Float32Array.from(pixels, (level) => level / 255);
    const { output, state, trace } = this.network.step(x, this.pending, this.state);
    const codes = [...this.codes.values()], shows = [...this.codes.keys()].map((label) => this.shows.get(label) ?? 1);
    const chances = probabilities(output, codes, shows, trace.familiarity?.[0] ?? -1, this.about);
    const fresh = chances.at(-1);
    const ranked = [...this.codes.keys()].map((label, i) => ({ label, probability: chances[i] }))
      .sort((a, b) => b.probability - a.probability);
    const known = ranked.length > 0 && (this.from === null ? ranked[0].probability >= fresh : fresh < this.from);
    return { guess: known ? ranked[0].label : null, confidence: known ? ranked[0].probability : fresh, ranked, fresh, state, trace };
  }

  predict(pixels) {
    const { guess, confidence, ranked, fresh, trace } = this.look(pixels);
    return {
      id: this.id, version: this.version, taught: this.shown, because: this.explain(trace), guess, confidence,
      ranked: ranked.slice(0, RANKED), new: fresh, memory: this.weights(trace),
    };
  }

  learn(pixels, label) {
    const { guess, state, trace } = this.look(pixels);
    if (!this.codes.has(label)) this.codes.set(label, this.draw());
    const because = this.explain(trace), number = this.shown + 1;
    for (const slot of this.writes(trace)) this.written.set(slot, [number, this.name]);
    this.steps.push({
      step: number, label, guess, picture: base64(pixels), ...this.weights(trace),
      ...this.heads(trace), contents: this.contents(trace), because,
    });
    this.steps.splice(0, this.steps.length - KEPT_STEPS);
    this.name = label;
    this.reads = trace.read_weights;
    this.state = state;
    this.pending = encode(this.codes.get(label), this.about);
    this.examples.push({ label, pixels });
    this.shows.set(label, (this.shows.get(label) ?? 0) + 1);
    this.shown = number;
  }

  teach(pixels, given) {
    const label = this.spelling(given);
    if (!this.codes.has(label) && this.codes.size >= this.room) throw new Error(`There is room for ${this.room} symbols: forget one to teach another.`);
    if (this.examples.length >= MOST_EXAMPLES) throw new Error(`There is room for ${MOST_EXAMPLES} examples: forget a symbol to teach more.`);
    this.learn(pixels, label);
    this.version += 1;
    return { ...this.session(), learned: { label, examples: this.examples.filter((example) => example.label === label).length } };
  }

  /** A name as it is written here: one that differs from a known one in capitals only is that one. */
  spelling(given) {
    const wanted = tidy(given);
    return [...this.codes.keys()].find((known) => known.toLowerCase() === wanted.toLowerCase()) ?? wanted;
  }

  /** Show these examples in place of those before. */
  mend(examples) {
    this.examples = examples;
    this.version += 1;
    this.replay();
  }

  forgetLabel(label) {
    this.mend(this.examples.filter((example) => example.label !== label));
  }

  rename(label, given) {
    const known = this.spelling(given), name = known === label ? tidy(given) : known;
    if (!this.codes.has(label)) throw new Error(`There is no symbol “${label}”.`);
    if (name !== label && this.codes.has(name)) throw new Error(`There is a symbol “${name}” already: choose another name.`);
    this.codes = new Map([...this.codes].map(([one, code]) => [one === label ? name : one, code]));
    this.mend(this.examples.map((example) => (example.label === label ? { ...example, label: name } : example)));
  }

  /** Take back one example, by its number from 1. */
  unlearn(number) {
    if (!(number >= 1 && number <= this.examples.length)) throw new Error("There is nothing to take back.");
    this.mend(this.examples.toSpliced(number - 1, 1));
  }

  setThreshold(threshold) {
    this.threshold = threshold;
    this.version += 1;
  }

  allExamples() {
    const examples = this.examples.map(({ label, pixels }, i) => ({ example: i + 1, label, picture: base64(pixels) }));
    return { version: this.version, examples };
  }

  /** A random code that no label has. */
  draw() {
    const used = new Set(this.codes.values());
    for (;;) {
      const code = Math.floor(Math.random() * this.about.capacity);
      if (!used.has(code)) return code;
    }
  }

  session() {
    const labels = [...this.codes.keys()];
    return {
      id: this.id, model: this.about.model, capacity: this.room, taught: this.shown,
      standalone: true, slots: this.slots, side: this.about.side,
      version: this.version, novelty: { threshold: this.from, own: this.threshold !== null },
      symbols: labels.map((label) => {
        const own = this.examples.flatMap((example, i) => (example.label === label ? [[i + 1, example]] : []));
        const shown = own.slice(0, KEPT_THUMBNAILS);
        return {
          label, examples: own.length, numbers: shown.map(([number]) => number),
          pictures: shown.map(([, { pixels }]) => base64(pixels)),
        };
      }),
      memory: this.shown ? this.weights(this.last()) : null,
    };
  }

  last() {
    const { slots, shown, read, write, usage } = this.steps.at(-1);
    return { encoded: { slots, shown, read, write, usage } };
  }

  /** Where a step read (mean over heads) and wrote (sum over heads), and the usage relative to its largest. */
  weights(trace) {
    if (trace.encoded) return trace.encoded;
    const reads = rowsOf(trace.read_weights, this.slots), usage = trace.usage ?? largest(trace.memory, this.slots);
    const slots = this.shownSlots(trace), pick = (values) => slots.map((slot) => values[slot]);
    return {
      slots: this.slots, shown: slots.length === this.slots ? null : slots,
      read: levels(pick(sum(reads).map((share) => share / reads.length))),
      write: levels(pick(sum(rowsOf(trace.write_weights, this.slots)))), usage: levels(pick(usage), Math.max(...usage)),
    };
  }

  /** All slots, or those of a larger memory that matter most: as shown_slots of mann.web.encoding. */
  shownSlots(trace) {
    const all = [...Array(this.slots).keys()];
    if (this.slots <= MOST_SLOTS) return all;
    const reads = rowsOf(trace.read_weights, this.slots), writes = sum(rowsOf(trace.write_weights, this.slots));
    const now = sum(reads).map((share, slot) => share / reads.length + writes[slot]);
    const used = trace.usage ?? largest(trace.memory, this.slots), top = Math.max(...used, 1e-9);
    const importance = all.map((slot) => used[slot] / top + (now[slot] > NOTICED ? 1 + now[slot] : 0));
    return all.sort((a, b) => importance[b] - importance[a] || a - b).slice(0, MOST_SLOTS).sort((a, b) => a - b);
  }

  /** Where each head read and wrote, of the slots that are shown. */
  heads(trace) {
    const slots = this.shownSlots(trace);
    const pick = (weights) => levels(rowsOf(weights, this.slots).flatMap((row) => slots.map((slot) => row[slot])));
    return { head_reads: pick(trace.read_weights), head_writes: pick(trace.write_weights) };
  }

  contents(trace) {
    const { memory } = trace, all = rowsOf(memory.map((number) => Math.abs(number)), memory.length / this.slots);
    const rows = this.shownSlots(trace).map((slot) => all[slot]), tops = rows.map((row) => Math.max(...row));
    const top = Math.max(...tops), slots = 1 + Math.max(0, tops.findLastIndex((value) => value > 0.05 * top));
    return { slots, width: rows[0].length, values: levels(rows.slice(0, slots).flatMap((row) => Array.from(row)), top) };
  }

  writes({ write_weights: weights }) {
    return [...sum(rowsOf(weights, this.slots)).entries()].filter(([, weight]) => weight > WRITTEN).map(([slot]) => slot);
  }

  /** The slot that was read most, its share of all reading, and the step and name that wrote it. */
  explain(trace) {
    const heads = rowsOf(trace.read_weights, this.slots), all = sum(heads).map((share) => share / heads.length);
    const slot = most(all), attentive = all[slot] >= ATTENTION;
    const now = this.writes(trace).includes(slot) ? [this.shown + 1, this.name] : undefined;
    const [step, name] = (attentive && (now ?? this.written.get(slot))) || [null, null];
    return { slot: attentive ? slot + 1 : null, share: all[slot], step, name, heads: this.explainHeads(trace, heads) };
  }

  explainHeads(trace, reads) {
    const writes = rowsOf(trace.write_weights, this.slots);
    return reads.map((read, head) => {
      const write = writes[Math.min(head, writes.length - 1)];
      return {
        slot: most(read) + 1, share: Math.max(...read), similarity: null, wrote: most(write) + 1,
        gate: trace.usage ? this.gate(write, head) : null,
      };
    });
  }

  /** σ(α) of a head, from the weights that it led to (eq 7). */
  gate(write, head) {
    const before = this.reads ? rowsOf(this.reads, this.slots)[head] : write.map((_, slot) => +(slot === 0));
    const least = most(write.map((weight, slot) => weight - before[slot]));
    return Math.min(1, Math.max(0, 1 - (write[least] - before[least]) / Math.max(1 - before[least], 1e-6)));
  }

  /** All that was taught, as text for a file or the browser's storage. */
  save() {
    return JSON.stringify({
      format: FORMAT, id: this.id, model: this.about.model, novelty: this.threshold, codes: [...this.codes],
      examples: this.examples.map(({ label, pixels }) => ({ label, pixels: base64(pixels) })),
    });
  }

  /** Take what `save` or the server gave; throws, and changes nothing, if it is not that. */
  load(text) {
    const wrong = new Error("This file was not saved by the playground.");
    let saved, examples, codes;
    try {
      saved = JSON.parse(text);
      examples = saved.examples.map(({ label, pixels }) => ({ label, pixels: fromBase64(pixels) }));
      codes = new Map(saved.codes);
    } catch {
      throw wrong;
    }
    const numbers = [...codes.values()], threshold = typeof saved.novelty === "number" ? saved.novelty : null;
    const sound = saved.format === FORMAT && typeof saved.id === "string" && new Set(numbers).size === numbers.length
      && numbers.every((code) => Number.isInteger(code) && code >= 0)
      && (threshold === null || (threshold >= 0 && threshold <= 1))
      && examples.every(({ label }) => typeof label === "string" && codes.has(label));
    if (!sound) throw wrong;
    this.checkRoom(examples, codes.size);
    if (numbers.some((code) => code >= this.about.capacity)) throw wrong;
    for (const example of examples) {
      const side = Math.sqrt(example.pixels.length);
      if (!Number.isInteger(side) || side === 0) {
        throw new Error(`This file was saved with the model ${saved.model}, whose pictures are of another kind than those of ${this.about.model}.`);
      }
      if (side !== this.about.side) {  // kept for another network: scaled, so that it survives a newer one
        example.pixels = Uint8Array.from(resample(example.pixels, side, side, 0, 0, side, this.about.side), Math.round);
      }
    }
    Object.assign(this, { id: saved.id, examples, codes, threshold, version: this.version + 1 });
    this.replay();
  }

  /** Refuse a file with more than there is room for: as check_room of mann.online.page. */
  checkRoom(examples, symbols) {
    const long = examples.map(({ label }) => label).find((label) => letters(label) > MOST_LETTERS);
    if (long) throw new Error(`This file has a name of ${letters(long)} letters, “${[...long].slice(0, MOST_LETTERS).join("")}…”: the page takes 1 to ${MOST_LETTERS}.`);
    if (symbols > this.room) throw new Error(`This file has ${symbols} symbols: the page keeps ${this.room} at most.`);
    if (examples.length > MOST_EXAMPLES) throw new Error(`This file has ${examples.length} examples: the page keeps ${MOST_EXAMPLES} at most.`);
  }
}
