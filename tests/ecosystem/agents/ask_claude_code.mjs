// Claude Code, which speaks the Messages API.
import { session } from "./session.mjs";

session("claude", ["-p", "Write the file", "--dangerously-skip-permissions"], {
  variables: {
    ANTHROPIC_BASE_URL: process.env.ATTENDANT_URL,
    ANTHROPIC_API_KEY: "none",
    ANTHROPIC_MODEL: "agent",
    ANTHROPIC_DEFAULT_HAIKU_MODEL: "agent",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  },
});
