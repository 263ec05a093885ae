// What the network's outputs say about the labels in use, and about something new: as mann.online.answers does it.

const ROUNDS = 30;

const softmax = (values) => {
  const top = Math.max(...values), powers = values.map((value) => Math.exp(value - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
};

/** The letters of a code, the most significant first. */
export const spell = (code, { letters, alphabet }) =>
  Array.from({ length: letters }, (_, i) => Math.floor(code / alphabet ** (letters - 1 - i)) % alphabet);

/** A code as the network sees it. */
export function encode(code, about) {
  const encoded = new Float32Array(about.letters * about.alphabet);
  spell(code, about).forEach((letter, i) => { encoded[i * about.alphabet + letter] = 1; });
  return encoded;
}

/** Probabilities of the codes in use, each with its number of examples, and, last, of something new. */
export function probabilities(output, codes, shows, familiarity, about) {
  const { letters, alphabet, capacity, novelty } = about;
  const rows = Array.from({ length: letters }, (_, i) => softmax(Array.from(output.subarray(i * alphabet, (i + 1) * alphabet))));
  const chances = explain(rows, codes.map((code) => spell(code, about)), capacity);
  if (!novelty || codes.length === 0 || codes.length === capacity) return chances;
  const known = chances.slice(0, -1), times = shows[known.indexOf(Math.max(...known))];
  const often = Math.log(times), much = Math.log(codes.length);
  const again = times > 1 ? novelty.again + novelty.again_things * much : 0;
  const usual = novelty.constant + novelty.things * much + novelty.shows * often + novelty.both * much * often + again;
  const fresh = 1 / (1 + Math.exp(-(novelty.stated * output[letters * alphabet] + novelty.alike * familiarity + usual)));
  const total = known.reduce((sum, chance) => sum + chance, 0) || 1;
  return [...known.map((chance) => (1 - fresh) * chance / total), fresh];
}

/** The mixture of known labels and something new that explains the distribution of each letter best. */
function explain(rows, words, capacity) {
  if (words.length === capacity) {
    const products = words.map((word) => word.reduce((product, letter, i) => product * (rows[i][letter] + 1e-30), 1));
    const total = products.reduce((sum, product) => sum + product, 0);
    return [...products.map((product) => product / total), 0];
  }
  const alphabet = rows[0].length;
  const unused = rows.map((row, i) => row.map((_, letter) =>
    (capacity / alphabet - words.filter((word) => word[i] === letter).length) / (capacity - words.length)));
  const count = words.length + 1;
  let weights = Array(count).fill(1 / count);
  for (let round = 0; round < ROUNDS; round++) {
    const ratios = rows.map((row, i) => {
      const mixture = unused[i].map((share) => weights[count - 1] * share);
      words.forEach((word, k) => { mixture[word[i]] += weights[k]; });
      return row.map((chance, letter) => chance / Math.max(mixture[letter], 1e-30));
    });
    const better = weights.map((weight, k) => weight * ratios.reduce((sum, ratio, i) => sum + (k < count - 1
      ? ratio[words[k][i]] : ratio.reduce((inner, value, letter) => inner + value * unused[i][letter], 0)), 0) / rows.length);
    const change = Math.max(...better.map((weight, k) => Math.abs(weight - weights[k])));
    weights = better;
    if (change < 1e-4) break;
  }
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}
