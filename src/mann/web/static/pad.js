// The drawing area: mouse, touch, pen and keyboard. Strokes are kept as points between 0 and 1.

import { seenOn, SIDE } from "./drawing.js";

const PEN = 0.03; // of the side, as the pens of the training data
const FILL = 0.62; // of the side that a drawing fills when it is sent, as characters of the training data do
const MOST_LETTERS = 150_000; // of a picture that is sent, in base64

export class Pad {
  /** `onStart()` is called when the pen touches the paper, `onChange(done)` when the drawing has changed. */
  constructor(canvas, onStart, onChange) {
    this.canvas = canvas;
    this.onStart = onStart;
    this.onChange = onChange;
    this.strokes = [];
    this.picture = null; // a canvas from elsewhere, in place of strokes
    this.active = null; // the pointer that draws
    this.cursor = null; // the keyboard's pen: position, and whether it is down
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.up(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  get empty() { return this.strokes.length === 0 && !this.picture; }

  clear() { this.show(null); }

  undo() {
    this.lift();
    if (this.picture) this.picture = null;
    else this.strokes.pop();
    this.changed(true);
  }

  /** Put a picture in place of what was drawn; null: nothing. */
  show(picture) {
    this.lift();
    this.strokes = [];
    this.picture = picture;
    this.changed(true);
  }

  /** What is drawn from here on is a new stroke. */
  lift() {
    this.active = null;
    if (this.cursor) this.cursor.down = false;
  }

  /** The keyboard is used for something else: its pen is lifted. */
  leave() {
    const drawing = this.cursor?.down;
    this.cursor = null;
    if (drawing) this.changed(true);
    else this.paint();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const clip = (value) => Math.min(1, Math.max(0, value));
    return [clip((event.clientX - box.left) / box.width), clip((event.clientY - box.top) / box.height)];
  }

  down(event) {
    if (this.active !== null || event.button > 0) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.cursor = null;
    this.active = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.picture = null; // whoever draws, draws on white paper
    this.strokes.push([this.point(event)]);
    this.paint(); // what it will be shows only when the pen moves, or is lifted: then it is a dot
    this.onStart();
  }

  move(event) {
    if (event.pointerId !== this.active) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length ? events : [event]) this.strokes.at(-1).push(this.point(each));
    this.changed(false);
  }

  up(event) {
    if (event.pointerId !== this.active) return;
    this.active = null;
    this.changed(true);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const direction = directions[event.key];
    if (!direction && ![" ", "Backspace", "Delete"].includes(event.key)) return;
    event.preventDefault();
    this.cursor ??= { x: 0.5, y: 0.5, down: false };
    if (event.key === "Backspace") return this.undo();
    if (event.key === "Delete") return this.clear();
    if (event.key === " ") {
      if (event.repeat) return;
      this.cursor.down = !this.cursor.down;
      if (!this.cursor.down) return this.changed(true);
      this.picture = null;
      this.strokes.push([[this.cursor.x, this.cursor.y]]);
      this.paint();
      return this.onStart();
    }
    const stride = event.shiftKey ? 0.01 : 0.04;
    this.cursor.x = Math.min(1, Math.max(0, this.cursor.x + stride * direction[0]));
    this.cursor.y = Math.min(1, Math.max(0, this.cursor.y + stride * direction[1]));
    if (!this.cursor.down) return this.paint();
    this.strokes.at(-1).push([this.cursor.x, this.cursor.y]);
    this.changed(false);
  }

  changed(done) {
    this.paint();
    this.onChange(done);
  }

  paint() {
    const side = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.canvas.height = Math.round(side * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    if (this.picture) {
      const { width, height } = this.picture, scale = side / Math.max(width, height);
      context.drawImage(this.picture, (side - scale * width) / 2, (side - scale * height) / 2, scale * width, scale * height);
    }
    this.ink(context, side, ([x, y]) => [x * side, y * side]);
    if (this.cursor) {
      const { x, y, down } = this.cursor;
      context.beginPath();
      context.arc(x * side, y * side, 7, 0, 7);
      context.strokeStyle = context.fillStyle = "#c75b12";
      context.lineWidth = 2;
      if (down) context.fill(); else context.stroke();
    }
  }

  ink(context, side, place, pen = PEN) {
    context.strokeStyle = context.fillStyle = "#111";
    context.lineWidth = pen * side;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.strokes) {
      // A dot where the pen came down: browsers paint nothing for a line without length.
      context.beginPath();
      context.arc(...place(stroke[0]), pen * side / 2, 0, 2 * Math.PI);
      context.fill();
      context.beginPath();
      context.moveTo(...place(stroke[0]));
      for (const point of stroke.slice(1)) context.lineTo(...place(point));
      context.stroke();
    }
  }

  /** What is sent: a drawing as a network of so many grey pixels per side sees it, where that is known; else a PNG. */
  content(side) {
    return this.picture || !side ? { image: this.png() } : { pixels: seenOn(this.drawing(), side) };
  }

  /** A PNG in base64: of a picture as it is. */
  png() {
    return this.picture ? this.pictureAsPng() : this.drawing().toDataURL("image/png").split(",")[1];
  }

  /** What was drawn, on a canvas of its own: centred, and scaled to the size that the network is used to. */
  drawing() {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = SIDE;
    const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    context.fillStyle = "#fff";
    context.fillRect(0, 0, SIDE, SIDE);
    const points = this.strokes.flat();
    const range = (axis) => {
      const values = points.map((point) => point[axis]);
      return [Math.min(...values), Math.max(...values)];
    };
    const [left, right] = range(0), [top, bottom] = range(1);
    const extent = Math.max(right - left, bottom - top);
    const dot = extent < 0.05; // it stays a dot, of a thick pen: a thin one's is hardly seen in 20×20 pixels
    const scale = dot ? 1 : Math.min(2.5, FILL / extent);
    const middle = [(left + right) / 2, (top + bottom) / 2];
    const place = (point) => point.map((value, i) => SIDE * (0.5 + scale * (value - middle[i])));
    this.ink(context, SIDE, place, dot ? 2 * PEN : PEN);
    return canvas;
  }

  /** As large as may be sent. */
  pictureAsPng() {
    const { width, height } = this.picture;
    for (let scale = 1; ; scale *= 0.8) {
      const canvas = document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(scale * width));
      canvas.height = Math.max(1, Math.round(scale * height));
      canvas.getContext("2d", { alpha: false }).drawImage(this.picture, 0, 0, canvas.width, canvas.height);
      const png = canvas.toDataURL("image/png").split(",")[1];
      if (png.length <= MOST_LETTERS) return png;
    }
  }
}
