// The chats: search, filters, and what each is doing, live.

import { ago, baseName, h, icon, money } from "./dom.js";
import { api } from "./session.js";

export const STATUSES = { idle: "idle", pending: "waiting for a worker", running: "running", interrupting: "stopping",
    requires_action: "needs you", error: "error" };

class ChatList extends HTMLElement {
  begin(app) {
    Object.assign(this, { app, chats: new Map(), next: "", query: "", status: "", archived: false, turn: 0 });
    this.search = h("input", { type: "search", placeholder: "Search chats", "aria-label": "Search chats",
        on: { input: () => { this.query = this.search.value.trim(); this.later(); } } });
    const status = h("select", { "aria-label": "Status", on: { change: () => { this.status = status.value; this.load(); } } },
        h("option", { value: "" }, "Any status"),
      Object.entries(STATUSES).map(([value, text]) => h("option", { value }, text)));
    const archived = h("select", { "aria-label": "Which chats",
        on: { change: () => { this.archived = archived.value === "archive"; this.load(); } } },
      h("option", { value: "" }, "Active"), h("option", { value: "archive" }, "Archive"));
    this.items = h("ul", { class: "chats", "aria-label": "Chats" });
    this.more = h("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.load(true) } }, "More");
    this.replaceChildren(h("a", { class: "new primary", href: "#/new" }, icon("plus"), "New chat"),
      h("div", { class: "filters" }, this.search, h("div", {}, status, archived)), this.items, this.more);
    this.load();
    this.clock = setInterval(() => this.draw(), 60_000);
  }

  end() {
    clearInterval(this.clock);
    clearTimeout(this.timer);
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 150);
  }

  async load(further = false) {
    const turn = ++this.turn;
    const wanted = new URLSearchParams({ limit: 50, archived: this.archived });
    if (this.query) wanted.set("text", this.query);
    else if (this.status) wanted.set("status", this.status);
    if (further) wanted.set("cursor", this.next);
    const { chats, next } = await api("GET", `/api/${this.query ? "search" : "chats"}?${wanted}`).catch(() => ({}));
    if (!chats || turn !== this.turn) return;
    if (!further) this.chats.clear();
    for (const chat of chats) if (!this.status || chat.status === this.status) this.chats.set(chat.id, chat);
    this.next = next;
    this.draw();
    if (!this.loaded && !chats.length) this.app.welcome();
    this.loaded = true;
  }

  /** A chat has changed, as the server says. */
  take(chat) {
    if (this.query && !this.chats.has(chat.id) && !chat.deleted) return this.later();
    const fits = !chat.deleted && chat.archived === this.archived && (!this.status || chat.status === this.status);
    if (fits) this.chats.set(chat.id, { ...chat, found: this.chats.get(chat.id)?.found });
    else this.chats.delete(chat.id);
    this.draw();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const newest = [...this.chats.values()].sort((a, b) => (a.updated < b.updated ? 1 : -1));
      const top = (chat) => this.chats.has(chat.parent) ? top(this.chats.get(chat.parent)) : chat;
      const lines = [];
      const put = (chat, depth) => {
        lines.push(this.line(chat, depth));
        const below = newest.filter(({ parent }) => parent === chat.id);
        below.sort((a, b) => a.title.localeCompare(b.title, "en", { numeric: true })).forEach((each) => put(each, depth + 1));
      };
      for (const chat of new Set(newest.map(top))) put(chat, 0);
      const focused = document.activeElement?.closest?.("chat-list a.chat")?.dataset.id;
      this.items.replaceChildren(...lines);
      if (focused) this.items.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
      if (!lines.length) this.items.append(h("li", { class: "muted empty" }, this.query || this.status ? "No chats match." : this.archived
          ? "The archive is empty." : "No chats yet."));
      this.more.hidden = !this.next;
    });
  }

  /** Chats that others began stand below those. */
  line(chat, depth) {
    const here = chat.id === this.app.chat;
    const facts = chat.found ? `… ${chat.found} …` : [chat.labels.find((each) => each === "won" || each === "lost"), depth ? "" : baseName(chat.root), ago(chat.updated),
        chat.usage.usd ? money(chat.usage.usd) : ""].filter(Boolean).join(" · ");
    const mark = chat.parent ? h("span", { class: "muted", title: "Started by another chat" }, `${"\u2003".repeat(Math.max(0, depth - 1))}└ `) : null;
    return h("li", {}, h("a", { class: "chat", href: `#/chat/${chat.id}`, data: { id: chat.id }, "aria-current": here ? "page"
        : undefined },
      h("span", { class: `dot ${chat.status}`, title: STATUSES[chat.status] }),
      h("span", { class: "title" }, mark, chat.title || "Untitled"), h("span", { class: "unseen" }, `, ${STATUSES[chat.status]}`),
      h("span", { class: "muted" }, chat.status === "requires_action" ? h("b", {}, "needs you · ") : null, facts)));
  }

  /** The chat before or after the present one. */
  step(by) {
    const ids = [...this.items.querySelectorAll("a.chat")].map((each) => each.dataset.id);
    const at = ids.indexOf(this.app.chat);
    const id = ids[Math.max(0, Math.min(ids.length - 1, at + by))];
    if (id) location.hash = `#/chat/${id}`;
  }
}
customElements.define("chat-list", ChatList);
