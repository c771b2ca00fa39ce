// Codex, which speaks the Responses API: by a provider of its own, and as it asks LM Studio.
import { session } from "./session.mjs";

const url = `${process.env.ATTENDANT_URL}/v1`;
const config = `
model = "agent"
model_provider = "attendant"
[model_providers.attendant]
name = "attendant"
base_url = "${url}"
wire_api = "responses"
`;
const asked = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
session("codex", [...asked, "Write the file"], { files: { "config.toml": config } });
session("codex", [...asked, "--oss", "--local-provider", "lmstudio", "-m", "agent", "Write the file"], {
  variables: { CODEX_OSS_BASE_URL: url },
});
