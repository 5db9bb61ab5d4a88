// The app: what is shown at which address, the stream of all chats, keys, and whether the server is there.

import "./sign-in.js";
import "./chat-list.js";
import "./chat-page.js";
import "./new-chat.js";
import { ask, h, iconButton } from "./dom.js";
import { api, begin, signedIn, signOut } from "./session.js";
import { Stream } from "./stream.js";

const KEYS = [["n", "New chat"], ["/", "Search chats"], ["j and k", "The next and the previous chat"], ["m", "To the message"],
    ["Esc", "Close what is open; stop the run"], ["a and x", "Allow or refuse the first approval"],
    ["Alt+1 to 6", "Files, timeline, log, jobs, tree, world"], ["e", "To the end of the conversation"], ["Ctrl+Enter", "Send as a steering message"],
    ["?", "These keys"]];

class App extends HTMLElement {
  connectedCallback() {
    begin();
    this.states = new Map();
    window.addEventListener("signed-in", () => this.open());
    window.addEventListener("signed-out", () => this.close());
    window.addEventListener("hashchange", () => this.route());
    document.addEventListener("keydown", (event) => this.key(event));
    if (signedIn()) this.open();
    else this.close();
  }

  close() {
    this.watch?.close();
    this.classList.remove("open");
    this.replaceChildren(document.createElement("sign-in"));
  }

  open() {
    if (!location.hash || location.hash.startsWith("#token")) history.replaceState(null, "", "#/");
    this.list = document.createElement("chat-list");
    this.main = h("div", { class: "main" });
    this.offline = h("div", { class: "offline", role: "alert", hidden: true },
        "The server cannot be reached. What is shown may be old; this page comes back by itself.");
    const foot = h("footer", { class: "nav-foot" }, h("a", { class: "quiet", href: "#/usage" }, "Usage"),
        h("a", { class: "quiet", href: "/api/docs", target: "_blank", rel: "noopener" }, "API"), h("span", { class: "space" }),
      iconButton("help", "Keys", () => this.help()), iconButton("sun", "Light or dark", () => this.theme()),
          iconButton("close", "Sign out", () => this.leave()));
    this.replaceChildren(this.offline, h("nav", { class: "nav", "aria-label": "Chats" },
        h("a", { class: "brand", href: "#/" }, h("img", { src: "/web/icon.svg", alt: "", width: 22, height: 22 }), "Treadle"), this.list,
        foot), this.main);
    this.classList.add("open");
    this.list.begin(this);
    let place = null;
    this.watch = new Stream("/api/watch", { place: () => place, take: ({ changed, chat }) => { place = changed; this.list.take(chat); this.main.firstElementChild?.heard?.(chat); },
        told: (state) => { this.told("watch", state); if (state === "live" && place === null) this.list.load(); } });
    this.route();
  }

  async leave() {
    if (await ask("Sign out of this browser?", [h("p", {}, "Chats go on; the token stays good until it is revoked.")],
        [["Sign out", true, "primary"], ["Cancel", null]])) signOut();
  }

  models() {
    this.known ??= api("GET", "/api/models").catch(() => { this.known = null; return { models: [], default: "" }; });
    return this.known;
  }

  told(who, state) {
    this.states.set(who, state);
    clearTimeout(this.telling);
    const lost = [...this.states.values()].includes("offline");
    this.telling = setTimeout(() => { if (this.offline) this.offline.hidden = !lost; }, lost ? 700 : 0);
  }

  async route() {
    if (!this.main || !signedIn()) return;
    const [, kind = "", id = ""] = location.hash.split("/");
    const shown = `${kind}/${id}`;
    if (this.shown === shown && this.main.firstElementChild) return;
    this.shown = shown;
    this.chat = kind === "chat" ? decodeURIComponent(id) : "";
    this.dataset.at = kind || "list";
    document.title = "Treadle";
    this.list.draw();
    if (kind === "chat") this.put("chat-page", (page) => page.begin(this.chat, this));
    else if (kind === "usage") { await import("./usage-page.js"); this.put("usage-page"); }
    else this.put("new-chat", (page) => page.begin(this));
  }

  put(name, started = () => {}) {
    const page = document.createElement(name);
    this.main.replaceChildren(page);
    started(page);
  }

  theme() {
    const { dataset } = document.documentElement;
    dataset.theme = dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("treadle.theme", dataset.theme);
  }

  help() {
    ask("Keys", [h("dl", { class: "keys" }, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]).flat())],
        [["Close", null]]);
  }

  key(event) {
    const page = this.main?.firstElementChild;
    const chat = page?.localName === "chat-page" ? page : null;
    if (document.querySelector("dialog[open]") || event.defaultPrevented) return;
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      if (chat?.panel) chat.open("");
      else if (chat?.fold.run && !(typing && typing.value && typing !== chat.composer.area)) chat.interrupt();
      return;
    }
    if (event.altKey && chat
        && /^Digit[1-6]$/.test(event.code)) { event.preventDefault(); chat.tabs.querySelector(`:nth-child(${event.code.at(-1)}):not([hidden])`)?.click(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { n: () => { location.hash = "#/new"; }, "/": () => this.list?.search.focus(), j: () => this.list?.step(1),
        k: () => this.list?.step(-1), m: () => page?.querySelector("chat-composer textarea")?.focus(), a: () => chat?.cards.press("allow"),
        x: () => chat?.cards.press("deny"), e: () => chat?.conversation.toEnd(), "?": () => this.help() }[event.key];
    if (!act || !this.list) return;
    event.preventDefault();
    act();
  }
}
customElements.define("treadle-app", App);
