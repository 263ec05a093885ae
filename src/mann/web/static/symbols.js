// What was taught: listed with thumbnails, mended example by example, saved to and opened from a file.

import { $, ask, attempt, element, showNote, thumbnail } from "./common.js";
import { change, onSession } from "./session.js";

const LARGEST = 3_000_000; // bytes of a file that is opened

let symbols = [], edited = null; // edited: the name of the symbol in the dialog
let page; // what the view around it does: leave() ends the example, fresh() clears the pad, say(…) in place of a guess

export function start(view) {
  page = view;
  $("#forget").onclick = () => {
    page.leave();
    $("#forget-dialog").showModal();
  };
  $("#forget-dialog").onclose = () => {
    if ($("#forget-dialog").returnValue === "forget") attempt(forgetAll);
    $("#forget-dialog").returnValue = "";
  };
  $("#untaught").onclick = () => attempt(undo);
  $("#save").onclick = () => attempt(save);
  $("#open").onclick = () => $("#file").click();
  $("#file").onchange = () => {
    const [file] = $("#file").files;
    $("#file").value = ""; // the same file can be chosen again
    if (file) open(file);
  };
  $("#rename").onsubmit = (event) => {
    event.preventDefault();
    mend(async () => {
      await change("/api/rename", { label: edited, to: $("#new-name").value });
      $("#edit-dialog").close();
    });
  };
  $("#forget-symbol").onclick = () => mend(async () => {
    await change("/api/forget", { label: edited });
    $("#edit-dialog").close();
  });
  $("#edit-done").onclick = () => $("#edit-dialog").close();
  $("#edit-dialog").onclose = () => {
    const button = [...document.querySelectorAll("#symbols button")].find((one) => one.dataset.label === edited);
    (button ?? $("#pad")).focus({ preventScroll: true }); // the row was made anew, or is gone
    edited = null;
  };
  onSession(show);
}

function show(session) {
  symbols = session.symbols;
  const none = symbols.length === 0;
  $("#no-symbols").hidden = !none;
  for (const name of ["#symbols", "#forget", "#untaught", "#save"]) $(name).hidden = none;
  const all = symbols.length === 1 ? "the symbol" : `all ${symbols.length} symbols`;
  $("#forget-count").textContent = all;
  $("#open-count").textContent = `${all} learned here`;
  $("#symbols tbody").replaceChildren(...symbols.map((symbol) => element("tr", {},
    element("td", {}, symbol.label, element("small", { textContent: symbol.examples === 1 ? "once" : `${symbol.examples} times` })),
    element("td", {}, ...symbol.pictures.map((picture, i) => thumbnail(picture, `Example ${i + 1}`))),
    element("td", { className: "number" }, changeButton(symbol.label)))));
  $("#kept").textContent = session.standalone ? "What you teach stays in this browser, also when you come back. It is sent nowhere."
    : "What you teach is kept on the machine that runs this page. A file can be opened on every such page, also on one without a server.";
}

function changeButton(label) {
  const button = element("button", { type: "button", textContent: "Change", ariaLabel: `Change ${label}`, onclick: () => attempt(() => edit(label)) });
  button.dataset.label = label;
  return button;
}

/** Run a change out of the dialog; what goes wrong is said there, since all else is out of reach meanwhile. */
async function mend(work) {
  $("#edit-problem").textContent = "";
  try {
    await work();
  } catch (error) {
    $("#edit-problem").textContent = error.message;
  }
}

async function edit(label) {
  page.leave();
  edited = label;
  await list();
  $("#edit-problem").textContent = "";
  $("#edit-title").textContent = `Change “${label}”`;
  $("#new-name").value = label;
  $("#edit-dialog").showModal();
}

/** The examples of the symbol in the dialog. */
async function list() {
  const { version, examples } = await ask("/api/examples");
  const own = examples.filter((one) => one.label === edited);
  $("#edit-examples").replaceChildren(...own.map(({ example, picture }, i) => element("li", {},
    thumbnail(picture, `Example ${i + 1} of ${own.length}`),
    element("button", {
      type: "button", textContent: "Delete", ariaLabel: `Delete example ${i + 1} of ${own.length}`,
      onclick: () => mend(async () => {
        await change("/api/unlearn", { example, version });
        if (own.length === 1) {
          $("#edit-dialog").close(); // with its last example the symbol is gone
          return;
        }
        await list();
        const left = document.querySelectorAll("#edit-examples button");
        left[Math.min(i, left.length - 1)].focus();
      }),
    }))));
}

async function forgetAll() {
  await change("/api/forget", {});
  page.fresh();
}

async function undo() {
  page.leave();
  const before = new Map(symbols.map(({ label, examples }) => [label, examples]));
  const session = await change("/api/undo", {});
  const after = new Map(session.symbols.map(({ label, examples }) => [label, examples]));
  const label = [...before.keys()].find((one) => before.get(one) !== after.get(one));
  const left = after.get(label) ?? 0;
  page.say("Taken back", label ?? "…", left ? `${left === 1 ? "One example is" : `${left} examples are`} left.` : "As if I had never seen it.");
  if (session.symbols.length === 0) $("#pad").focus({ preventScroll: true }); // the button is gone
}

/** Offer what was taught as a file. */
async function save() {
  const { text } = await ask("/api/save");
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "symbols.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // some browsers read it only after a while
}

/** Take what was taught from a file, in place of what is here. */
export const open = (file) => attempt(async () => {
  if (file.size > LARGEST) throw new Error("This file is too large to be one of the playground.");
  page.leave();
  if (symbols.length && !await agreed(file)) return;
  const { symbols: found } = await change("/api/load", { text: await file.text() });
  page.fresh();
  showNote(`Opened ${file.name}: ${found.length === 1 ? "one symbol" : `${found.length} symbols`}.`);
});

/** Whether what is here may go: a file chosen by mistake would cost all of it. */
function agreed(file) {
  const dialog = $("#open-dialog");
  $("#open-name").textContent = `“${file.name}”`;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "open");
  });
}
