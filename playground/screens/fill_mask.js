// Fill-mask: what two prompts make likely at their masks; and templates by words.

import { ORDERS, filled, pairs, times, union } from "../maths/fills.js";
import { fixed, percent, plural } from "../maths/numbers.js";
import { toUtf16 } from "../maths/offsets.js";
import { visible } from "../maths/visible.js";
import { batches } from "../maths/words.js";
import { insert } from "../parts/controls.js";
import { fill, h, roving } from "../parts/h.js";
import { scatter } from "../parts/scatter.js";
import { bars, table, tableButtons } from "../parts/shapes.js";

// Prompts that differ in a word. What they show of a model's bias is named as such.
const PRESETS = [
  ["Texas / New York", "In Texas, they like to buy [MASK].", "In New York, they like to buy [MASK]."],
  ["Bias: the doctor / the nurse", "The doctor said that [MASK] was tired.", "The nurse said that [MASK] was tired."],
  ["Bias: he / she", "He worked as a [MASK].", "She worked as a [MASK]."],
  ["Bias: man / woman", "The man is good at [MASK].", "The woman is good at [MASK]."],
  ["Summer / winter", "In summer, people wear [MASK].", "In winter, people wear [MASK]."],
];
const GRID = { templates: "The {} said that [MASK] was tired.\nThe {} thinks that [MASK] is right.", words: "doctor, nurse, teacher", targets: "he, she" };
const listOf = (text) => [...new Set(text.split(/[,\n]/).map((word) => word.trim()).filter(Boolean))];

/** @param {import("../parts/screen.js").Screen} screen */
export default function build(screen) {
  let mask = "[MASK]", latest = null, before = null;
  const withMask = (text) => text.replaceAll("[MASK]", mask);
  const mode = screen.choice("mode", { label: "Compare", options: [["prompts", "Two prompts"], ["many", "Templates and words"]] });
  const prompts = h("div", { class: "stack of-one" }), grid = h("div", { class: "stack of-many" });
  screen.input.append(prompts, grid);
  const into = prompts;
  const first = screen.text("first", { label: "First prompt", rows: 2, isMain: true, param: "texts", into }), second = screen.text("second", { label: "Second prompt, or none", rows: 2, into });
  let last = first;
  for (const each of [first, second]) each.input.addEventListener("focus", () => { last = each; });
  const maskButton = h("button", { type: "button", onclick: () => insert(last, mask) });
  const undo = h("button", { type: "button", hidden: true, onclick: () => { [first.value, second.value] = before; undo.hidden = true; screen.run(); } }, "Take the word out");
  into.append(h("div", { class: "row" }, maskButton, h("button", { type: "button", onclick: () => { [first.value, second.value] = [second.value, first.value]; screen.run(); } }, "Swap prompts"), undo));
  const top = screen.number("top_k", { label: "Fills of each prompt", min: 1, max: 50, value: 15, into }), only = screen.text("candidates", { label: "Only these words", rows: 1, placeholder: "oil, art, guns", into });
  const order = screen.choice("order", { label: "Order", options: [["first", "First prompt"], ["second", "Second"], ["difference", "Difference"], ["word", "Word"]], into: null, onchange: () => show() });
  const which = screen.choice("mask", { label: "Mask", options: [["0", "1"]], isMenu: true, into: null, onchange: () => show() });
  const templates = screen.text("templates", { label: "Templates, one a line; {} is the word", rows: 3, value: GRID.templates, into: grid }), list = screen.text("words", { label: "Words", rows: 1, value: GRID.words, into: grid });
  const targets = screen.text("targets", { label: "At the mask", rows: 1, value: GRID.targets, hint: "Without words: the three likeliest.", into: grid });

  screen.onexample = () => { mode.value = "prompts"; };

  screen.onmodel = (model) => {
    mask = model.mask_token || "[MASK]";
    maskButton.textContent = `Insert ${mask}`;
    const own = model.examples.map(({ text }) => ({ title: text, values: { first: text, second: "" } }));
    screen.presets = [...PRESETS.map(([title, one, other]) => ({ title, values: { first: withMask(one), second: withMask(other), candidates: "" } })), ...own];
  };

  /** The words that are one token; of the others, why they are not. */
  async function oneToken(words, { model, call }) {
    if (!words.length) return { known: [], why: [] };
    const { results } = await call("api/Tokenize", { model: model.name, texts: words, omit_special_tokens: true });
    const why = words.map((word, index) => {
      const { tokens } = results[index];
      if (tokens.length === 1 && !tokens[0].is_unknown) return "";
      return tokens.length > 1 ? `“${visible(word)}” is ${plural(tokens.length, "piece")} (${tokens.map(({ piece }) => visible(piece)).join(" ")}), and a mask takes one.` : `“${visible(word)}” is not in the vocabulary.`;
    });
    return { known: words.filter((_, index) => !why[index]), why: why.filter(Boolean) };
  }

  async function compare(context) {
    const { model, call } = context, texts = [first.value, second.value].filter((text) => text.trim()), wanted = listOf(only.value);
    if (texts.length && !texts.some((text) => text.includes(mask))) return fill(screen.result, texts.map((text) => h("p", { class: "panel" }, visible(text)))) && "no mask is left";
    const { known, why } = await oneToken(wanted, context);
    if (wanted.length && !known.length) return fill(screen.result, notices(why)) && "no word to compare";
    const ask = (choice) => call("api/FillMask", { model: model.name, texts, ...choice });
    let { results } = await ask(known.length ? { candidates: known } : { top_k: top.value });
    const count = Math.min(...results.map(({ masks }) => masks.length));
    // The likeliest of either prompt, looked up in both.
    if (texts.length > 1 && !known.length) results = (await ask({ candidates: union(results.flatMap(({ masks }) => masks.map(({ fills }) => fills))) })).results;
    latest = { texts, results, why };
    which.setOptions(Array.from({ length: count }, (_, index) => [String(index), String(index + 1)]));
    which.value = String(Math.min(+which.value || 0, count - 1));
    which.element.hidden = count < 2;
    show();
  }

  const notices = (why) => why.map((text) => h("p", { class: "notice" }, text));

  /** Puts a word into the mask that is shown, of both prompts. */
  function take(token) {
    before = [first.value, second.value];
    latest.texts.forEach((text, index) => {
      const { start, end } = latest.results[index].masks[+which.value];
      const whole = filled(text, toUtf16(text, start), toUtf16(text, end), token);
      (text === before[0] ? first : second).value = whole;
      if (before[0] === before[1]) second.value = whole;
    });
    undo.hidden = false;
    screen.run();
  }

  function show() {
    if (!latest || mode.value !== "prompts") return;
    const { texts, results, why } = latest, at = +which.value || 0, [one, other] = results.map(({ masks }) => masks[at].fills);
    if (!other) return fill(screen.result, notices(why), bars(one.map(({ token, score }) => ({ label: token, value: score })), { most: 1, label: "Fills", onpick: (row) => take(row.label) }));
    const rows = pairs(one, other), [most, least] = [...rows].sort((a, b) => b.ratio - a.ratio).filter((_, index, all) => index === 0 || index === all.length - 1);
    const summary = !least ? "" : `“${visible(most.token)}” is ${times(most.ratio)} in the first prompt; “${visible(least.token)}” ${times(least.ratio)} in the second. Words on the dashed line are as likely in both.`;
    rows.sort(ORDERS[order.value]);
    const cells = rows.map(({ token, first: a, second: b, ratio }) => [token, Math.exp(a), Math.exp(b), ratio]), head = ["word", "first", "second", "log ratio"];
    const points = [...rows].sort((a, b) => Math.abs(b.ratio) - Math.abs(a.ratio)).map(({ token, first: x, second: y, ratio }) => ({ x, y, label: token, kind: ratio < 0 ? "on" : "", note: `${percent(Math.exp(x))} in the first, ${percent(Math.exp(y))} in the second` }));
    const chart = scatter({ label: "Log probability of each word under both prompts", summary, points, isSquare: true, onpick: (index) => take(points[index].label),
      xTitle: `log p: ${visible(texts[0])}`, yTitle: `log p: ${visible(texts[1])}`, twin: () => ({ head, rows: cells.map(([token, ...values]) => [token, ...values.map((value) => fixed(value, 4))]) }) });
    fill(screen.result, notices(why), chart, h("div", { class: "row spread end" }, order.element, which.element, tableButtons("fills", () => [head, ...cells])), paired(rows));
  }

  /** A row for each word, its bar of the first prompt to the left and of the second to the right. */
  function paired(rows) {
    const most = Math.exp(Math.max(...rows.flatMap((row) => [row.first, row.second])));
    const bar = (value) => h("td", { class: "bar" }, h("span", null, h("span", { class: "value" }, percent(Math.exp(value))), h("span", { class: "track" }, h("span", { class: "fill", style: { "--share": Math.exp(value) / most } }))));
    const made = h("table", { class: "paired" }, h("caption", { class: "hidden" }, "Words under both prompts"), h("thead", null, h("tr", null, ["First", "Word", "Second", "Log ratio"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", null, rows.map((row) => h("tr", null, bar(row.first), h("th", { scope: "row" }, h("button", { type: "button", class: "plain", title: "Put it into the prompts", onclick: () => take(row.token) }, visible(row.token, true))), bar(row.second),
        h("td", { class: "number", title: `${times(row.ratio)} in the ${row.ratio < 0 ? "second" : "first"}` }, `${row.ratio > 0 ? "+" : ""}${fixed(row.ratio, 2)}`)))));
    roving(made, () => [...made.querySelectorAll("button")]);
    return made;
  }

  async function tabulate(context) {
    const { model, call } = context, words = listOf(list.value), { known, why } = await oneToken(listOf(targets.value), context);
    const cases = templates.value.split("\n").filter((line) => line.trim()).flatMap((template) => (template.includes("{}") ? words : [""]).map((word) => [withMask(template).replaceAll("{}", () => word), word]));
    const answers = [];
    for (const part of batches(cases, 32)) answers.push(...(await call("api/FillMask", { model: model.name, texts: part.map(([text]) => text), ...(known.length ? { candidates: known } : { top_k: 3 }) })).results);
    const head = ["Text", "Word", ...(known.length ? known : ["1st", "2nd", "3rd"])], score = (fills) => new Map(fills.map((each) => [each.token, each.score]));
    const rows = cases.map(([text, word], index) => {
      const { fills } = answers[index].masks[0], of = score(fills);
      return [text, word, ...(known.length ? known.map((token) => of.get(token)) : fills.map(({ token, score: value }) => `${token} ${percent(value)}`))];
    });
    fill(screen.result, notices(why), table(head, rows.map((row) => row.map((value, column) => (typeof value === "number" ? percent(value) : h("span", { class: column > 1 ? "whole" : null }, visible(value))))), { caption: "Fills of each template and word" }), h("div", null, tableButtons("templates", () => [head, ...rows])));
  }

  screen.action((context) => (mode.value === "many" ? tabulate(context) : compare(context)));
}
