// Pictures from elsewhere on the pad: chosen, pasted, dropped, or taken with the camera.

import { $, attempt } from "./common.js";

const SIDE = 384; // pixels that the longer side has at most: enough for a symbol, little to send
const LARGEST = 40_000_000; // bytes of a file

// page: leave() ends the example, show(canvas) puts it on the pad, open(file) takes what was saved, coloured() says whether
// the network sees colours.
let page, stream = null;

export function start(view) {
  page = view;
  $("#upload").onclick = () => $("#picture").click();
  $("#picture").onchange = () => {
    const [file] = $("#picture").files;
    $("#picture").value = ""; // the same file can be chosen again
    if (file) take(file);
  };
  document.addEventListener("paste", (event) => {
    const file = $("#view-play").hidden || document.querySelector("dialog[open]") ? null : firstOf(event.clipboardData, isPicture);
    if (!file) return;
    event.preventDefault();
    take(file);
  });
  for (const name of ["dragover", "drop"]) $("#view-play").addEventListener(name, (event) => drop(event));
  if (navigator.mediaDevices?.getUserMedia) {
    findCamera();
    navigator.mediaDevices.ondevicechange = findCamera;
  }
  $("#camera").onclick = look;
  $("#camera-cancel").onclick = () => $("#camera-dialog").close();
  $("#camera-dialog").onclose = stop;
  $("#camera-take").onclick = () => {
    const video = $("#video");
    page.leave();
    page.show(shrink(video, video.videoWidth, video.videoHeight));
    $("#camera-dialog").close();
  };
}

async function findCamera() {
  const devices = await navigator.mediaDevices.enumerateDevices().catch(() => []);
  $("#camera").hidden = !devices.some(({ kind }) => kind === "videoinput");
}

const isPicture = ({ type }) => type.startsWith("image/");
const firstOf = (transfer, wanted) => [...(transfer?.files ?? [])].find(wanted);

function drop(event) {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault(); // else the browser would leave the page for the file
  if (event.type !== "drop") return;
  const picture = firstOf(event.dataTransfer, isPicture), saved = firstOf(event.dataTransfer, ({ name }) => name.endsWith(".json"));
  if (picture) take(picture);
  else if (saved) page.open(saved);
  else attempt(() => { throw new Error("Drop a picture, or a file that was saved here."); });
}

/** A file onto the pad. */
const take = (file) => attempt(async () => {
  page.leave();
  if (file.size > LARGEST) throw new Error("This picture is too large: choose one of at most 40 MB.");
  const picture = await createImageBitmap(file).catch(() => null);
  if (!picture) throw new Error("This browser cannot read that picture: choose a PNG, JPEG or WebP file.");
  page.show(shrink(picture, picture.width, picture.height));
  picture.close();
});

/** On white paper, and no larger than needed. */
function shrink(picture, width, height) {
  const scale = Math.min(1, SIDE / Math.max(width, height)), canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(scale * width));
  canvas.height = Math.max(1, Math.round(scale * height));
  const context = canvas.getContext("2d", { alpha: false });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  if (!page.coloured()) context.filter = "grayscale(1)"; // colours say nothing to the network, and take room
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas;
}

async function look() {
  page.leave();
  $("#camera-problem").textContent = "";
  $("#camera-take").disabled = true;
  $("#camera-dialog").showModal();
  try {
    const opened = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
    if (!$("#camera-dialog").open) { // closed while the browser asked
      for (const track of opened.getTracks()) track.stop();
      return;
    }
    stream = opened;
    $("#video").srcObject = stream;
    await $("#video").play();
    $("#camera-take").disabled = false;
    $("#camera-take").focus();
  } catch (error) {
    $("#camera-problem").textContent = error.name === "NotAllowedError" ? "The browser does not let this page use the camera."
      : "There is no camera that can be used.";
  }
}

/** The camera is off whenever its dialog is closed. */
export function stop() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  $("#video").srcObject = null;
}
