// A mode in which names are asked for only where the answer is likely to be wrong, as OneShotLearner.ask_one decides.
// Whether it is on, and what a question costs, is kept in this browser.

import { $, percent } from "./common.js";

const KEY = "mann asking";
const COST = 0.5; // of a question, in wrong answers, until somebody moves the slider

let on = false, cost = COST, drawings = 0, questions = 0;

/** `changed()` is called when other things may be asked for than before. */
export function start(changed) {
  ({ on, cost } = stored());
  const choose = () => {
    try {
      localStorage.setItem(KEY, JSON.stringify({ on, cost }));
    } catch { /* it lasts until the page is left */ }
    show();
    changed();
  };
  $("#unsure").onclick = () => {
    on = !on;
    drawings = questions = 0;
    choose();
  };
  $("#cost").oninput = () => {
    cost = $("#cost").value / 100;
    choose();
  };
  show();
}

function stored() {
  try {
    const { on: was, cost: kept } = JSON.parse(localStorage.getItem(KEY));
    return { on: was === true, cost: kept >= 0 && kept <= 1 ? kept : COST };
  } catch { // nothing was chosen yet, or storage is off
    return { on: false, cost: COST };
  }
}

function show() {
  $("#unsure").setAttribute("aria-pressed", String(on));
  $("#price").hidden = !on;
  $("#cost").value = Math.round(100 * cost);
  $("#cost-text").textContent = $("#cost").ariaValueText = percent(cost);
  const told = drawings ? `Asked about ${questions} of ${drawings} drawing${drawings === 1 ? "" : "s"}.` : "Nothing asked yet.";
  $("#tally").textContent = on ? told : "";
}

/** Whether the best name is wrong with a probability above the cost; always while there is no name. */
const isWorthAsking = ({ ranked }) => ranked.length === 0 || 1 - ranked[0].probability > cost;

/** A drawing is done: what was answered to it is counted. */
export function count(answer) {
  drawings += 1;
  questions += isWorthAsking(answer);
  show();
}

/** What to say of an answer (heading, name, remark, whether it is something new); null while the mode is off. */
export function words(answer) {
  const asks = on && answer !== null && isWorthAsking(answer), sure = on && answer !== null && !asks;
  $("#teach").classList.toggle("asks", asks);
  $("#teach").classList.toggle("sure", sure);
  $("#teach label").textContent = sure ? "Its name, if I am wrong" : "Its name";
  if (!asks && !sure) return null;
  const [best] = answer.ranked;
  if (sure) return ["This is", best.label, `${percent(best.probability)} sure, so I do not ask.`, false];
  if (!best) return ["What is this?", "something new", "I have not learned anything yet. Please name it.", true];
  const unknown = answer.guess === null;
  return unknown ? ["What is this?", "something new", `${percent(answer.new)} sure that it is new. Please name it.`, true]
    : ["What is this?", `${best.label}?`, `Only ${percent(best.probability)} sure. Please name it.`, false];
}
