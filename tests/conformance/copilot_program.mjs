// A program that uses the published Copilot SDK for Node, unchanged, on `treadle copilot`. Writes what it saw as JSON.
import { CopilotClient, RuntimeConnection, approveAll, defineTool } from "@github/copilot-sdk";

const { RUNTIME, MODEL, PROJECT } = process.env;
const client = new CopilotClient({
    connection: RuntimeConnection.forStdio({ path: RUNTIME, args: ["-m", "treadle", "copilot", "--model", MODEL] }),
    workingDirectory: PROJECT,
    env: process.env,
});
await client.start();
const seen = [];
const lookup = defineTool("lookup", {
    description: "Looks up.",
    parameters: { type: "object", properties: { key: { type: "string" } } },
    handler: (given) => (seen.push(given), "54321"),
});
const session = await client.createSession({ onPermissionRequest: approveAll, tools: [lookup], streaming: true });
let deltas = "";
session.on((event) => {
    if (event.type === "assistant.message_delta") deltas += event.data.deltaContent;
});
const reply = await session.sendAndWait({ prompt: "Look it up." }, 60_000);
const events = await session.getEvents();
const facts = {
    reply: reply.data.content,
    tool: seen,
    deltas,
    ping: (await client.ping("hi")).message,
    types: events.map((event) => event.type),
};
await session.disconnect();
await client.stop();
console.log(JSON.stringify(facts));
