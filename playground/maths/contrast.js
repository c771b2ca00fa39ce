// Text that is read on any colour.

import { rgb } from "./colour.js";

/** Colours' contrast is the difference of this. */
const lightness = ([red, green, blue]) => Math.log(0.05 + 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2);
/** That of two colours which is read best on another. @param {number[]} below @param {string[]} texts */
export function legible(below, texts) {
  const [one, other] = texts.map((text) => Math.abs(lightness(rgb(text)) - lightness(below)));
  return texts[+(other > one)];
}
