// The network: one step as a graph of few operations, run with plain arrays. No library, no server.
// Every operation is prepared once: where its numbers come from does not depend on what they are.

import { Products } from "./product.js";

const size = (shape) => shape.reduce((product, length) => product * length, 1);

const strides = (shape) => shape.map((_, axis) => size(shape.slice(axis + 1)));

/** For every place of an array of this shape in order, the sum of its coordinates times some steps. */
function walk(shape, steps, start = 0) {
  const places = new Int32Array(size(shape));
  const at = shape.map(() => 0);
  let place = start;
  for (let i = 0; i < places.length; i++) {
    places[i] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place += steps[axis];
      if (++at[axis] < shape[axis]) break;
      place -= steps[axis] * shape[axis];
      at[axis] = 0;
    }
  }
  return places;
}

/** Where the numbers of an input stand that is stretched to a larger shape; null if it has that shape. */
function stretch(from, to) {
  if (from.length === to.length && from.every((length, axis) => length === to[axis])) return null;
  const own = strides(from), missing = to.length - from.length;
  return walk(to, to.map((_, axis) => (axis < missing || from[axis - missing] === 1 ? 0 : own[axis - missing])));
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

const UNARY = {
  exp: Math.exp, log: Math.log, tanh: Math.tanh, logistic: sigmoid, abs: Math.abs, neg: (x) => -x, sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x), square: (x) => x * x, log1p: Math.log1p, sign: Math.sign, floor: Math.floor,
  ceil: Math.ceil, sin: Math.sin, cos: Math.cos, not: (x) => (x ? 0 : 1),
};

const BINARY = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, div: (a, b) => a / b, pow: (a, b) => a ** b,
  max: (a, b) => (a > b || a !== a ? a : b), min: (a, b) => (a < b || a !== a ? a : b), eq: (a, b) => +(a === b),
  ne: (a, b) => +(a !== b), gt: (a, b) => +(a > b), ge: (a, b) => +(a >= b), lt: (a, b) => +(a < b), le: (a, b) => +(a <= b),
  and: (a, b) => a & b, or: (a, b) => a | b, xor: (a, b) => a ^ b,
};

const REDUCE = {
  reduce_sum: [0, BINARY.add], reduce_max: [-Infinity, BINARY.max], reduce_min: [Infinity, BINARY.min],
  reduce_prod: [1, BINARY.mul],
};

const TYPES = { float32: Float32Array, int32: Int32Array, bool: Uint8Array, uint8: Uint8Array };

const create = (value) => new TYPES[value.dtype](size(value.shape));

// The commonest operations as loops of their own: calls to a function for every number take several times as long. They
// are for float32 alone, since a loop that has seen arrays of other types is slower for all of them.
const LOOPS = {
  add(a, b, result, i, j) { for (let k = 0; k < result.length; k++) result[k] = a[i[k]] + b[j[k]]; },
  sub(a, b, result, i, j) { for (let k = 0; k < result.length; k++) result[k] = a[i[k]] - b[j[k]]; },
  mul(a, b, result, i, j) { for (let k = 0; k < result.length; k++) result[k] = a[i[k]] * b[j[k]]; },
  div(a, b, result, i, j) { for (let k = 0; k < result.length; k++) result[k] = a[i[k]] / b[j[k]]; },
  max(a, b, result, i, j) {
    for (let k = 0; k < result.length; k++) {
      const left = a[i[k]], right = b[j[k]];
      result[k] = left > right || left !== left ? left : right;
    }
  },
};

const SQUARE = ([input], [result]) => { for (let i = 0; i < result.length; i++) result[i] = input[i] * input[i]; };

const MOVE = (input, output, places) => { for (let i = 0; i < output.length; i++) output[i] = input[places[i]]; };
const MOVE_OTHERS = (input, output, places) => { for (let i = 0; i < output.length; i++) output[i] = input[places[i]]; };

const isFloat = ({ dtype }) => dtype === "float32";

/** Operations that change the shape alone, or nothing. */
const NOTHING = ["reshape", "squeeze", "expand_dims", "copy"];

/** How many numbers in a row come from numbers in a row, wherever one looks: they are moved together. */
function runOf(places) {
  let run = places.length;
  for (let start = 0; start < places.length && run > 1; start += run) {
    let length = 1;
    while (length < run && places[start + length] === places[start] + length) length += 1;
    while (run % length || places.length % length) length -= 1;
    run = length;
  }
  return run;
}

/** An operation that only moves numbers of one type: to each place from `places`. */
function gather(places, value) {
  const run = runOf(places), move = isFloat(value) ? MOVE : MOVE_OTHERS;
  if (run < 16) return ([input], [output]) => move(input, output, places);
  return ([input], [output]) => {
    for (let i = 0; i < output.length; i += run) output.set(input.subarray(places[i], places[i] + run), i);
  };
}

const same = ([input], [output]) => output.set(input);

/** Each of these prepares an operation: from its inputs and outputs (shapes) and parameters to what is run. */
const PREPARE = {
  convert_element_type: (inputs, [output]) => (output.dtype === "int32"
    ? ([input], [result]) => { for (let i = 0; i < result.length; i++) result[i] = Math.trunc(input[i]); } : same),
  broadcast_in_dim([input], [output], { broadcast_dimensions: axes }) {
    const own = strides(input.shape), steps = output.shape.map(() => 0);
    axes.forEach((axis, i) => { steps[axis] = input.shape[i] === 1 ? 0 : own[i]; });
    return gather(walk(output.shape, steps), output);
  },
  transpose([input], [output], { permutation }) {
    const own = strides(input.shape);
    return gather(walk(output.shape, permutation.map((axis) => own[axis])), output);
  },
  slice([input], [output], { start_indices: starts, strides: every }) {
    const own = strides(input.shape);
    const first = starts.reduce((sum, start, axis) => sum + start * own[axis], 0);
    return gather(walk(output.shape, own.map((step, axis) => step * (every ? every[axis] : 1)), first), output);
  },
  split([input], outputs, { axis }) {
    const own = strides(input.shape);
    let first = 0;
    const moves = outputs.map((output) => {
      const places = walk(output.shape, own, first * own[axis]);
      first += output.shape[axis];
      return gather(places, output);
    });
    return (values, results) => moves.forEach((move, i) => move(values, [results[i]]));
  },
  concatenate: (inputs, outputs, { dimension }) => join(inputs, outputs[0], dimension, (input) => input.shape),
  stack: (inputs, outputs, { axis }) => join(inputs, outputs[0], axis, (input) => input.shape.toSpliced(axis, 0, 1)),
  pad([input], [output], { padding_config: config }) {
    const own = strides(output.shape);
    const first = config.reduce((sum, [low], axis) => sum + low * own[axis], 0);
    const places = walk(input.shape, own, first);
    return ([values, fill], [result]) => {
      result.fill(fill[0]);
      for (let i = 0; i < values.length; i++) result[places[i]] = values[i];
    };
  },
  select_n([chooser, ...cases], [output]) {
    const places = cases.map((one) => stretch(one.shape, output.shape));
    const alike = places.every((one) => one === null) && size(chooser.shape) === size(output.shape);
    if (alike && cases.length === 2 && isFloat(output)) {
      return ([which, no, yes], [result]) => { for (let i = 0; i < result.length; i++) result[i] = which[i] ? yes[i] : no[i]; };
    }
    return ([which, ...values], [result]) => {
      for (let i = 0; i < result.length; i++) {
        const chosen = which.length === 1 ? +which[0] : +which[i];
        result[i] = values[chosen][places[chosen] ? places[chosen][i] : i];
      }
    };
  },
  integer_pow: (inputs, outputs, { y }) => ([input], [output]) => {
    for (let i = 0; i < output.length; i++) output[i] = y === 2 ? input[i] * input[i] : input[i] ** y;
  },
  argmin: (inputs, outputs, { axes: [axis] }) => best(inputs[0], outputs[0], axis, BINARY.lt),
  argmax: (inputs, outputs, { axes: [axis] }) => best(inputs[0], outputs[0], axis, BINARY.gt),
  top_k([input], outputs, { k }) {
    const length = input.shape.at(-1);
    return ([values], [largest, places]) => {
      for (let row = 0; row < values.length / length; row++) {
        const part = values.subarray(row * length, (row + 1) * length);
        const order = Array.from(part.keys()).sort((a, b) => part[b] - part[a] || a - b).slice(0, k);
        order.forEach((place, i) => { largest[row * k + i] = part[place]; places[row * k + i] = place; });
      }
    };
  },
  dot_general(inputs, [output], { dimension_numbers: [contract, batch] }, products) {
    const fast = weighted(inputs, contract, batch, products);
    if (fast) return fast;
    // Both as (batch, free, summed): a number of the result is the product of two rows.
    const arranged = inputs.map(({ shape, constant }, i) => {
      const free = shape.map((_, axis) => axis).filter((axis) => !contract[i].includes(axis) && !batch[i].includes(axis));
      const order = [...batch[i], ...free, ...contract[i]], own = strides(shape);
      const rows = size(free.map((axis) => shape[axis]));
      if (order.every((axis, at) => axis === at)) return { rows, of: (values) => values };
      const places = walk(order.map((axis) => shape[axis]), order.map((axis) => own[axis]));
      const move = (values, result) => {
        for (let k = 0; k < places.length; k++) result[k] = values[places[k]];
        return result;
      };
      const kept = new Float32Array(places.length);
      if (constant) move(constant, kept); // weights are arranged once
      return { rows, of: constant ? () => kept : (values) => move(values, kept) };
    });
    const [left, right] = arranged, batches = size(batch[0].map((axis) => inputs[0].shape[axis]));
    const summed = size(contract[0].map((axis) => inputs[0].shape[axis])), columns = right.rows;
    return (values, [result]) => {
      const a = left.of(values[0]), b = right.of(values[1]);
      for (let place = 0, at = 0; at < batches; at++) {
        for (let row = 0; row < left.rows; row++) {
          const from = (at * left.rows + row) * summed, to = from + summed;
          let column = 0, other = at * columns * summed;
          for (; column + 4 <= columns; column += 4, other += 4 * summed) { // four at once: a number is fetched once
            let one = 0, two = 0, three = 0, four = 0;
            for (let i = from, j = other; i < to; i++, j++) {
              const factor = a[i];
              one += factor * b[j];
              two += factor * b[j + summed];
              three += factor * b[j + 2 * summed];
              four += factor * b[j + 3 * summed];
            }
            result[place++] = one;
            result[place++] = two;
            result[place++] = three;
            result[place++] = four;
          }
          for (; column < columns; column++, other += summed) {
            let one = 0;
            for (let i = from, j = other; i < to; i++, j++) one += a[i] * b[j];
            result[place++] = one;
          }
        }
      }
    };
  },
};

const WORTH_IT = 4096; // multiplications from which on numbers are carried to WebAssembly and back

/** A product with weights, where the sums run over the last axis of what they are multiplied with; else null. */
function weighted([left, right], contract, batch, products) {
  const last = left.shape.length - 1;
  if (batch[0].length || !right.constant || contract[0].length !== 1 || contract[0][0] !== last) return null;
  const depth = left.shape[last], rows = size(left.shape) / depth, columns = size(right.shape) / depth;
  if (rows * depth * columns < WORTH_IT) return null;
  const free = right.shape.map((_, axis) => axis).filter((axis) => axis !== contract[1][0]);
  const order = [...contract[1], ...free], own = strides(right.shape);
  const places = walk(order.map((axis) => right.shape[axis]), order.map((axis) => own[axis]));
  const run = products.prepare(Float32Array.from(places, (place) => right.constant[place]), rows, depth, columns);
  return run && (([values], [result]) => run(values, result));
}

function join(inputs, output, axis, shape) {
  const own = strides(output.shape);
  let first = 0;
  const places = inputs.map((input) => {
    const made = walk(shape(input), own, first * own[axis]);
    first += shape(input)[axis];
    return made;
  });
  const runs = places.map(runOf);
  return (values, [result]) => values.forEach((input, i) => {
    const to = places[i], run = runs[i];
    if (run < 16) for (let j = 0; j < input.length; j++) result[to[j]] = input[j];
    else for (let j = 0; j < input.length; j += run) result.set(input.subarray(j, j + run), to[j]);
  });
}

/** For every place of the result, where the numbers along the other axes are. */
function lines(input, axes) {
  const own = strides(input.shape), kept = input.shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const over = (chosen) => walk(chosen.map((axis) => input.shape[axis]), chosen.map((axis) => own[axis]));
  return [over(kept), over(axes)];
}

function best(input, output, axis, better) {
  const [starts, along] = lines(input, [axis]);
  return ([values], [result]) => starts.forEach((start, i) => {
    let winner = 0;
    for (let j = 1; j < along.length; j++) {
      if (better(values[start + along[j]], values[start + along[winner]])) winner = j;
    }
    result[i] = winner;
  });
}

/** Sums of float32: where they run over numbers in a row, four at once. */
function sum(input, axes) {
  const [starts, along] = lines(input, axes), inRow = along.every((place, i) => place === i);
  return ([values], [result]) => {
    for (let i = 0; i < starts.length; i++) {
      const start = starts[i];
      let one = 0, two = 0, three = 0, four = 0, j = 0;
      if (inRow) {
        for (; j + 4 <= along.length; j += 4) {
          one += values[start + j];
          two += values[start + j + 1];
          three += values[start + j + 2];
          four += values[start + j + 3];
        }
      }
      for (; j < along.length; j++) one += values[start + along[j]];
      result[i] = one + two + three + four;
    }
  };
}

function reduce(input, axes, [first, combine]) {
  const [starts, along] = lines(input, axes);
  return ([values], [result]) => {
    for (let i = 0; i < starts.length; i++) {
      let sum = first;
      for (let j = 0; j < along.length; j++) sum = combine(sum, values[starts[i] + along[j]]);
      result[i] = sum;
    }
  };
}

const orders = new Map(); // of every size, 0, 1, 2, …

function inOrder(length) {
  if (!orders.has(length)) orders.set(length, Int32Array.from({ length }, (_, i) => i));
  return orders.get(length);
}

function elementwise(name, inputs, [output]) {
  if (inputs.length === 1) {
    if (name === "square" && isFloat(output)) return SQUARE;
    const operation = UNARY[name];
    return ([input], [result]) => { for (let i = 0; i < result.length; i++) result[i] = operation(input[i]); };
  }
  const [one, two] = inputs.map(({ shape }) => stretch(shape, output.shape) ?? inOrder(size(output.shape)));
  const loop = LOOPS[name], operation = BINARY[name];
  if (loop && inputs.every(isFloat)) return ([left, right], [result]) => loop(left, right, result, one, two);
  return ([left, right], [result]) => {
    for (let i = 0; i < result.length; i++) result[i] = operation(left[one[i]], right[two[i]]);
  };
}

function prepare({ operation, inputs, outputs, parameters }, products) {
  if (operation in PREPARE) return PREPARE[operation](inputs, outputs, parameters, products);
  if (operation === "reduce_sum" && isFloat(inputs[0])) return sum(inputs[0], parameters.axes);
  if (operation in REDUCE) return reduce(inputs[0], parameters.axes, REDUCE[operation]);
  if (!(operation in UNARY) && !(operation in BINARY)) throw new Error(`This network uses ${operation}, which the page does not know.`);
  return elementwise(operation, inputs, outputs);
}

/** A half-precision number. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function unpack({ dtype, stored, offset, shape }, buffer) {
  const length = size(shape);
  if (stored === "float16") return Float32Array.from(new Uint16Array(buffer, offset, length), half);
  return new TYPES[dtype](buffer, offset, length);
}

export class Network {
  /** `graph` is network.json, `buffer` is weights.bin. */
  constructor(graph, buffer) {
    this.about = graph.about;
    this.inputs = graph.inputs;
    this.outputs = graph.outputs;
    this.constants = Object.fromEntries(Object.entries(graph.constants).map(([name, one]) => [name, unpack(one, buffer)]));
    this.start = Object.fromEntries(Object.entries(graph.start).map(([name, one]) => [name, unpack(one, buffer)]));
    const described = (name) => ({ name, ...graph.values[name], constant: this.constants[name] });
    const products = new Products();
    this.nodes = graph.nodes.map((node) => {
      const full = { ...node, inputs: node.inputs.map(described), outputs: node.outputs.map(described) };
      // Results are kept for the next step, which writes over them.
      return NOTHING.includes(node.operation) ? full : { ...full, run: prepare(full, products), results: full.outputs.map(create) };
    });
  }

  /** One step: pixels, the label of the picture before, and the state before it. */
  step(x, label, state) {
    const known = { ...this.constants, ...state, x, label };
    for (const { inputs, outputs, run, results } of this.nodes) {
      if (!run) {
        known[outputs[0].name] = known[inputs[0].name];
        continue;
      }
      run(inputs.map(({ name }) => known[name]), results);
      outputs.forEach(({ name }, i) => { known[name] = results[i]; });
    }
    const named = (prefix, as) => Object.fromEntries(this.outputs.filter((name) => name.startsWith(prefix))
      .map((name) => [as + name.slice(prefix.length), known[name].slice()]));
    return { output: known.output.slice(), state: named("next.", "state."), trace: named("trace.", "") };
  }
}
