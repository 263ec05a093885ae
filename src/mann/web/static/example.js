// The whole story in ten seconds: a symbol is drawn and named, then another; the first, drawn again, is recognised.

import { showNote } from "./common.js";

const DRAWING = 1000, LETTER = 80, LOOK = 900; // milliseconds: a drawing, a letter of a name, to see what happened

const turn = (x, y, across, down) => Array.from({ length: 25 }, (_, i) => {
  const angle = 2 * Math.PI * i / 24 + Math.PI / 2;
  return [x + across * Math.cos(angle), y + down * Math.sin(angle)];
});
const line = (...corners) => corners.slice(1).flatMap(([x, y], i) => Array.from({ length: 9 }, (_, j) => {
  const [fromX, fromY] = corners[i];
  return [fromX + (x - fromX) * j / 8, fromY + (y - fromY) * j / 8];
}));

const ANKH = [turn(0.5, 0.33, 0.13, 0.15), line([0.27, 0.57], [0.73, 0.55]), line([0.5, 0.48], [0.51, 0.86])];
const AGAIN = [turn(0.48, 0.31, 0.15, 0.14), line([0.24, 0.56], [0.75, 0.59]), line([0.48, 0.45], [0.46, 0.83])];
const WAVE = [line([0.14, 0.56], [0.27, 0.38], [0.4, 0.6], [0.53, 0.37], [0.66, 0.6], [0.85, 0.42])];

let running = null, speaking = false;

/** Stop what is being shown, and what is said about it; true if it was not over. */
export function stop() {
  const was = running;
  running = null;
  if (speaking) showNote("");
  speaking = false;
  return was !== null;
}

function say(sentence) {
  speaking = true;
  showNote(sentence);
}

/** `name` is the field of the name, `teach(label)` teaches what is on the pad. */
export async function play(pad, name, teach) {
  stop();
  const mine = running = {};
  const wait = async (time) => {
    await new Promise((resolve) => setTimeout(resolve, time));
    if (running !== mine) throw mine; // stopped by somebody who wants to draw
  };
  const draw = async (strokes) => {
    const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : DRAWING / strokes.flat().length;
    pad.clear();
    for (const stroke of strokes) {
      pad.strokes.push([stroke[0]]);
      for (const point of stroke.slice(1)) {
        if (pause) await wait(pause);
        pad.strokes.at(-1).push(point);
        pad.changed(false);
      }
    }
    pad.changed(true);
    await wait(LOOK);
  };
  const give = async (label) => {
    name.value = "";
    for (const letter of label) {
      name.value += letter;
      await wait(LETTER);
    }
    await teach(label);
    await wait(LOOK);
  };
  try {
    say("1 of 3: a symbol that it has never seen, and its name, once.");
    await draw(ANKH);
    await give("ankh");
    say("2 of 3: something else, under another name.");
    await draw(WAVE);
    await give("wave");
    say("3 of 3: the first symbol again, drawn differently. Does it know it?");
    await draw(AGAIN);
    await wait(LOOK);
    say("That is one-shot learning: one example was enough. Now clear it and draw your own.");
  } catch (reason) {
    if (reason !== mine) throw reason;
    return;
  }
  running = null;
}
