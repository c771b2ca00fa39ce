// Text goes on in its place: streamed, coloured, cut at any token and continued from another, side by side.

import * as branches from "../maths/branches.js";
import { duration, fixed, plural } from "../maths/numbers.js";
import { announce, copyButton, fill, h } from "../parts/h.js";
import { outputBox } from "../parts/output_box.js";
import { tokenRow } from "../parts/shapes.js";
import { COLOURS, branchList, generationSettings, tokenItem, tokenPanel } from "./generate_parts.js";

const MOST = 200; // views that Undo goes back through, and branches that are listed
const NO_CHAT = { value: [], isChat: false, before: () => null, update() {} };
const NOTHING = Object.freeze({ prompt: "", parent: null, keep: 0, lanes: [] });

/** @param {import("../parts/screen.js").Screen} screen */
export default function build(screen) {
  const all = [], history = new branches.History({ ...NOTHING }, MOST), view = () => history.now, current = () => view().lanes[0] ?? null; // branches of this page
  let plan = null, pinned = null;
  const text = outputBox({ onchange: () => update() });
  screen.element.classList.add("flipped");
  screen.result.ariaLabel = "Token and settings";
  const above = h("div", { class: "stack", hidden: true });
  let chat = NO_CHAT; // until a model has a chat template
  screen.input.append(above);
  screen.add(text, { isMain: true });
  const button = (words, onclick) => h("button", { type: "button", onclick }, words), undo = button("Undo", () => move(-1)), redo = button("Redo", () => move(1)), again = button("Regenerate", () => start(view()));
  const clear = button("Clear", () => push({ ...NOTHING, prompt: text.value })), edit = button("Edit all", () => write({ prompt: text.value + output() }));
  const reply = button("Next message", () => write({ messages: [...chat.value, { role: "user", content: text.value }, { role: "assistant", content: output() }] }));
  const columns = h("div", { class: "lanes" }), crumbs = h("nav", { "aria-label": "Branches", class: "small" }), legend = h("p", { class: "small soft" });
  screen.action(run, { label: "Generate" });
  screen.runButton.parentElement.after(h("div", { class: "row" }, reply, undo, redo, again, edit, clear, copyButton(() => text.value + output())));
  const colour = screen.choice("colour", { label: "Colour", options: Object.keys(COLOURS).map((key) => [key, key[0].toUpperCase() + key.slice(1)]), value: "probability", onchange: () => render() });
  screen.input.append(legend, columns, crumbs);
  const settings = generationSettings(screen, () => update()), panel = tokenPanel((parent, keep, picked) => start({ parent, keep, picked }));
  screen.result.append(panel.element, settings.element);
  panel.element.addEventListener("keydown", (event) => event.key === "Escape" && pinned?.element.focus());
  screen.onmodel = async (model) => {
    settings.onmodel();
    if (model.has_chat_template && chat === NO_CHAT) {
      const { conversation } = await import("../parts/conversation.js");
      chat = screen.add(conversation(screen, above, () => update()));
      above.hidden = false;
    }
    chat.update();
  };
  render();

  /** The text that was generated, where it is one. */
  function output() { return view().lanes.length === 1 ? branches.written(current()).filter((token) => !token.isCut).map((token) => token.text).join("") : ""; }

  function push(next) {
    screen.stop();
    history.push(next);
    show();
  }

  function write(next) {
    push({ ...NOTHING, ...next });
    text.focus();
  }

  function move(step) {
    screen.stop();
    if (!view().lanes.length) view().prompt = text.value;
    history.move(step);
    show();
  }

  function show() {
    text.value = view().prompt;
    if (view().messages) chat.value = view().messages;
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
    const stale = isStale(), isOne = view().lanes.length === 1;
    text.isStale = stale;
    columns.classList.toggle("stale", stale);
    text.box.classList.toggle("chat", chat.isChat);
    text.call(...(chat.isChat ? ["Message", "Write a message"] : ["Prompt", "Write the beginning of a text"]));
    screen.runButton.textContent = isOne && !stale ? "Continue" : "Generate";
    [undo.disabled, redo.disabled] = [!history.canMove(-1), !history.canMove(1)];
    again.disabled = clear.disabled = stale || !view().lanes.length;
    edit.disabled = reply.disabled = stale || !isOne;
    [reply.hidden, edit.hidden] = [!chat.isChat, chat.isChat];
    settings.update();
    legend.textContent = COLOURS[colour.value];
  }

  async function run({ call, stream }) {
    const next = plan ?? (view().lanes.length === 1 && !isStale() ? { parent: current(), keep: branches.written(current()).filter((token) => !token.isCut).length } : NOTHING), { parent, keep, picked } = next;
    plan = null;
    const sides = settings.requests(), prompt = parent?.prompt ?? text.value, before = parent ? parent.before : chat.before(prompt), messages = chat.value;
    screen.changed();
    for (const side of sides) side.lanes = Array.from({ length: side.settings.n }, () => ({ parent, keep, tokens: picked ? [picked] : [], prompt, before, messages, model: side.model, settings: side.settings, text: picked ? branches.spelled(picked.bytes) : "", finish: "", decoder: new TextDecoder() }));
    const running = { prompt, messages, parent, keep, picked, lanes: sides.flatMap((side) => side.lanes) };
    if (!view().lanes.length) view().prompt = prompt;
    all.push(...running.lanes);
    all.splice(0, all.length - MOST);
    history.push(running);
    render();
    if (picked && document.activeElement === document.body) current().row.querySelector(`[data-index="${running.lanes.length > 1 ? 0 : keep}"]`).focus();
    const ended = await Promise.allSettled(sides.map((side) => generate(side, call, stream))), failed = ended.find((each) => each.status === "rejected");
    if (failed && view() === running && running.lanes.every((lane) => lane.tokens.length === (picked ? 1 : 0))) {
      all.splice(all.indexOf(running.lanes[0]), running.lanes.length);
      history.drop(); // nothing came: what was there before stays
    }
    if (view() === running || failed) render();
    if (failed) throw failed.reason;
    return sides.map(summary).join(" · ");
  }

  async function generate(side, call, stream) {
    const [first] = side.lanes, started = performance.now();
    let count = 0, sentence = "";
    for await (const event of stream("api/Generate", await requestOf(side, call, chat))) {
      const lane = side.lanes[event.sample_index ?? 0];
      for (const each of event.logprobs ?? []) {
        const token = branches.tokenOf(each);
        lane.tokens.push(token);
        lane.row?.add(tokenItem({ ...token, text: lane.decoder.decode(token.bytes, { stream: true }) }, colour.value));
        count++;
      }
      lane.text += event.text ?? "";
      if (event.finish_reason) Object.assign(lane, { finish: event.finish_reason, reason: event.stop_reason });
      if (event.usage) Object.assign(side, { usage: event.usage, timings: event.timings ?? {} });
      screen.status.textContent = `${plural(count, "token")}, ${fixed((count * 1e3) / (performance.now() - started), 0)} tokens/s`;
      if (lane === first && /[.!?]\s/.test((sentence += event.text ?? ""))) {
        announce(sentence);
        sentence = "";
      }
    }
  }

  /** The row of a branch's tokens from `start` on; what is not in `others` is marked. */
  function row(branch, start, label, others) {
    const tokens = branches.written(branch).slice(start), differs = others ? branches.differing(tokens.map((token) => token.text), others) : [], place = (index, element) => ({ branch, place: start + index, element });
    const onpick = (index, element) => {
      inspect((pinned = place(index, element)));
      if (element === document.activeElement) panel.element.querySelector("button")?.focus({ preventScroll: true });
    };
    branch.row = tokenRow(tokens.map((token, index) => tokenItem(token, colour.value, differs[index])), { label, onpick, onfocus: (index, element) => inspect(index === null ? pinned : place(index, element)) });
    tokens.forEach((token, index) => {
      branch.row.children[index].classList.toggle("cut", token.isCut);
      branch.row.children[index].classList.toggle("differs", !!differs[index]);
    });
    return branch.row;
  }

  function render() {
    const { lanes, parent, keep } = view(), isOne = lanes.length === 1, at = document.activeElement?.closest(".document .token")?.dataset.index;
    text.show(isOne ? row(lanes[0], 0, "Output") : parent ? row({ ...parent, parent, keep, tokens: [], finish: "" }, 0, "Output before the samples") : null);
    const first = lanes.length > 1 ? branches.written(lanes[0]).slice(lanes[0].keep).map((token) => token.text) : [];
    fill(columns, isOne ? null : lanes.map((lane, index) => h("section", { class: "panel stack", "aria-label": title(lane, lanes) }, h("div", { class: "row spread" }, h("h2", null, title(lane, lanes)), button("Keep this", () => push({ ...view(), lanes: [lane] }))),
      row(lane, lane.keep, title(lane, lanes), settings.isCompared && index ? first : null))));
    columns.hidden = isOne || !lanes.length;
    fill(crumbs, all.length > 1 ? branchList(all, current(), crumbs.querySelector("details")?.open ?? false, (branch) => push({ ...branch, picked: branch.tokens.find((token) => token.isPicked), lanes: [branch] })) : null);
    inspect((pinned = null));
    update();
    if (at) current()?.row.children[at]?.focus();
  }

  function inspect(where) { panel.show(where, view().lanes.length ? "Point at a token, or go to it by Tab and the arrow keys, to see what could have stood there." : "Generate a text, and choose one of its tokens."); }
}

/** The call that fills a side's lanes: by token ids where tokens go before, by text where these are another model's. */
async function requestOf({ model, settings, lanes: [first] }, call, chat) {
  const { prompt, before } = first, tokens = branches.path(first), body = { model, sampling_params: { ...settings } };
  if (first.parent?.finish === "FINISH_REASON_STOP") body.sampling_params.min_tokens = 1; // else it ends again at once
  if (!tokens.length) return { ...body, ...(before ? { conversation: { messages: before } } : { text: prompt }) };
  if (!before && branches.lineage(first).some((each) => each.model !== model)) return { ...body, text: prompt + branches.texts(tokens).join("") };
  const ahead = before ? await chat.tokens(call, model, before) : (await call("api/Tokenize", { model, texts: [prompt] })).results[0].tokens;
  return { ...body, token_ids: { ids: [...ahead, ...tokens].map((token) => token.id) } };
}

/** Numbers of a request in words. */
function summary({ usage = {}, timings = {}, lanes }) {
  const tokens = usage.output_tokens ?? 0, [{ finish, reason }] = lanes, end = lanes.length > 1 ? "" : finish === "FINISH_REASON_LENGTH" ? "length limit reached" : reason ? `ended at ${JSON.stringify(reason)}` : "ended by the model";
  return [plural(tokens, "token"), timings.total_seconds && `${fixed(tokens / timings.total_seconds, 0)} tokens/s`, `first token ${duration(timings.time_to_first_token_seconds)}`, `queue ${duration(timings.queue_seconds ?? 0)}`,
    `${usage.reused_tokens ?? 0} of ${plural(usage.prompt_tokens ?? 0, "prompt token")} reused`, end].filter(Boolean).join(", ");
}

/** What tells a lane from those beside it. */
function title(lane, lanes) {
  const names = [...new Set(lanes.flatMap((each) => Object.keys(each.settings)))].filter((name) => name !== "n" && lanes.some((each) => JSON.stringify(each.settings[name]) !== JSON.stringify(lane.settings[name])));
  const same = lanes.filter((each) => each.model === lane.model && each.settings === lane.settings), words = [lanes.some((each) => each.model !== lane.model) && lane.model, ...names.map((name) => `${name.replaceAll("_", " ")} ${lane.settings[name] ?? "off"}`)].filter(Boolean);
  const whole = [...words, ...(same.length > 1 || !words.length ? [`sample ${same.indexOf(lane) + 1}`] : [])].join(", ");
  return whole.startsWith(lane.model) ? whole : whole[0].toUpperCase() + whole.slice(1);
}
