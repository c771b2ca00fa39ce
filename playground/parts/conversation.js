// Messages before the one that is written, of models with a chat template, and the prompt that the template makes of them.

import { json } from "../api/client.js";
import { texts, tokenOf } from "../maths/branches.js";
import { visible } from "../maths/visible.js";
import { fill, h } from "./h.js";

/** The prompt's tokens as the model gets them. */
async function promptTokens(call, model, messages) {
  const answer = await call("api/GenerateUnary", { model, conversation: { messages }, sampling_params: { max_tokens: 0, prompt_logprobs: 0 } });
  return answer.prompt_logprobs.map(tokenOf);
}

/** A switch between a text and a chat, and the messages so far; `before(text)` gives all messages up to this one, null where it is no chat. */
export function conversation(screen, into, onchange) {
  let messages = [];
  const box = h("div", { class: "stack" }), list = h("ol", { class: "stack", "aria-label": "Messages" }), shown = h("pre", { class: "code", tabIndex: 0, "aria-label": "Rendered prompt" });
  const mode = screen.choice("mode", { label: "Kind", options: [["text", "Text"], ["chat", "Chat"]], value: "text", into, onchange: () => self.update() });
  into.append(box);
  const system = screen.text("system", { label: "System message", rows: 2, into: box }), details = h("details", { ontoggle: () => self.update() }, h("summary", null, "Rendered prompt"), shown);
  system.onchange = ((before) => (value) => { before(value); onchange(); })(system.onchange);
  box.append(list, details);
  const render = async () => texts(await promptTokens((path, body) => json(path, { body }), screen.model.name, self.before(screen.main.value))).join("");
  const self = {
    name: "messages", initial: [], get value() { return messages; },
    set value(value) {
      messages = value;
      self.update();
    },
    tokens: promptTokens,
    get isChat() { return mode.value === "chat" && !!screen.model?.has_chat_template; },
    before: (text) => (self.isChat ? [...(system.value ? [{ role: "system", content: system.value }] : []), ...messages, { role: "user", content: text }] : null),
    update() {
      mode.element.hidden = !screen.model?.has_chat_template;
      box.hidden = !self.isChat;
      fill(list, messages.map(({ role, content }) => h("li", { class: role }, h("h3", null, role === "user" ? "You" : "Model"), h("p", { class: "tokens" }, visible(content)))));
      if (details.open) render().then((text) => { shown.textContent = visible(text); }, (error) => { shown.textContent = error.message; });
      onchange();
    },
  };
  return self;
}
