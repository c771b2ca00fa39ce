// Text goes on in its place: streamed, coloured, cut at any token and continued from another, side by side.

import * as branches from "../maths/branches.js";
import { count, duration, fixed, percent, plural } from "../maths/numbers.js";
import { entropy } from "../maths/sampling.js";
import { visible } from "../maths/visible.js";
import { json } from "../api/client.js";
import { conversation, promptTokens, spelledPrompt } from "../parts/conversation.js";
import { announce, copyButton, fill, h } from "../parts/h.js";
import { outputBox } from "../parts/output_box.js";
import { samplingControls } from "../parts/sampling_controls.js";
import { bars, tokenRow } from "../parts/shapes.js";

const LIKELIEST = 20, SHOWN = 10; // tokens that are requested at each place, and listed
const MOST_VIEWS = 200; // that Undo goes back through
const COLOURS = { probability: "Less likely tokens are darker.", rank: "Tokens of a lower rank are darker.", entropy: `The darker, the more open the choice was: bits of entropy, at least, of the ${LIKELIEST} likeliest.`, none: "" };

/** @param {import("../parts/screen.js").Screen} screen */
export default function build(screen) {
  const all = []; // branches of this page, in the order they were made
  let views = [{ prompt: "", parent: null, keep: 0, lanes: [] }], at = 0, plan = null, pinned = null, isFirst = true;
  const view = () => views[at], current = () => view().lanes[0] ?? null;
  const text = outputBox({ label: "Prompt", placeholder: "Write the beginning of a text", onchange: () => update() });
  screen.element.classList.add("flipped");
  screen.result.ariaLabel = "Token and settings";
  const chat = conversation(screen, { onchange: () => update(), render: async (messages) => spelledPrompt(await promptTokens((path, body) => json(path, { body }), screen.model.name, messages)) });
  screen.add(text, { isMain: true });
  screen.add(chat);
  const columns = h("div", { class: "lanes" }), crumbs = h("nav", { "aria-label": "Branches", class: "small" }), details = h("section", { class: "panel stack", "aria-label": "Token" });
  const button = (words, onclick) => h("button", { type: "button", onclick }, words);
  const undo = button("Undo", () => move(-1)), redo = button("Redo", () => move(1)), again = button("Regenerate", () => start({ ...view() }));
  const clear = button("Clear", () => push({ prompt: text.value, parent: null, keep: 0, lanes: [] })), reply = button("Next message", () => {
    chat.value = [...chat.value, { role: "user", content: text.value }, { role: "assistant", content: wholeText().slice(text.value.length) }];
    push({ prompt: "", messages: chat.value, parent: null, keep: 0, lanes: [] });
    text.focus();
  }), edit = button("Edit all", () => {
    const whole = wholeText();
    push({ prompt: whole, parent: null, keep: 0, lanes: [] });
    text.focus();
  });
  screen.action(run, { label: "Generate" });
  screen.runButton.parentElement.after(h("div", { class: "row" }, reply, undo, redo, again, edit, clear, copyButton(wholeText)));
  screen.input.append(columns, crumbs);
  const colour = screen.choice("colour", { label: "Colour", options: Object.keys(COLOURS).map((key) => [key, key[0].toUpperCase() + key.slice(1)]), value: "probability", into: null });
  colour.onchange = wrap(colour.onchange, () => render());
  const legend = h("p", { class: "small soft" });
  screen.input.insertBefore(h("div", null, colour.element, legend), columns);

  // Settings, and a second set to compare with.
  const settings = h("section", { class: "panel stack", "aria-label": "Settings" }, h("h2", null, "Settings"));
  screen.result.append(details, settings);
  const sampling = samplingControls(screen, settings, { first: { temperature: 0.8 } }), more = h("div", { class: "compact" });
  settings.append(more);
  const length = screen.number("max_tokens", { label: "Tokens at most", min: 1, max: 512, value: 60, into: more });
  const seed = screen.number("seed", { label: "Seed", isBare: true, min: 0, value: 0, into: more });
  const isKept = screen.toggle("keep_seed", { label: "Keep the seed", into: more });
  const samples = screen.choice("n", { label: "Samples side by side", options: ["1", "2", "3", "4"], value: "1", into: more });
  const stop = screen.text("stop", { label: "Stop texts, one in a line; \\n is a line break", rows: 2, into: settings, param: "stop" });
  const isCompared = screen.toggle("compare", { label: "Compare with another model or other settings", into: settings });
  const second = h("div", { class: "stack" }), other = screen.choice("other_model", { label: "Second model", options: [], isMenu: true, into: second, param: "" });
  const otherSampling = samplingControls(screen, second, { prefix: "other_", first: { temperature: 0 } });
  settings.append(second);
  isCompared.onchange = wrap(isCompared.onchange, () => update());
  const given = screen.given.other_model;
  screen.onmodel = () => {
    const names = screen.models.map((model) => model.name), chosen = other.value || given;
    other.setOptions(names);
    other.value = names.includes(chosen) ? chosen : screen.model.name;
    other.initial = screen.model.name;
    length.input.max = screen.model.max_tokens;
    chat.update();
  };
  render();

  function wholeText() { return text.value + (view().lanes.length === 1 ? branches.written(current()).filter((token) => !token.isCut).map((token) => token.text).join("") : ""); }

  function push(next) {
    screen.stop();
    views = [...views.slice(Math.max(0, at + 2 - MOST_VIEWS), at + 1), next];
    at = views.length - 1;
    show();
  }

  function move(step) {
    screen.stop();
    if (!views[at + step]) return;
    if (view().lanes.length === 0) view().prompt = text.value;
    at += step;
    show();
  }

  function show() {
    text.value = view().prompt;
    if (view().messages) chat.value = view().messages;
    pinned = null;
    render();
    screen.changed();
  }

  /** Runs what `next` says in place of what the button would. */
  function start(next) {
    plan = next;
    screen.run();
  }

  function isStale() { return view().lanes.length > 0 && (text.value !== view().prompt || JSON.stringify(chat.before(text.value)) !== JSON.stringify(current().before)); }

  // Buttons by what is shown.
  function update() {
    const stale = isStale(), hasOutput = view().lanes.length > 0;
    text.isStale = stale;
    columns.classList.toggle("stale", stale);
    screen.runButton.textContent = view().lanes.length === 1 && !stale ? "Continue" : "Generate";
    undo.disabled = at === 0;
    redo.disabled = at === views.length - 1;
    again.disabled = clear.disabled = edit.disabled = !hasOutput || stale;
    [reply.hidden, edit.hidden] = [!chat.isChat, chat.isChat];
    text.box.classList.toggle("chat", chat.isChat);
    reply.disabled = again.disabled || view().lanes.length !== 1;
    second.hidden = !isCompared.value;
    legend.textContent = COLOURS[colour.value];
  }

  async function run({ model, call, stream }) {
    const next = plan ?? (view().lanes.length === 1 && !isStale() ? { parent: current(), keep: branches.written(current()).filter((token) => !token.isCut).length } : { parent: null, keep: 0 });
    plan = null;
    if (!isKept.value && !(isFirst && screen.given.run)) seed.value = Math.floor(Math.random() * 2 ** 31);
    isFirst = false;
    screen.changed();
    const common = { max_tokens: length.value, stop: stop.value.split("\n").filter(Boolean).map((each) => each.replaceAll("\\n", "\n")), logprobs: LIKELIEST, seed: seed.value, fit_max_tokens: true };
    const sides = [{ model: model.name, sampling: sampling.values }, ...(isCompared.value ? [{ model: other.value, sampling: otherSampling.values }] : [])];
    const prompt = next.parent?.prompt ?? text.value, before = next.parent ? next.parent.before : chat.before(prompt), messages = chat.value, lanes = [];
    for (const side of sides) {
      const isGreedy = side.sampling.temperature === 0;
      side.settings = { ...side.sampling, ...common, n: isGreedy ? 1 : +samples.value };
      side.lanes = Array.from({ length: side.settings.n }, () => ({ id: all.length + lanes.length, parent: next.parent ?? null, keep: next.keep, tokens: next.picked ? [next.picked] : [], prompt, before, messages, model: side.model, settings: side.settings, text: next.picked ? branches.spelled(next.picked.bytes) : "", finish: "", decoder: new TextDecoder() }));
      lanes.push(...side.lanes);
    }
    if (at === 0 && !view().lanes.length) view().prompt = prompt;
    const running = { prompt, messages, parent: next.parent ?? null, keep: next.keep, picked: next.picked, lanes };
    all.push(...lanes);
    views = [...views.slice(Math.max(0, at + 2 - MOST_VIEWS), at + 1), running];
    at = views.length - 1;
    pinned = null;
    render();
    const ended = await Promise.allSettled(sides.map((side) => generate(side, call, stream)));
    if (view() === running) render();
    const failed = ended.find((each) => each.status === "rejected");
    if (failed) throw failed.reason;
    return sides.map(summary).join(" · ");
  }

  async function generate(side, call, stream) {
    const [first] = side.lanes, { prompt } = first, hasOne = branches.lineage(first).every((each) => each.model === side.model), before = branches.path(first), body = { model: side.model, sampling_params: { ...side.settings } };
    if (!before.length && first.before) body.conversation = { messages: first.before };
    else if (!before.length) body.text = prompt;
    else if (first.before) body.token_ids = { ids: [...(await promptTokens(call, side.model, first.before)), ...before].map((token) => token.id) };
    else if (!hasOne) body.text = prompt + branches.texts(before).join("");
    else {
      const { results: [{ tokens }] } = await call("api/Tokenize", { model: side.model, texts: [prompt] });
      body.token_ids = { ids: [...tokens, ...before].map((token) => token.id) };
    }
    if (first.parent?.finish === "FINISH_REASON_STOP") body.sampling_params.min_tokens = 1; // else it ends again at once
    let count = 0, sentence = "";
    const started = performance.now();
    for await (const event of stream("api/Generate", body)) {
      const lane = side.lanes[event.sample_index ?? 0];
      for (const each of event.logprobs ?? []) {
        const token = branches.tokenOf(each);
        lane.tokens.push(token);
        lane.row?.add(item({ ...token, text: lane.decoder.decode(token.bytes, { stream: true }) }));
        count++;
      }
      lane.text += event.text ?? "";
      if (event.finish_reason) Object.assign(lane, { finish: event.finish_reason, reason: event.stop_reason });
      if (event.usage) Object.assign(side, { usage: event.usage, timings: event.timings ?? {} });
      const seconds = (performance.now() - started) / 1e3;
      screen.status.textContent = `${plural(count, "token")}, ${fixed(count / seconds, 0)} tokens/s`;
      if (lane === first && /[.!?]\s/.test((sentence += event.text ?? ""))) {
        announce(sentence);
        sentence = "";
      }
    }
  }

  /** Numbers of a request in words. */
  function summary({ usage = {}, timings = {}, lanes }) {
    const out = usage.output_tokens ?? 0, reason = lanes.length > 1 ? null : lanes[0].finish === "FINISH_REASON_LENGTH" ? "length limit reached" : lanes[0].reason ? `ended at ${JSON.stringify(lanes[0].reason)}` : "ended by the model";
    return [plural(out, "token"), timings.total_seconds && `${fixed(out / timings.total_seconds, 0)} tokens/s`, `first token ${duration(timings.time_to_first_token_seconds)}`, `queue ${duration(timings.queue_seconds ?? 0)}`,
      `${count(usage.reused_tokens ?? 0)} of ${plural(usage.prompt_tokens ?? 0, "prompt token")} reused`, reason].filter(Boolean).join(", ");
  }

  /** A token as the row shows it. */
  function item(token, differs = false) {
    const place = branches.rank(token), bits = token.top.length ? entropy(token.top.map((each) => each.logprob)) : 0;
    const shade = { probability: Math.min(1, -token.logprob / Math.LN2 / 14), rank: place ? Math.log2(place) / Math.log2(LIKELIEST) : 1, entropy: Math.min(1, bits / 8), none: 0 }[colour.value];
    const words = [percent(Math.exp(token.logprob)), place ? `rank ${place}` : `not among the ${LIKELIEST} likeliest`, token.isPicked && "chosen by you", token.isCut && "ended the text", differs && "differs"];
    return { text: token.text.replaceAll("\n", "↵\n"), shade, isWarm: colour.value !== "entropy", title: words.filter(Boolean).join(", ") };
  }

  /** The row of a branch's tokens from `start` on. */
  function row(branch, start, label, others) {
    const tokens = branches.written(branch).slice(start), differs = others ? branches.differing(tokens.map((token) => token.text), others) : [];
    const made = tokenRow(tokens.map((token, index) => item(token, differs[index])), { label, onfocus: (index, element) => inspect(index === null ? pinned : { branch, place: start + index, element }),
      onpick: (index, element) => {
        pinned = { branch, place: start + index, element };
        inspect(pinned);
        if (element === document.activeElement) details.querySelector("button")?.focus({ preventScroll: true });
      } });
    tokens.forEach((token, index) => {
      if (token.isCut) made.children[index].classList.add("cut");
      if (differs[index]) made.children[index].classList.add("differs");
    });
    branch.row = made;
    return made;
  }

  function render() {
    const { lanes, parent, keep } = view(), isOne = lanes.length === 1;
    const lead = isOne ? row(lanes[0], 0, "Output") : parent ? row({ parent, keep, tokens: [], text: "", finish: "" }, 0, "Output before the samples") : null;
    text.show(lead);
    const words = isOne ? [] : lanes.map((lane) => branches.written(lane).slice(lane.keep).map((token) => token.text));
    fill(columns, isOne ? null : lanes.map((lane, index) => h("section", { class: "panel stack", "aria-label": title(lane) }, h("div", { class: "row spread" }, h("h2", null, title(lane)), button("Keep this", () => push({ ...view(), lanes: [lane] }))),
      row(lane, lane.keep, title(lane), isCompared.value && index ? words[0] : null))));
    columns.hidden = isOne || !lanes.length;
    showBranches();
    inspect(null);
    update();
  }

  /** What tells a lane from those beside it. */
  function title(lane) {
    const { lanes } = view(), [first] = lanes, names = Object.keys({ ...first.settings, ...lane.settings }).filter((name) => lanes.some((each) => JSON.stringify(each.settings[name]) !== JSON.stringify(lane.settings[name])) && !["n"].includes(name));
    const words = [lanes.some((each) => each.model !== lane.model) && lane.model, ...names.map((name) => `${name.replaceAll("_", "-")} ${lane.settings[name] ?? "off"}`)].filter(Boolean).join(", ");
    const same = lanes.filter((each) => each.model === lane.model && each.settings === lane.settings);
    const whole = [words, same.length > 1 || !words ? `sample ${same.indexOf(lane) + 1}` : ""].filter(Boolean).join(", ");
    return whole.startsWith(lane.model) ? whole : whole[0].toUpperCase() + whole.slice(1);
  }

  function showBranches() {
    const leaf = current(), open = (branch) => () => push({ prompt: branch.prompt, messages: branch.messages, parent: branch.parent, keep: branch.keep, picked: branch.tokens[0]?.isPicked ? branch.tokens[0] : undefined, lanes: [branch] });
    const name = (branch) => {
      const [token] = branch.tokens, start = branch.parent ? `Token ${branch.keep + 1}: ` : "";
      return start + (token ? `“${visible(branches.texts(branch.tokens).join(""), true).slice(0, 24)}”` : "nothing");
    };
    const link = (branch, isHere) => h("button", { type: "button", class: "plain", "aria-current": isHere ? "true" : null, onclick: open(branch) }, name(branch));
    const list = (parent) => {
      const children = all.filter((each) => each.parent === parent);
      return children.length ? h("ul", null, children.map((each) => h("li", null, link(each, each === leaf), list(each)))) : null;
    };
    const wasOpen = crumbs.querySelector("details")?.open;
    fill(crumbs, all.length < 2 ? null : [h("ol", { class: "crumbs" }, h("li", null, "Prompt"), branches.lineage(leaf).map((each) => h("li", null, link(each, each === leaf)))),
      h("details", { open: wasOpen ?? false }, h("summary", null, `All branches (${all.length})`), h("div", { class: "branches" }, list(null)))]);
  }

  /** Shows what could have stood at a place. @param {{branch: branches.Branch, place: number}|null} where */
  function inspect(where) {
    const token = where && branches.written(where.branch)[where.place];
    if (!token) return fill(details, h("h2", null, "Token"), h("p", { class: "soft" }, view().lanes.length ? "Point at a token, or go to it by Tab and the arrow keys, to see what could have stood there." : "Generate a text, and choose one of its tokens."));
    const [owner] = branches.owner(where.branch, where.place), { temperature = 1 } = owner.settings, place = branches.rank(token), chosen = { id: token.id, bytes: token.bytes, logprob: token.logprob };
    const listed = [...token.top.slice(0, SHOWN), ...(place && place <= SHOWN ? [] : [chosen])];
    const how = token.isPicked ? "You chose it" : temperature === 0 ? "It was the likeliest" : `Chosen at temperature ${temperature}`;
    for (const each of screen.input.querySelectorAll(".token.on")) each.classList.remove("on");
    where.element?.classList.add("on");
    fill(details, h("h2", null, "Token ", h("span", { class: "mono" }, visible(token.text || branches.spelled(token.bytes), true))),
      h("p", { class: "small soft" }, `${how}, from ${percent(Math.exp(token.logprob))}${place ? `, rank ${place}` : ""}. Entropy at least ${fixed(entropy(token.top.map((each) => each.logprob)), 1)} bits.`),
      bars(listed.map((each) => ({ label: branches.spelled(each.bytes), value: Math.exp(each.logprob), isOn: each.id === token.id, title: `id ${each.id}` })), { most: 1, label: "Likeliest tokens; choosing one goes on from it", isToken: true,
        onpick: (_, index) => listed[index].id !== token.id && start({ parent: owner, keep: where.place, picked: { ...listed[index], top: token.top, isPicked: true } }) }),
      h("p", { class: "small soft" }, "Choose another token to cut the text there and go on from it."));
  }
}

/** Calls one function after another. */
const wrap = (first, second) => (value) => {
  first?.(value);
  second(value);
};
