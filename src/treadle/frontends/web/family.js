// Who began whom: chats that calls began (sub-agents, attempts of a race), as a table with the state and the cost of each,
// in the conversation and in a panel with the chat above.

import { STATUSES } from "./chat-list.js";
import { h, money, number, shortModel } from "./dom.js";

export const ENDS = { task_complete: "Done", completed: "Done", done: "Done", answer: "Answered", interrupted: "Stopped",
    error: "Ended with an error", budget: "Ended at a budget", turn_cap: "Ended at the limit of turns",
    guard: "Stopped: the model repeated itself", superseded: "Replaced by an edit", incomplete: "Ended with an incomplete answer" };

export function stat(value) {
  if (!value || !(value.added || value.removed)) return null;
  return h("span", { class: "stat", "aria-label": `${value.added} lines added, ${value.removed} removed` },
    h("ins", {}, `+${value.added}`), " ", h("del", {}, `−${value.removed}`));
}

/** In words, what a chat does or how it ended. */
function standing(row) {
  if (row.waits?.length) return `needs you: ${row.waits.join(", ")}`;
  const ended = row.ended && (!row.status || row.status === "idle" || row.reason);
  return [ended ? ENDS[row.ended] ?? row.ended : STATUSES[row.status] ?? row.status ?? "at work", row.doing].filter(Boolean).join(" · ");
}

/** Rows as `/children` and `subagent.completed` tell them; the chat `here` is no link. */
export function familyTable(rows, here = "") {
  const raced = rows.some((row) => typeof row.passed === "boolean");
  const changed = rows.some(stat);
  const line = (row) => {
    const mark = row.committed ? "committed" : ["won", "lost"].find((each) => row.labels?.includes(each));
    const title = row.title || row.chat;
    return h("tr", { class: row.committed || row.chat === here ? "here" : "" },
      h("th", { scope: "row" }, row.depth ? `${"\u2003".repeat(row.depth - 1)}└ ` : "",
          row.chat === here || row.status === "not begun" ? title : h("a", { href: `#/chat/${row.chat}` }, title),
          mark ? h("span", { class: `badge ${mark}` }, mark) : null,
          h("span", { class: "muted model", title: row.model }, shortModel(row.model ?? "", 20))),
      h("td", {}, h("span", { class: `dot ${row.waits?.length ? "requires_action" : row.reason ? "idle" : row.status ?? ""}` }), standing(row)),
      raced ? h("td", { class: row.passed ? "" : "muted" }, row.passed ? "passed" : "not passed") : null,
      changed ? h("td", {}, stat(row) ?? "–") : null, h("td", {}, row.turns ?? ""),
      h("td", {}, row.usage?.usd ? money(row.usage.usd) : row.usage?.input ? `${number(row.usage.input + row.usage.output)} tokens` : "–"));
  };
  const names = ["Chat", "State", raced && "Check", changed && "Change", "Turns", "Cost"].filter(Boolean);
  return h("div", { class: "wide", tabindex: "0" }, h("table", { class: "numbers tree" },
      h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map(line))));
}

class ChatTree extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, seen: "", place: h("div") });
    this.replaceChildren(h("div", { class: "panel-bar" }, h("b", {}, "Tree of chats")), this.place);
    page.loadFamily();
  }

  update(fold) {
    const { app, chat, family, state, titleText } = this.page;
    const above = fold.parent ? { depth: 0, title: "the chat above", ...app.list?.chats.get(fold.parent), chat: fold.parent } : null;
    const base = above ? 1 : 0;
    const own = { chat, depth: base, title: titleText.textContent, model: fold.options.model, status: state, ended: fold.lastEnd,
        turns: fold.turns, usage: fold.usage };
    const rows = [above, own, ...family.map((each) => ({ ...each, depth: base + each.depth }))].filter(Boolean);
    const seen = JSON.stringify(rows);
    if (this.seen === seen) return;
    this.seen = seen;
    this.place.replaceChildren(familyTable(rows, chat), family.length
        ? h("p", { class: "muted" }, "The cost of a chat includes the finished chats below it.") : "");
  }
}
customElements.define("chat-tree", ChatTree);
