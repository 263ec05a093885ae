// What this page knows about its learner on the server, and how it notices that it is no longer true:
// another tab has taught something, or the server has dropped a learner that was idle.

import { ask, attempt, showNote } from "./common.js";

const tabs = new BroadcastChannel("mann playground");
const listeners = [];
let current = null, version = 0;

/** Be told every state of the session that comes in. */
export const onSession = (listener) => listeners.push(listener);

/** Take a state of the session for the newest. */
export function take(session) {
  const lost = current?.taught > 0 && session.id !== current.id;
  current = session;
  version += 1;
  for (const listener of listeners) listener(session);
  if (lost) {
    showNote("What you had taught is gone: nobody drew here for a long time, or the browser has lost its cookie. "
      + "Teach it again, or open a file that you saved.");
  }
}

export async function refresh() {
  const before = version;
  const session = await attempt(() => ask("/api/session"));
  if (session && before === version) take(session); // else something newer has come in
}

/** Change the session by a request, and tell the other tabs. */
export async function change(path, body) {
  const session = await ask(path, body);
  take(session);
  tabs.postMessage("changed");
  return session;
}

/** Every answer says which learner gave it and what that has been taught: is it the one that is shown? */
export async function check({ id, taught, version }) {
  if (!current || (current.taught === 0 && taught === 0)) return;
  if (id !== current.id || version !== current.version) await refresh();
}

export function start() {
  tabs.onmessage = refresh;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh();
  });
}
