// Products with the network's weights in WebAssembly, four numbers at a time, where a loop in JavaScript takes one. The
// program is written out below, instruction by instruction, so that there is nothing to build or to load.

const I32 = 0x7f, V128 = 0x7b, NOTHING = 0x40;
const get = (local) => [0x20, local], set = (local) => [0x21, local];
const constant = (value) => [0x41, ...signed(value)];
const ADD = 0x6a, SUBTRACT = 0x6b, SHIFT = 0x74, LESS = 0x49, END = 0x0b;
const loop = (...body) => [0x03, NOTHING, ...body.flat(), END]; // goes on where the body ends with `again`
const again = [0x0d, 0];
const load = (offset) => [0xfd, 0x00, 4, offset], store = (offset) => [0xfd, 0x0b, 4, offset];
const SPLAT = [0xfd, 0x09, 2, 0]; // one number, four times
const ZERO = [0xfd, 0x0c, ...Array(16).fill(0)];
const TIMES = [0xfd, 0xe6, 0x01], PLUS = [0xfd, 0xe4, 0x01];

function signed(value) {
  const bytes = [];
  for (;;) {
    const low = value & 0x7f;
    value >>= 7;
    if ((value === 0 && !(low & 0x40)) || (value === -1 && low & 0x40)) return [...bytes, low];
    bytes.push(low | 0x80);
  }
}

function length(value) {
  const bytes = [];
  for (; value > 0x7f; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  return [...bytes, value];
}

const section = (number, ...content) => [number, ...length(content.flat().length), ...content.flat()];
const text = (word) => [word.length, ...new TextEncoder().encode(word)];

export const ROWS = 4, COLUMNS = 8; // of a block of the result, which is held in registers

/** product(a, b, c, rows, depth, columns): C = A B, all by rows, at these bytes of the memory. */
function program() {
  const [a, b, c, rows, depth, columns] = [0, 1, 2, 3, 4, 5];
  const column = 6, right = 7, left = [8, 9, 10, 11], step = 12, longA = 13, longB = 14, to = 15;
  const sums = Array.from({ length: 2 * ROWS }, (_, i) => 16 + i), [first, second, factor] = [24, 25, 26];
  const forward = (local, ...amount) => [...get(local), ...amount.flat(), ADD, ...set(local)];
  const accumulate = (row, half, values) => [
    ...get(sums[2 * row + half]), ...get(factor), ...get(values), ...TIMES, ...PLUS, ...set(sums[2 * row + half]),
  ];
  const block = [
    ...sums.flatMap((sum) => [...ZERO, ...set(sum)]),
    ...get(a), ...set(left[0]),
    ...[1, 2, 3].flatMap((row) => [...get(left[row - 1]), ...get(longA), ADD, ...set(left[row])]),
    ...get(b), ...get(column), ADD, ...set(right),
    ...get(depth), ...set(step),
    ...loop(
      get(right), load(0), set(first), get(right), load(16), set(second),
      ...left.map((from, row) => [
        ...get(from), ...SPLAT, ...set(factor), ...accumulate(row, 0, first), ...accumulate(row, 1, second),
        ...forward(from, constant(4)),
      ]),
      forward(right, get(longB)),
      get(step), constant(1), [SUBTRACT], [0x22, step], again,
    ),
    ...get(c), ...get(column), ADD, ...set(to),
    ...left.flatMap((_, row) => [
      ...get(to), ...get(sums[2 * row]), ...store(0), ...get(to), ...get(sums[2 * row + 1]), ...store(16),
      ...forward(to, get(longB)),
    ]),
  ];
  const body = [
    2, 10, I32, 11, V128, // ten more whole numbers, eleven times four numbers
    ...get(depth), ...constant(2), SHIFT, ...set(longA), ...get(columns), ...constant(2), SHIFT, ...set(longB),
    ...loop(
      constant(0), set(column),
      loop(block, forward(column, constant(4 * COLUMNS)), get(column), get(longB), [LESS], again),
      forward(a, get(longA), constant(2), [SHIFT]), forward(c, get(longB), constant(2), [SHIFT]),
      get(rows), constant(ROWS), [SUBTRACT], [0x22, rows], again,
    ),
    END,
  ];
  return Uint8Array.from([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [1, 0x60, 6, I32, I32, I32, I32, I32, I32, 0]),
    ...section(2, [1, ...text("m"), ...text("m"), 2, 0, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("product"), 0, 0]),
    ...section(10, [1, ...length(body.length), ...body]),
  ]);
}

const whole = (count, part) => part * Math.ceil(count / part);

/** A memory with the program in it; null where the browser has no such instructions. */
function start() {
  try {
    const memory = new WebAssembly.Memory({ initial: 1 });
    const module = new WebAssembly.Module(program());
    return { memory, used: 0, product: new WebAssembly.Instance(module, { m: { m: memory } }).exports.product };
  } catch {
    return null;
  }
}

/** Room for so many numbers, which stays theirs. */
function reserve(machine, count) {
  const begin = machine.used;
  machine.used = whole(begin + 4 * count, 16);
  const missing = machine.used - machine.memory.buffer.byteLength;
  if (missing > 0) machine.memory.grow(Math.ceil(missing / 65536));
  return begin;
}

export class Products {
  constructor() {
    this.machine = start();
    this.scratch = new Map(); // numbers: where they may stand, for all products that need as many
  }

  /**
   * From A (rows × depth) to A B (rows × columns), for B that never changes; null if there is no machine for it.
   * `weights` are B by rows.
   */
  prepare(weights, rows, depth, columns) {
    const { machine } = this;
    if (!machine) return null;
    const high = whole(rows, ROWS), wide = whole(columns, COLUMNS);
    const b = reserve(machine, depth * wide), a = this.room("a", high * depth), c = this.room("c", high * wide);
    const kept = new Float32Array(machine.memory.buffer, b, depth * wide);
    for (let row = 0; row < depth; row++) kept.set(weights.subarray(row * columns, (row + 1) * columns), row * wide);
    return (values, result) => {
      const { buffer } = machine.memory;
      new Float32Array(buffer, a, rows * depth).set(values);
      machine.product(a, b, c, high, depth, wide);
      const got = new Float32Array(buffer, c, rows * wide);
      if (wide === columns) return result.set(got);
      for (let row = 0; row < rows; row++) result.set(got.subarray(row * wide, row * wide + columns), row * columns);
    };
  }

  room(name, count) {
    const key = `${name} ${count}`;
    if (!this.scratch.has(key)) this.scratch.set(key, reserve(this.machine, count));
    return this.scratch.get(key);
  }
}
