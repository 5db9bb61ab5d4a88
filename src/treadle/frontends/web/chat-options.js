// The options of a chat that people change: title, model, mode, what passes by itself, budgets, the archive.

import { ask, download, h, toast, tried } from "./dom.js";
import { modeChoice, modelChoice } from "./composer.js";
import { api, chatPath } from "./session.js";

const BUDGET = { usd: "US dollars", turns: "turns", tokens: "tokens", tool_calls: "tool calls" };

/** Fields of a budget, and what they say; 0 is no limit. */
export function budgetFields(title, budget = {}) {
  const fields = Object.fromEntries(Object.keys(BUDGET).map((name) => [name,
      h("input", { type: "number", min: 0, step: name === "usd" ? "0.01" : 1, value: budget[name] || "", placeholder: "no limit",
      "aria-label": `${title}: ${BUDGET[name]}` })]));
  const element = h("fieldset", {}, h("legend", {}, title), h("div", { class: "grid" },
      Object.entries(fields).map(([name, field]) => h("label", {}, BUDGET[name], field))));
  return { element, value: () => ({ wall_s: 0, ...budget,
      ...Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, Number(field.value) || 0])) }) };
}

/** The whole log as a file. */
export async function exportChat(chat) {
  const answer = await tried(api("GET", chatPath(chat, "/export")));
  if (answer) download(await answer.blob(), `${chat}.jsonl`);
}

/** Delete the chat for good, once the person has confirmed it. */
export async function deleteChat({ chat, titleText }) {
  if (!await ask("Delete this chat?", [h("p", {}, `“${titleText.textContent}” and its sub-agents are deleted for good.`),
      h("p", { class: "muted" }, "The files of the project stay as they are, but what the chat changed can no longer be undone. To keep a copy, export the chat first.")],
      [["Delete", true, "primary"], ["Cancel", null]])) return;
  await tried(api("DELETE", chatPath(chat), {}).then(() => {
    toast("The chat is deleted.");
    location.hash = "#/";
  }));
}

export async function changeOptions(page, models) {
  const { options } = page.fold;
  const title = h("input", { type: "text", value: page.fold.title, maxlength: 200, placeholder: page.titleText.textContent });
  const model = modelChoice(models, options.model);
  const mode = modeChoice(options.mode);
  const turns = h("input", { type: "number", min: 1, max: 10000, value: options.max_turns });
  const commands = h("input", { type: "checkbox", checked: options.auto_approve_commands });
  const network = h("input", { type: "checkbox", checked: options.network === true });
  const run = budgetFields("Budget of a run", options.run_budget);
  const chat = budgetFields("Budget of the chat", options.chat_budget);
  const archive = options.archived ? "Take out of the archive" : "Archive";
  const said = await ask("Options of this chat", [
    h("label", {}, "Title", title), h("label", {}, "Model", model), h("label", {}, "Mode", mode),
        h("label", {}, "Turns of a run at most", turns),
    h("label", { class: "check" }, commands, "Run commands without asking, except critical ones"),
        h("label", { class: "check" }, network, "Commands may reach any host"), run.element, chat.element,
    h("p", { class: "muted" }, `Project: ${options.root || "none"}${options.world ? `, in ${options.world}: it changes when that is committed` : ""}`)],
        [["Save", "save", "primary"], ["Compact now", "compact"], ["Export", "export"], [archive, "archive"], ["Delete", "delete"], ["Cancel", null]]);
  if (!said) return;
  if (said === "export") return exportChat(page.chat);
  if (said === "delete") return deleteChat(page);
  if (said === "compact") return tried(api("POST", chatPath(page.chat, "/compact"), {}));
  const before = { title: page.fold.title, model: options.model, mode: options.mode, max_turns: options.max_turns,
      auto_approve_commands: options.auto_approve_commands, network: options.network, run_budget: options.run_budget,
      chat_budget: options.chat_budget };
  const now = { title: title.value, model: model.value, mode: mode.value, max_turns: Number(turns.value) || options.max_turns,
      auto_approve_commands: commands.checked, network: network.checked === (options.network === true) ? options.network : network.checked,
      run_budget: run.value(), chat_budget: chat.value() };
  const changes = said === "archive" ? { archived: !options.archived }
      : Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])));
  if (Object.keys(changes).length) await tried(api("PATCH", chatPath(page.chat), changes));
}
