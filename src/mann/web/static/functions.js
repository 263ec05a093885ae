// The page of functions: points in the browser, the band from the server.

import { ask } from "./transport.js";

const WIDTH = 800, HEIGHT = 420, SVG = "http://www.w3.org/2000/svg";
const plot = document.getElementById("plot");
const problem = document.getElementById("problem");
let points = [];
let asked = 0; // only the newest answer is drawn

const across = (x) => WIDTH * x;
const down = (y) => HEIGHT * (1 - y);

function line(xs, ys) {
  return xs.map((x, i) => `${across(x).toFixed(1)},${down(ys[i]).toFixed(1)}`);
}

function band(answer, width) {
  const upper = line(answer.x, answer.mean.map((m, i) => m + width * answer.scale[i]));
  const lower = line(answer.x, answer.mean.map((m, i) => m - width * answer.scale[i])).reverse();
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M${[...upper, ...lower].join("L")}Z`);
  return path;
}

function drawPoints() {
  const circles = points.map(([x, y]) => {
    const circle = document.createElementNS(SVG, "circle");
    circle.setAttribute("cx", across(x));
    circle.setAttribute("cy", down(y));
    circle.setAttribute("r", 6);
    return circle;
  });
  document.getElementById("points").replaceChildren(...circles);
  document.getElementById("hint").style.display = points.length ? "none" : "";
  const words = points.length === 1 ? "1 point" : `${points.length} points`;
  document.getElementById("count").textContent = points.length ? words : "No points yet";
}

async function update() {
  drawPoints();
  const mine = ++asked;
  try {
    const answer = await ask("/api/functions", { points });
    if (mine !== asked) return;
    document.getElementById("bands").replaceChildren(band(answer, 1.96), band(answer, 0.674));
    document.getElementById("mean").setAttribute("points", line(answer.x, answer.mean).join(" "));
    problem.hidden = true;
  } catch (error) {
    if (mine !== asked) return;
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

function add(x, y) {
  const within = (n) => Math.min(1, Math.max(0, n));
  points = [...points, [within(x), within(y)]];
  update();
}

plot.addEventListener("click", (event) => {
  const box = plot.getBoundingClientRect();
  add((event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height);
});
document.getElementById("add").addEventListener("submit", (event) => {
  event.preventDefault();
  add(Number(document.getElementById("x").value), Number(document.getElementById("y").value));
});
document.getElementById("undo").addEventListener("click", () => { points = points.slice(0, -1); update(); });
document.getElementById("clear").addEventListener("click", () => { points = []; update(); });
update();
