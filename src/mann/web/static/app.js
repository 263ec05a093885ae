// The views, one at a time, named in the address.

import { $, showError, showNote } from "./common.js";
import * as memory from "./memory.js";
import * as play from "./play.js";
import * as session from "./session.js";
import { views as further } from "./views.js";

const views = { play, memory, ...further };
let current = null;

function go() {
  const name = location.hash.slice(1) in views ? location.hash.slice(1) : "play";
  if (name === current) return;
  const before = current;
  views[before]?.hide?.();
  current = name;
  showError("");
  showNote("");
  for (const view of Object.keys(views)) $(`#view-${view}`).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  views[name].show();
  if (before === null) return;
  scrollTo(0, 0);
  if (!$("nav").contains(document.activeElement)) $(`#view-${name} h1`).focus({ preventScroll: true }); // its link is gone
}

$("#error button").onclick = () => showError("");
$("#note button").onclick = () => showNote("");
session.start();
for (const view of Object.values(views)) view.start();
addEventListener("hashchange", go);
go();
