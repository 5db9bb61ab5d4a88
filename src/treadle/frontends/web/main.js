// The app: what is shown at which address, the stream of all chats, keys, and whether the server is there.

import "./sign-in.js";
import "./chat-list.js";
import "./chat-page.js";
import "./new-chat.js";
import { ask, h, iconButton } from "./dom.js";
import { api, begin, signedIn, signOut, takeLink } from "./session.js";
import { Stream } from "./stream.js";

const KEYS = [["n", "New chat"], ["/", "Search chats"], ["j and k", "Next and previous chat"], ["m", "Go to the message"],
    ["Esc", "Leave the message; close the panel; ask whether to stop the run"],
    ["Alt+A and Alt+X", "Allow or refuse the first approval"],
    ["Alt+1 to 6", "Files, timeline, log, jobs, tree, world"], ["e", "Go to the end of the conversation"], ["Ctrl+Enter", "Send as a steering message"],
    ["?", "Show these keys"]];

const PROBE_MS = 2_000;
const NARROW = matchMedia("(max-width: 700px)");

class App extends HTMLElement {
  connectedCallback() {
    begin();
    this.states = new Map();
    window.addEventListener("signed-in", () => this.open());
    window.addEventListener("signed-out", ({ detail }) => this.close(detail));
    window.addEventListener("hashchange", () => { if (takeLink()) this.open(); else this.route(); });
    window.addEventListener("server-reached", ({ detail }) => this.reached(detail));
    window.addEventListener("offline", () => this.told("network", "offline"));
    window.addEventListener("online", () => this.told("network", "live"));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keyup", () => { this.held = ""; });
    NARROW.addEventListener("change", () => this.landmark());
    document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); this.skip(); });
    if (signedIn()) this.open();
    else this.close();
  }

  close(why) {
    this.watch?.close();
    this.list?.end();
    this.classList.remove("open");
    this.list = this.main = this.known = null;
    this.states.clear();
    this.replaceChildren(Object.assign(document.createElement("sign-in"), { why }));
  }

  open() {
    this.watch?.close();
    this.list?.end();
    this.known = null;
    if (!location.hash) history.replaceState(null, "", "#/");
    this.list = document.createElement("chat-list");
    this.main = h("div", { class: "main" });
    this.offline = h("div", { class: "offline", role: "alert", hidden: true },
        "The server cannot be reached. This page may be out of date; it reconnects by itself.");
    const foot = h("div", { class: "nav-foot" }, h("a", { class: "quiet", href: "#/usage" }, "Usage"),
        this.rulesLink = h("a", { class: "quiet", href: "#/rules" }, "Rules"),
        h("a", { class: "quiet", href: "/api/docs", target: "_blank", rel: "noopener" }, "API"), h("span", { class: "space" }),
      iconButton("help", "Keys", () => this.help()), iconButton("sun", "Light or dark", () => this.theme()),
          iconButton("leave", "Sign out", () => this.leave()));
    this.nav = h("div", { class: "nav", "aria-label": "Chats" }, h("h1", { class: "unseen only-phone" }, "Chats"),
        h("a", { class: "brand", href: "#/" }, h("img", { src: "/web/icon.svg", alt: "", width: 22, height: 22 }), "Treadle"), this.list,
        foot);
    this.replaceChildren(this.offline, this.nav, this.main);
    this.classList.add("open");
    this.list.begin(this);
    // What changed while nobody listened is read with the list, also where the server has another database by now.
    this.watch = new Stream("/api/watch", { place: () => null, take: ({ chat }) => { this.list.take(chat); this.main.firstElementChild?.heard?.(chat); },
        told: (state) => { this.told("watch", state); if (state === "live") this.list.load(); } });
    this.shown = "";
    this.route();
  }

  async leave() {
    if (await ask("Sign out of this browser?", [h("p", {}, "Running chats continue. The token stays valid until it is revoked.")],
        [["Sign out", true, "primary"], ["Cancel", null]])) signOut();
  }

  models() {
    this.known ??= api("GET", "/api/models").catch(() => { this.known = null; return { models: [], default: "" }; });
    return this.known;
  }

  /** Whether a request came through. After one that did not, the server is asked until it answers. */
  reached(there) {
    this.told("requests", there ? "live" : "offline");
    clearTimeout(this.probe);
    if (!there) this.probe = setTimeout(() => { if (signedIn()) api("GET", "/api/me", undefined, { quick: true }).catch(() => {}); }, PROBE_MS);
  }

  /** Part of the page, and whether it reaches the server. */
  told(part, state) {
    this.states.set(part, state);
    if (this.offline) this.offline.hidden = ![...this.states.values()].includes("offline");
  }

  async route() {
    if (!this.main || !signedIn()) return;
    const [, kind = "", id = ""] = location.hash.split("/");
    const shown = `${kind}/${id}`;
    if (this.shown === shown && this.main.firstElementChild) return;
    this.shown = shown;
    this.chat = kind === "chat" ? decodeURIComponent(id) : "";
    this.dataset.at = kind || "list";
    this.landmark();
    document.title = "Treadle";
    this.list.draw();
    this.rulesLink.href = this.chat ? `#/rules/${encodeURIComponent(this.chat)}` : "#/rules";
    if (kind === "chat") this.put("chat-page", (page) => page.begin(this.chat, this));
    else if (kind === "usage") { await import("./usage-page.js"); this.put("usage-page"); }
    else if (kind === "rules") { await import("./rules-page.js"); this.put("rules-page", (page) => page.begin(decodeURIComponent(id))); }
    else this.put("new-chat", (page) => page.begin(this));
  }

  /** The server has no chats: a phone shows the first message's page instead of an empty list. */
  welcome() {
    if (NARROW.matches && this.dataset.at === "list") location.replace("#/new");
  }

  /** On a phone the list of chats is a page of its own, and then the main thing. */
  landmark() {
    this.nav?.setAttribute("role", NARROW.matches && this.dataset.at === "list" ? "main" : "navigation");
  }

  skip() {
    const parts = this.querySelectorAll(":is(main, [role=main]) :is(textarea, .scroller, input, select, a)");
    [...parts].find((each) => each.checkVisibility())?.focus();
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

  /** Keys without a modifier act only outside of fields. A key that is held down acts once and types nothing into the
   * field that it brought the focus to. */
  key(event) {
    const page = this.main?.firstElementChild;
    const chat = page?.localName === "chat-page" ? page : null;
    if (document.querySelector("dialog[open]") || event.defaultPrevented) return;
    if (event.repeat && event.key === this.held) return event.preventDefault();
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      event.preventDefault(); // else the browser closes at once what is opened here
      if (typing) typing.blur();
      else if (chat?.panel) chat.open("");
      else if (chat?.fold.busySince) chat.askToStop();
      return;
    }
    if (event.altKey && chat && !event.ctrlKey && !event.metaKey) return this.altKey(event, chat, typing);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { n: () => { location.hash = "#/new"; }, "/": () => this.list?.search.focus(), j: () => this.list?.step(1),
        k: () => this.list?.step(-1), m: () => page?.querySelector("chat-composer textarea")?.focus(),
        e: () => chat?.conversation.toEnd(), "?": () => this.help() }[event.key];
    if (!act || !this.list) return;
    event.preventDefault();
    this.held = event.key;
    act();
  }

  /** Chords: a text that somebody types has none, so it never answers an approval. */
  altKey(event, chat, typing) {
    const panel = /^Digit([1-6])$/.exec(event.code)?.[1];
    const answer = typing ? "" : { KeyA: "allow", KeyX: "deny" }[event.code];
    if (!panel && !answer) return;
    event.preventDefault();
    if (event.repeat) return;
    if (answer) chat.cards.press(answer);
    else chat.tabs.querySelector(`:nth-child(${panel}):not([hidden])`)?.click();
  }
}
customElements.define("treadle-app", App);
