// In place of the server: the same questions, answered by the network in this page. What was taught is kept in the
// browser's storage, which other tabs share.

import { decode, see } from "./ink.js";
import { Learner } from "./learner.js";
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

const pixels = async (learner, { image }) => see(await decode(image), learner.about);

const ANSWERS = {
  "/api/session": (learner) => learner.session(),
  "/api/memory": (learner) => ({ steps: structuredClone(learner.steps) }),
  "/api/predict": async (learner, body) => learner.predict(await pixels(learner, body)),
  "/api/save": (learner) => ({ text: learner.save() }),
};

const CHANGES = {
  "/api/learn": async (learner, body) => learner.teach(await pixels(learner, body), body.label),
  "/api/forget": (learner, { label }) => {
    if (label === undefined) learner.forget();
    else learner.forgetLabel(label);
    return learner.session();
  },
  "/api/load": (learner, { text }) => {
    learner.load(text);
    return learner.session();
  },
};

export async function ask(path, body) {
  const learner = await current();
  if (path in ANSWERS) return ANSWERS[path](learner, body);
  const answer = await CHANGES[path](learner, body);
  keep(learner);
  return answer;
}

if ("serviceWorker" in navigator) navigator.serviceWorker.register("./offline.js");
