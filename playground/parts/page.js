// Elements, shapes and pictures, which most screens are made of.

export * from "./h.js";
export * from "./picture.js";
export * from "./shapes.js";
