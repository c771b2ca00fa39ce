// Scales, and text that is read on them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { scale } from "../../playground/maths/colour.js";
import { legible } from "../../playground/maths/contrast.js";

const LIGHT = { panel: "rgb(255, 255, 255)", accent: "rgb(28, 95, 201)", contrast: "rgb(176, 74, 0)" };
const DARK = { panel: "rgb(23, 27, 33)", accent: "rgb(125, 177, 255)", contrast: "rgb(255, 166, 87)" };

test("text on any colour of a scale has a contrast of 4.5 at least, in both schemes", () => {
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => 0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2]);
  for (const palette of [LIGHT, DARK]) {
    for (let value = -1; value <= 1; value += 0.01) {
      const below = scale(palette, true)(value), text = legible(below) === "#000" ? [0, 0, 0] : [255, 255, 255];
      const [dark, light] = [below, text].map(luminance).sort((a, b) => a - b);
      assert.ok((light + 0.05) / (dark + 0.05) >= 4.5, `${value}: ${below} ${text} ${(light + 0.05) / (dark + 0.05)}`);
    }
  }
});

test("a scale goes from the panel's colour to the accent's, and to the contrast colour below zero", () => {
  assert.deepEqual(scale(LIGHT)(0), [255, 255, 255]);
  assert.deepEqual(scale(LIGHT)(1), [28, 95, 201]);
  assert.deepEqual(scale(LIGHT, true)(-2), [176, 74, 0]);
});
