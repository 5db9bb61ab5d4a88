// Who began whom: the chat above, this one, and the chats that its calls began (sub-agents, attempts of a race), each
// with its state and its cost.

import { STATUSES } from "./chat-list.js";
import { h, money, number, shortened } from "./dom.js";
import { ENDS } from "./row-views.js";
import { api, chatPath } from "./session.js";

const LOOK_MS = 2_000;

class ChatTree extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, seen: "" });
    this.rows = h("tbody");
    this.note = h("p", { class: "muted" });
    this.replaceChildren(h("div", { class: "panel-bar" }, h("b", {}, "Tree of chats")), h("div", { class: "wide", tabindex: "0" },
        h("table", { class: "numbers tree" }, h("thead", {}, h("tr", {}, ["Chat", "State", "Turns",
        "Cost"].map((name) => h("th", { scope: "col" }, name)))), this.rows)), this.note);
    this.timer = setInterval(() => { if (page.fold.run && !document.hidden) this.load(); }, LOOK_MS);
  }

  disconnectedCallback() { clearInterval(this.timer); }

  update(fold) {
    const seen = `${fold.counts.children}:${Boolean(fold.run)}`;
    if (this.seen === seen) return;
    this.seen = seen;
    this.load();
  }

  async load() {
    const { chat, fold } = this.page;
    try {
      const [{ children }, own, above] = await Promise.all([api("GET", chatPath(chat, "/children")), api("GET", chatPath(chat)),
          fold.parent ? api("GET", chatPath(fold.parent)).catch(() => null) : null]);
      const base = above ? 1 : 0;
      this.rows.replaceChildren(...(above ? [this.line({ ...above, chat: above.id }, 0)] : []), this.line({ ...own, chat: own.id }, base),
          ...children.map((each) => this.line(each, base + each.depth)));
      this.note.textContent = children.length ? "What a chat cost has in it what those below it cost, once they are at rest." : "";
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  line(row, depth) {
    const here = row.chat === this.page.chat;
    const title = `${row.number ? `${row.number}: ` : ""}${row.title || (here && this.page.titleText.textContent) || row.chat}`;
    const ended = row.ended ?? row.last_end;
    const waits = row.waits?.length ? `needs you: ${row.waits.join(", ")}` : "";
    const state = waits || (row.status === "idle" && ended ? ENDS[ended] ?? ended : STATUSES[row.status] ?? row.status);
    const won = ["won", "lost"].find((each) => row.labels?.includes(each));
    const cost = row.usage.usd ? money(row.usage.usd) : `${number(row.usage.input + row.usage.output)} tokens`;
    return h("tr", { class: here ? "here" : "" }, h("th", { scope: "row" }, depth ? `${"\u2003".repeat(depth - 1)}└ ` : "",
        here || row.status === "not begun" ? title : h("a", { href: `#/chat/${row.chat}` }, title),
        won ? h("span", { class: `badge ${won}` }, won) : null, h("span", { class: "muted model", title: row.model }, shortened(row.model, 20))),
      h("td", {}, h("span", { class: `dot ${row.status}` }), h("span", {}, state, row.doing ? ` · ${row.doing}` : "")),
      h("td", {}, number(row.turns)), h("td", {}, cost));
  }
}
customElements.define("chat-tree", ChatTree);
