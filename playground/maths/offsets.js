// Offsets of the API count code points; strings of JavaScript count halves of astral characters.

/** The index in UTF-16 of a code point. @param {string} text @param {number} offset in code points */
export function toUtf16(text, offset) {
  let index = 0;
  for (; offset > 0 && index < text.length; offset--) index += text.codePointAt(index) > 0xffff ? 2 : 1;
  return index;
}

/** The number of code points before an index. @param {string} text @param {number} index in UTF-16 */
export const fromUtf16 = (text, index) => [...text.slice(0, index)].length;

/** A part of a text, by code points. @param {string} text @param {number} start @param {number} [end] */
export const slice = (text, start, end = Infinity) => text.slice(toUtf16(text, start), end === Infinity ? undefined : toUtf16(text, end));

/**
 * The text cut at spans (code points, in order, not overlapping): pieces with `span` where one covers them.
 * @template T @param {string} text @param {(T & {start: number, end: number})[]} spans
 * @returns {{text: string, span?: T}[]}
 */
export function pieces(text, spans) {
  const points = [...text], cut = [];
  let at = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < at || span.end <= span.start) continue;
    if (span.start > at) cut.push({ text: points.slice(at, span.start).join("") });
    cut.push({ text: points.slice(span.start, span.end).join(""), span });
    at = span.end;
  }
  if (at < points.length) cut.push({ text: points.slice(at).join("") });
  return cut;
}
