// From any picture to what the network sees: as the server does it.

import { greyOf, inkOf, shrink, SIDE } from "./drawing.js";
import { frame } from "./photograph.js";

/** The grey levels of a PNG in base64. */
export async function decode(png) {
  const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  return greyOf(canvas);
}

/** Levels of ink as bytes, side × side of them; throws if there is no ink. */
export function see(grey, { side }) {
  const isDrawing = grey.width === SIDE && grey.height === SIDE;
  return shrink(isDrawing ? inkOf(grey) : frame(grey), side);
}
