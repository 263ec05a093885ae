// In place of the server: the same questions, answered by the network in this page. What was taught is kept in the
// browser's storage, which other tabs share.

import { decode, see } from "./ink.js";
import { fromBase64, Learner } from "./learner.js";
import { Network } from "./network.js";

const KEY = "mann page";

const fetched = async (name) => {
  const response = await fetch(name);
  if (!response.ok) throw new Error("The network could not be loaded: reload the page.");
  return response;
};

const ready = (async () => {
  const [graph, weights] = await Promise.all([fetched("./network.json"), fetched("./weights.bin")]);
  return new Learner(new Network(await graph.json(), await weights.arrayBuffer()));
})();

let stored = null; // the text that the learner was made from

/** The learner as the browser's storage has it: another tab may have taught something. */
async function current() {
  const learner = await ready, text = localStorage.getItem(KEY);
  if (text !== stored) {
    if (text === null) learner.forget();
    else {
      try { learner.load(text); } catch { learner.forget(); }
    }
    stored = text;
  }
  return learner;
}

function keep(learner) {
  const text = learner.save();
  try {
    localStorage.setItem(KEY, text);
  } catch {
    throw new Error("The browser's storage is full: forget some symbols, or save them to a file and start again.");
  }
  stored = text;
}

let last = { image: null, seen: null }; // what is taught was asked about before

async function pixels(learner, { image, pixels: seen }) {
  if (seen !== undefined) return fromBase64(seen);
  if (last.image !== image) last = { image, seen: see(await decode(image), learner.about) };
  return last.seen;
}

const ANSWERS = {
  "/api/session": (learner) => learner.session(),
  "/api/memory": (learner) => ({ steps: structuredClone(learner.steps) }),
  "/api/examples": (learner) => learner.allExamples(),
  "/api/predict": async (learner, body) => learner.predict(await pixels(learner, body)),
  "/api/save": (learner) => ({ text: learner.save() }),
};

/** What changes the learner; the answer is the session after it, unless something else is given. */
const CHANGES = {
  "/api/learn": async (learner, body) => learner.teach(await pixels(learner, body), body.label),
  "/api/forget": (learner, { label }) => (label === undefined ? learner.forget() : learner.forgetLabel(label)),
  "/api/rename": (learner, { label, to }) => learner.rename(label, to),
  "/api/undo": (learner) => learner.unlearn(learner.examples.length),
  "/api/unlearn": (learner, { example, version }) => {
    if (version !== learner.version) throw new Error("Something else was taught meanwhile: look again, then repeat it.");
    learner.unlearn(example);
  },
  "/api/novelty": (learner, { threshold }) => learner.setThreshold(threshold),
  "/api/load": (learner, { text }) => learner.load(text),
};

export async function ask(path, body) {
  const learner = await current();
  if (path in ANSWERS) return ANSWERS[path](learner, body);
  const answer = await CHANGES[path](learner, body);
  keep(learner);
  return answer ?? learner.session();
}

if ("serviceWorker" in navigator) navigator.serviceWorker.register("./offline.js");
