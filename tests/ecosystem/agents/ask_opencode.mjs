// opencode, which speaks chats by the AI SDK.
import { session } from "./session.mjs";

const models = { agent: { name: "agent", limit: { context: 65_536, output: 1_000 } } };
const options = { baseURL: `${process.env.ATTENDANT_URL}/v1` };
const config = {
  autoupdate: false,
  share: "disabled",
  provider: { attendant: { npm: "@ai-sdk/openai-compatible", name: "attendant", options, models } },
  model: "attendant/agent",
  small_model: "attendant/agent",
};
session("opencode", ["run", "--auto", "Write the file"], {
  files: { "opencode.json": JSON.stringify(config) },
  variables: { OPENCODE_DISABLE_MODELS_FETCH: "1" },
});
