// A client of the protocol in TypeScript's own SDK: prompts, approves, and loads the session again. Prints one JSON object.
// node acp_client.mjs SDK PROJECT COMMAND...
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [sdk, project, command, ...words] = process.argv.slice(2);
const acp = await import(sdk);
const agent = spawn(command, words, { cwd: project, stdio: ["pipe", "pipe", "inherit"] });
const seen = [];
const asked = [];
const app = acp
  .client({ name: "test" })
  .onNotification(acp.methods.client.session.update, ({ params }) => void seen.push(params.update))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    asked.push(params.options.map((option) => option.kind));
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const result = await app.connectWith(stream, async (context) => {
  const { agent: methods } = acp.methods;
  const begun = await context.request(methods.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await context.request(methods.session.new, { cwd: project, mcpServers: [] });
  const text = (said) => [{ type: "text", text: said }];
  const { stopReason } = await context.request(methods.session.prompt, { sessionId, prompt: text("Work.") });
  const { sessions } = await context.request(methods.session.list, { cwd: project });
  const live = seen.splice(0);
  await context.request(methods.session.load, { sessionId, cwd: project, mcpServers: [] });
  return { version: begun.protocolVersion, stopReason, sessions: sessions.length, live, loaded: seen.splice(0), asked };
});
console.log(JSON.stringify(result));
agent.kill();
