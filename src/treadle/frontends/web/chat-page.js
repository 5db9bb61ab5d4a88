// One chat: its stream, its conversation, what it waits for, its queue and plan, and panels about its work.

import "./action-cards.js";
import { effortChoice, modeChoice, modelChoice } from "./composer.js";
import "./conversation.js";
import { planned, tellConflicts } from "./changed-files.js";
import { ChatFold } from "./chat-fold.js";
import { changeOptions, deleteChat, exportChat } from "./chat-options.js";
import { STATUSES } from "./chat-list.js";
import { announce, ask, button, h, iconButton, inert, money, number, toast, tried } from "./dom.js";
import { api, chatPath } from "./session.js";
import { Stream } from "./stream.js";

/** By name: what is on the tab, the module, and its element where that has another name. */
const PANELS = { files: ["Files", "changed-files"], timeline: ["Timeline", "timeline", "run-timeline"], log: ["Log", "log-view"],
    jobs: ["Jobs", "job-list"], tree: ["Tree", "family", "chat-tree"], world: ["World", "world-view"], replay: ["Replay", "replay-view"], file: ["File", "file-view"] };
const TABS = 6;
const LONG = 300;
const LOOK_MS = 500;

class ChatPage extends HTMLElement {
  begin(id, app) {
    Object.assign(this, { chat: id, app, panel: "", fold: new ChatFold(), head: 0, ready: false, seenQueue: 0, seenFamily: 0,
        family: [], below: [] });
    this.titleText = h("h1", {}, app.list.chats.get(id)?.title || "…");
    this.status = h("span", { class: "status", role: "status" });
    this.above = h("a", { class: "badge", hidden: true, title: "The chat that started this one" }, "↑ parent");
    this.gauge = h("span", { class: "gauge muted" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Panels" },
        Object.entries(PANELS).slice(0, TABS).map(([name, [text]], at) => button(text, () => this.open(this.panel === name ? "" : name),
        { class: "quiet", "aria-pressed": "false", data: { panel: name }, title: `${text} (Alt+${at + 1})`, hidden: at > 3 })));
    this.conversation = document.createElement("chat-conversation");
    this.cards = document.createElement("action-cards");
    this.composer = document.createElement("chat-composer");
    this.plan = h("div", { class: "plan-box", hidden: true });
    this.queue = h("div", { class: "queue", hidden: true });
    this.working = h("div", { class: "working", hidden: true, "aria-live": "off" });
    this.side = h("section", { class: "side", hidden: true, "aria-label": "Panel" });
    this.replaceChildren(h("header", { class: "chat-head" },
        h("a", { class: "quiet only-phone", href: "#/", "aria-label": "All chats" }, "‹"), this.titleText, this.status, this.above,
        h("span", { class: "space" }), this.gauge, this.tabs, iconButton("gear", "Options of this chat", () => this.options())),
      h("main", { id: "main" }, h("div", { class: "talk" }, this.conversation,
          h("div", { class: "foot" }, this.working, this.plan, this.cards, this.queue, this.composer)), this.side));
    this.addEventListener("show-file", ({ detail }) => this.showFile(detail.path, detail.line));
    this.conversation.begin(this.fold, this);
    this.cards.begin(id);
    this.choices = h("span", { class: "choices-later" });
    this.composer.begin({ chat: id, said: (message) => this.say(message), stop: () => this.interrupt(), extra: [this.choices],
        commands: this.commands() });
    app.models().then((models) => { this.models = models; this.showChoices(); });
    this.start();
  }

  async start() {
    try {
      const seen = await api("GET", chatPath(this.chat));
      this.head = seen.head;
      if (seen.head > LONG) {
        this.conversation.above.textContent = `Reading ${seen.head.toLocaleString("en")} events …`;
        await this.readLog();
      }
    } catch (error) {
      if (error.status === 404) return this.missing();
    }
    if (!this.isConnected) return;
    this.stream = new Stream(chatPath(this.chat, "/events"),
        { place: () => this.fold.seq, take: (event) => this.take(event), told: (state) => this.app.told("chat", state),
        before: () => this.back() });
    this.clock = setInterval(() => this.tick(), 1000);
  }

  /** Once all is there: the focus goes to what the chat waits for, else to the message. */
  placeFocus() {
    const card = this.cards.querySelector(".action");
    if (card) card.focus();
    else if (matchMedia("(min-width: 700px)").matches) this.composer.area.focus();
  }

  /** The person's own message is always shown, wherever the page is. */
  async say({ content, images, delivery, key }) {
    const pictures = images.map(({ media_type, data }) => ({ media_type, data }));
    await api("POST", chatPath(this.chat, "/messages"), { content, images: pictures, delivery, expand: true }, { patient: true, key });
    this.conversation.toEnd();
  }

  /** Commands that the page carries out itself. */
  commands() {
    const panel = (name) => ({ about: `Show the panel ${PANELS[name][0]}`, run: () => this.open(name) });
    return { compact: { about: "Shorten the conversation now", run: () => tried(api("POST", chatPath(this.chat, "/compact"), {})) },
        export: { about: "Download the chat as JSON lines", run: () => exportChat(this.chat) },
        delete: { about: "Delete this chat for good", run: () => deleteChat(this) },
        files: panel("files"), jobs: panel("jobs"), log: panel("log"), timeline: panel("timeline"),
        new: { about: "Begin another chat", run: () => { location.hash = "#/new"; } },
        options: { about: "Title, budgets, archive", run: () => this.options() },
        rules: { about: "Standing answers to approvals", run: () => { location.hash = `#/rules/${encodeURIComponent(this.chat)}`; } },
        stop: { about: "Stop the run", run: () => this.interrupt() } };
  }

  /** Model, mode and reasoning effort beside the message, as the chat has them now. */
  showChoices() {
    const { model, mode, reasoning_effort: effort = "" } = this.fold.options;
    if (!this.models || !model) return;
    const shown = JSON.stringify([model, mode, effort]);
    if (this.choices.dataset.shown === shown || this.choices.contains(document.activeElement)) return;
    this.choices.dataset.shown = shown;
    const change = (event) => tried(api("PATCH", chatPath(this.chat), { [event.target.name]: event.target.value }))
        .then(() => { this.choices.dataset.shown = ""; this.showChoices(); });
    const choices = [modelChoice(this.models, model), modeChoice(mode), effortChoice(this.models, model, effort)].filter(Boolean);
    for (const each of choices) each.addEventListener("change", change);
    this.choices.replaceChildren(...choices);
  }

  /** What is recorded of a long chat, in one piece; the stream goes on from there. */
  async readLog() {
    const log = await (await api("GET", chatPath(this.chat, "/events?follow=false&deltas=false"))).text();
    for (const line of log.split("\n")) if (line.startsWith("data: ")) this.take(JSON.parse(line.slice(6)));
  }

  disconnectedCallback() {
    this.stream?.close();
    clearInterval(this.clock);
    clearTimeout(this.timer);
    clearTimeout(this.looking);
    this.app?.told("chat", "live");
  }

  missing() {
    this.stream?.close();
    this.app.told("chat", "live"); // the server is there, but for this
    this.replaceChildren(h("main", { id: "main", class: "page" }, h("h1", {}, "This chat is not on the server"),
        h("p", {}, "It was deleted, belongs to another user, or the server uses another database."), h("p", {}, h("a", { href: "#/" }, "All chats"))));
  }

  /** Before coming back: the chat may be gone, or its log may be shorter than what is shown (a store put back). */
  async back() {
    try {
      const seen = await api("GET", chatPath(this.chat), undefined, { quick: true });
      if (seen.head < this.fold.seq) {
        this.fold = new ChatFold();
        this.conversation.begin(this.fold, this);
        toast("The server's record of this chat is shorter than what was shown here. This is what it has now.", "bad");
      }
      this.head = seen.head;
      if (this.fold.counts.children) this.loadFamily(); // what they did meanwhile was told to nobody
    } catch (error) {
      if (error.status === 404) { this.missing(); return false; }
    }
    return true;
  }

  take(event) {
    const waited = this.fold.actions.length;
    if (!this.fold.take(event)) return;
    if (this.fold.seq >= this.head) this.ready = true;
    if (!this.ready) return;
    if (event.type === "session.action_required"
        && event.data.actions.length > waited) announce(`The chat waits for you: ${event.data.actions[0].text || event.data.actions[0].name}`);
    if (event.type === "session.idle") announce("The run is over.");
    this.conversation.news();
    if (event.seq && !this.timer) this.timer = setTimeout(() => { this.timer = 0; this.update(); }, 40); // live text changes nothing else
  }

  get state() {
    const { fold } = this;
    const listed = this.app.list?.chats.get(this.chat)?.status;
    if (!fold.busySince) return fold.lastEnd === "error" ? "error" : "idle";
    if (fold.actions.length || this.below.length) return "requires_action";
    if (listed === "pending" && fold.run) return listed; // no event tells the list that a worker has begun a compaction
    return listed === "interrupting" ? listed : "running";
  }

  update() {
    const { fold, state } = this;
    const title = inert(fold.title || this.app.list?.chats.get(this.chat)?.title
        || fold.rows.find((row) => row.kind === "user")?.text.split("\n")[0].slice(0, 80) || "Untitled");
    this.titleText.textContent = title;
    document.title = `${state === "requires_action" ? "● " : ""}${title} – Treadle`;
    this.status.className = `status ${state}`;
    this.status.textContent = fold.options.archived ? "archived" : STATUSES[state];
    const { tokens } = fold.context;
    const facts = this.factsOf(fold.options.model);
    const most = fold.context.window || fold.options.context_window || facts.context_window;
    const cost = Math.max(fold.cost ?? 0, fold.usage.usd);
    const price = cost ? money(cost) : tokens && !facts.priced ? "price unknown" : "";
    this.gauge.textContent = [tokens
        ? `${number(tokens)}${most ? ` / ${number(most)} (${Math.round((100 * tokens) / most)} %)` : " tokens"}` : "",
        price].filter(Boolean).join(" · ");
    this.gauge.title = [`${number(fold.usage.input)} tokens read (${number(fold.usage.cached)} cached), ${number(fold.usage.output)} written`,
        `mode: ${fold.options.mode}`, fold.sandbox && `sandbox: ${fold.sandbox}`, fold.branch
        && `branch: ${fold.branch}`, fold.options.world && `world: ${fold.options.world}`].filter(Boolean).join("\n");
    this.above.hidden = !fold.parent;
    this.above.href = `#/chat/${encodeURIComponent(fold.parent)}`;
    const [tree, world] = [...this.tabs.children].slice(-2);
    tree.hidden = !fold.parent && !fold.counts.children;
    world.hidden = !fold.options.world;
    this.composer.working(fold.busySince > 0);
    this.showChoices();
    this.cards.update([...fold.actions.map((each) => ({ ...each, chat: this.chat })), ...this.below]);
    this.showPlan();
    this.tick();
    if (this.seenQueue !== fold.counts.queue) { this.seenQueue = fold.counts.queue; this.loadQueue(); }
    if (this.seenFamily !== fold.counts.children) { this.seenFamily = fold.counts.children; this.loadFamily(); }
    this.side.firstElementChild?.update?.(fold);
    if (!this.placed) { this.placed = true; this.placeFocus(); }
  }

  /** What the server knows of the chat's model: how much it takes in, and whether its price is known. Asked once a model. */
  factsOf(model) {
    if (this.asked !== model && this.ready) {
      Object.assign(this, { asked: model, facts: null });
      api("GET", chatPath(this.chat, "/usage")).then((found) => { this.facts = found; this.update(); }, () => {});
    }
    return this.facts ?? { context_window: 0, priced: true };
  }

  tick() {
    const { fold } = this;
    this.working.hidden = this.state !== "running" && this.state !== "pending";
    if (!this.working.hidden) this.working.textContent = `${this.state === "pending" ? "waiting for a worker" : inert(fold.phase) || "working"} · ${Math.round((Date.now() - fold.busySince) / 1000)} s`;
  }

  showPlan() {
    const steps = this.fold.plan;
    this.plan.hidden = !steps.length || !this.fold.run;
    if (this.plan.hidden || this.planShown === steps) return;
    this.planShown = steps;
    const done = steps.filter((step) => step.status === "done").length;
    this.plan.replaceChildren(h("details", { open: this.plan.querySelector("details")?.open },
        h("summary", {}, `Plan: ${done} of ${steps.length} done`,
        h("span", { class: "muted" }, ` ${steps.find((step) => step.status === "in_progress")?.text ?? ""}`)),
      h("ol", {}, steps.map((step) => h("li", { class: step.status }, step.text, h("span", { class: "unseen" }, ` (${step.status})`))))));
  }

  async loadQueue() {
    const { queue } = await api("GET", chatPath(this.chat, "/queue")).catch(() => ({ queue: [] }));
    const act = (method, id, rest = "", body = {}) => tried(api(method, chatPath(this.chat, `/queue/${encodeURIComponent(id)}${rest}`), body));
    const edit = async (item) => {
      const area = h("textarea", { rows: 5, value: item.content, "aria-label": "Queued message" });
      if (await ask("Change a queued message", [area], [["Save", true, "primary"], ["Cancel", null]])) act("PUT", item.id, "",
          { content: area.value });
    };
    this.queue.hidden = !queue.length;
    this.queue.replaceChildren(h("b", { class: "muted" }, `Queued: ${queue.length}`),
        ...queue.map((item) => h("div", { class: "queued" }, h("span", {}, item.delivery === "steering"
        ? h("span", { class: "badge" }, "steers") : null, item.content.slice(0, 200)),
      button("Next", () => act("POST", item.id, "/promote"), { class: "small quiet", title: "Send this one next" }),
          button("Edit", () => edit(item), { class: "small quiet" }),
          iconButton("close", "Remove from the queue", () => act("DELETE", item.id)))));
  }

  /** A chat has changed: if it is below this one, look at all of them, at most so often. */
  heard({ id, parent, deleted }) {
    if (deleted && id === this.chat) return this.missing();
    if (parent === this.chat || this.family.some(({ chat }) => chat === id || chat === parent)) {
      this.looking ??= setTimeout(() => { this.looking = null; this.loadFamily(); }, LOOK_MS);
    }
  }

  /** The chats that calls of this one began, and what they wait for: it is answered here as well. */
  async loadFamily() {
    try {
      const [{ children }, { actions }] = await Promise.all([api("GET", chatPath(this.chat, "/children")),
          api("GET", chatPath(this.chat, "/actions?below=true"))]);
      const below = actions.filter(({ chat }) => chat !== this.chat).map(({ action, ...whose }) => ({ ...action, ...whose }));
      if (below.length > this.below.length) announce(`${below[0].title} waits for you: ${below[0].text || below[0].name}`);
      Object.assign(this, { family: children, below });
    } catch { return; } // it is looked at again when the next thing happens
    this.fold.kin(this.family);
    this.conversation.news();
    this.update();
  }

  async open(name, ...more) {
    this.panel = name;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", String(tab.dataset.panel === name));
    this.classList.toggle("with-side", Boolean(name));
    this.side.hidden = !name;
    if (!name) return this.side.replaceChildren();
    const [text, module, element = module] = PANELS[name];
    await import(`./${module}.js`);
    if (this.panel !== name) return;
    const view = document.createElement(element);
    this.side.setAttribute("aria-label", text);
    this.side.replaceChildren(view, iconButton("close", "Close the panel", () => this.open(""), { class: "quiet shut" }));
    view.begin(this, ...more);
    view.update?.(this.fold);
  }

  // -- what rows and panels ask for --

  split() { return localStorage.getItem("treadle.split") === "1" && innerWidth > 900; }
  review() { this.open("files"); }
  replay(from, to) { this.open("replay", from, to); }

  showEvent(seq) {
    if (innerWidth < 1100) this.open("");
    this.conversation.show(seq);
  }

  /** What an event refers to: a picture of a message, or the output of a tool. */
  part(seq, rest, range = "") { return api("GET", chatPath(this.chat, `/events/${seq}/${rest}`), undefined, { range }); }

  showFile(path, line) { this.open("file", path, line); }

  async askToStop() {
    if (await ask("Stop the run?", [h("p", {}, "Its changes stay; you can continue with another message.")],
        [["Stop the run", true, "primary"], ["Let it run", null]])) this.interrupt();
  }

  /** The message that led to a row, to be sent once more. */
  retry(row) {
    const message = this.fold.rows.findLast((each) => each.kind === "user" && each.source === "person" && each.seq < row.seq);
    if (message) this.edit(message, "Run this again?");
  }

  async interrupt() {
    await api("POST", chatPath(this.chat, "/interrupt"), {}).catch(({ code, message }) => { if (code !== "not_running") toast(message, "bad"); });
  }

  async fork(seq) {
    const chat = await tried(api("POST", chatPath(this.chat, "/fork"), { seq }));
    if (!chat) return;
    toast("This is the copy.");
    location.hash = `#/chat/${chat.id}`;
  }

  async rewind(row) {
    const plan = await api("POST", chatPath(this.chat, "/undo"),
        { since: row.seq, preview: true }).catch((error) => ({ files: [], conflicts: [], total: 0, error: error.message }));
    const said = await ask("Go back to before this message?",
        [h("blockquote", {}, row.text.slice(0, 300)), h("h3", {}, "Files"), ...planned(plan), plan.error
        ? h("p", { class: "warn" }, plan.error) : null],
      [["Conversation and files", { conversation: true, files: true }, "primary"],
          ["Conversation only", { conversation: true, files: false }], ["Files only", { conversation: false, files: true }],
          ["Cancel", null]]);
    if (!said) return;
    const done = await tried(api("POST", chatPath(this.chat, "/back?wait=30"), { message: row.seq, ...said }));
    if (done) tellConflicts(done);
    if (done && said.conversation) this.composer.fill(row.text);
  }

  async edit(row, title = "Edit this message") {
    const area = h("textarea", { rows: 6, value: row.text, "aria-label": "Message" });
    const files = h("input", { type: "checkbox", checked: true });
    const said = await ask(title, [area, h("label", { class: "check" }, files, "Restore the files to that point, too"),
        h("p", { class: "muted" }, "Later messages leave the conversation; the log keeps them.")],
        [["Run again", true, "primary"], ["Cancel", null]]);
    if (said) tried(api("PUT", chatPath(this.chat, `/messages/${row.seq}`), { content: area.value, files: files.checked }));
  }

  async options() { changeOptions(this, await this.app.models()); }
}
customElements.define("chat-page", ChatPage);
