// Saying something: text, pictures and files; queued or steering while the chat works; with the model and the mode.

import { ask, h, icon, iconButton, shortModel, shortened, toast } from "./dom.js";
import { outboxOf } from "./outbox.js";
import { api, chatPath } from "./session.js";

export const MODES = {
  "read-only": "Read only", confirm: "Confirm everything", review: "Review every change", ask: "Ask when it matters",
  "auto-edit": "Edit freely", autopilot: "Autopilot",
};
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST = 8 << 20;
const LONGEST = 100_000;
const MOST_OFFERED = 8;
const SLOW_MS = 300;
/** What was typed and not sent: it is there again when the page is, in this window. */
const draft = (chat) => sessionStorage.getItem(`treadle.draft.${chat}`) ?? "";
function keepDraft(chat, text) {
  if (text && text.length < LONGEST) sessionStorage.setItem(`treadle.draft.${chat}`, text);
  else sessionStorage.removeItem(`treadle.draft.${chat}`);
}

/** A choice of models: those that can be used, and the one that is. */
export function modelChoice(models, chosen) {
  const names = [...new Set([chosen, models.default,
      ...models.models.filter((each) => each.usable).map((each) => each.model)])].filter(Boolean);
  return h("select", { name: "model", "aria-label": "Model" },
      names.map((name) => h("option", { value: name, selected: name === chosen, title: name }, shortModel(name))));
}

/** The levels that a model can be asked for; all, where its own are not known. */
export function effortsOf(models, model) {
  return models.models.find((each) => each.model === model)?.efforts ?? EFFORTS;
}

/** How much the model thinks, if it can be asked to; null if not. */
export function effortChoice(models, model, chosen) {
  const names = [...new Set(["", ...effortsOf(models, model), chosen])];
  if (names.length === 1) return null;
  return h("select", { name: "reasoning_effort", "aria-label": "Reasoning effort" }, names.map((name) => h("option",
      { value: name, selected: name === chosen }, name ? `Effort: ${name}` : "Effort: default")));
}

export function modeChoice(chosen) {
  return h("select", { name: "mode", "aria-label": "Mode" },
      Object.entries(MODES).map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

class Composer extends HTMLElement {
  /** `extra` are fields beside the text, `root` tells the project of a new chat, `commands` are those of the page by
   * name; `said(message)` sends a message and may fail. */
  begin({ chat = "", said, stop, extra = [], root = () => "", commands = {}, hint = "Send a message" }) {
    Object.assign(this, { chat, root, hint, commands, images: [], texts: [], busy: false, answers: {}, offers: [], at: 0, selected: "" });
    this.area = h("textarea", { rows: 1, "aria-label": "Message", "aria-controls": "hints", "aria-autocomplete": "list",
      placeholder: hint, value: draft(chat), on: {
      input: () => { keepDraft(chat, this.area.value); this.grow(); this.suggest(); },
      keydown: (event) => this.key(event),
      paste: (event) => { if (event.clipboardData.files.length) { event.preventDefault(); this.attach(event.clipboardData.files); } },
    } });
    const files = h("input", { type: "file", multiple: true, hidden: true,
        on: { change: () => { this.attach(files.files); files.value = ""; } } });
    this.attached = h("div", { class: "attached" });
    this.unsent = h("div", { class: "unsent", role: "status", hidden: true });
    this.hints = h("ul", { class: "hints", id: "hints", role: "listbox", "aria-label": "Suggestions", hidden: true });
    this.sendButton = h("button", { type: "submit", class: "primary send", "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
    this.steerButton = h("button", { type: "button", class: "small", title: "Put in before the next model call (Ctrl+Enter)", hidden: true,
        on: { click: () => this.send("steering") } }, "Steer");
    this.stopButton = stop ? iconButton("stop", "Stop the run", stop, { class: "stop", hidden: true }) : null;
    this.replaceChildren(this.unsent, h("form",
        { on: { submit: (event) => { event.preventDefault(); this.send("queued"); }, dragover: (event) => event.preventDefault(),
        drop: (event) => { event.preventDefault(); this.attach(event.dataTransfer.files); } } },
      this.hints, this.attached, this.area,
      h("div", { class: "bar" }, iconButton("clip", "Attach pictures or files", () => files.click()), files, ...extra,
          h("span", { class: "space" }), this.steerButton, this.stopButton, this.sendButton)));
    this.outbox = outboxOf(chat);
    this.outbox.use(said, () => this.showUnsent(), (message, error) => this.giveBack(message, error));
    this.grow();
  }

  working(busy) {
    if (this.busy === busy) return;
    this.busy = busy;
    this.steerButton.hidden = !busy;
    if (this.stopButton) this.stopButton.hidden = !busy;
    this.area.placeholder = busy ? "Queue a message, or steer the run" : this.hint;
    this.sendButton.title = busy ? "Queue (Enter)" : "Send (Enter)";
    this.sendButton.setAttribute("aria-label", busy ? "Queue" : "Send");
  }

  fill(text) {
    this.area.value = text;
    keepDraft(this.chat, text);
    this.grow();
    this.area.focus();
  }

  grow() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight + 2, innerHeight * 0.4)}px`;
  }

  key(event) {
    if (!this.hints.hidden && ["ArrowDown", "ArrowUp", "Tab", "Enter", "Escape"].includes(event.key)) return this.choose(event);
    if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return;
    event.preventDefault();
    this.send(event.ctrlKey || event.metaKey ? "steering" : "queued");
  }

  send(delivery) {
    const typed = this.area.value;
    const content = [typed.trim(), ...this.texts.map(fenced)].filter(Boolean).join("\n\n");
    this.offer([]);
    this.asked = null;
    if (!content && !this.images.length) return this.area.focus();
    const own = this.commands[/^\/(\S+)$/.exec(content)?.[1]];
    if (own) { this.fill(""); return own.run(); }
    const { images, texts } = this;
    Object.assign(this, { images: [], texts: [], answers: {} });
    this.fill("");
    this.showAttached();
    this.outbox.put({ content, delivery, images, typed, texts });
  }

  /** What is on its way, as soon as that takes longer than usual. */
  showUnsent() {
    clearTimeout(this.slow);
    this.slow = 0;
    const { messages } = this.outbox;
    if (!messages.length) { Object.assign(this.unsent, { hidden: true }); this.answers = {}; return; }
    const show = () => {
      this.unsent.replaceChildren(...messages.map(({ content, images }) => h("div", {}, h("b", {}, "Sending … "),
          shortened(content || `${images.length} images`, 120))));
      this.unsent.hidden = false;
    };
    if (this.unsent.hidden) this.slow = setTimeout(show, SLOW_MS);
    else show();
  }

  /** The server refused a message: it is in the field again. */
  giveBack({ typed, images, texts }, error) {
    toast(error.message, "bad");
    this.images = [...images, ...this.images];
    this.texts = [...texts, ...this.texts];
    this.fill(this.area.value ? `${typed}\n${this.area.value}` : typed);
    this.showAttached();
  }

  async attach(files) {
    for (const file of [...files]) { // the list is emptied meanwhile
      if (file.size > MOST) { toast(`${file.name} is larger than 8 MiB`, "bad"); continue; }
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (PICTURES.has(file.type)) {
        let text = "";
        for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
        this.images.push({ name: file.name, media_type: file.type, data: btoa(text) });
      } else {
        const text = textOf(bytes);
        if (text === null) toast(`${file.name} is neither text nor a picture; name it by its path in the project instead`, "bad");
        else this.texts.push({ name: file.name, text });
      }
    }
    this.showAttached();
  }

  showAttached() {
    const chip = (list, each, place, content) => h("span", { class: "file" }, content, each.name,
        iconButton("close", `Remove ${each.name}`, () => { list.splice(place, 1); this.showAttached(); }));
    this.attached.replaceChildren(
        ...this.images.map((image, place) => chip(this.images, image, place, thumbnail(image))),
        ...this.texts.map((file, place) => chip(this.texts, file, place, icon("clip"))));
  }

  // -- what could be meant: commands behind a /, files of the project and resources of MCP servers behind an @ --

  async suggest() {
    const before = this.area.value.slice(0, this.area.selectionStart);
    const [, mark, typed] = /^(\/)(\S*)$/.exec(before) ?? /(?:^|\s)(@)([^\s@]*)$/.exec(before) ?? [];
    const asked = this.asked = {};
    if (!mark) this.selected = "";
    const offer = (found) => { if (this.asked === asked) this.offer(found); };
    if (mark === "/") return offer(this.matching(typed, await this.known("commands")));
    if (!mark) return offer([]);
    const files = await this.files(typed);
    offer(files);
    if (!this.chat || this.asked !== asked) return;
    const wanted = typed.toLowerCase();
    offer([...files, ...(await this.known("resources")).filter(({ mention, name }) =>
        mention.slice(1).toLowerCase().startsWith(wanted) || wanted && name.toLowerCase().startsWith(wanted))
        .map(({ mention, name, template }) => ({ text: template ? mention : `${mention} `, shown: mention, about: name }))]);
  }

  /** What the chat, or the one to come, has of these; asked for once for each message. */
  known(what) {
    const path = this.chat ? chatPath(this.chat, `/${what}`) : `/api/${what}?root=${encodeURIComponent(this.root())}`;
    return this.answers[path] ??= api("GET", path, undefined, { quick: true }).then((found) => found[what], () => []);
  }

  /** Commands of the page, and those that the server expands, by their first letters. */
  matching(typed, expanded) {
    const own = Object.entries(this.commands).map(([name, { about }]) => ({ name, hint: "", description: about }));
    return [...own, ...expanded].filter(({ name }) => name.startsWith(typed))
        .map(({ name, hint, description }) => ({ text: `/${name} `, shown: `/${name} ${hint}`, about: description }));
  }

  async files(typed) {
    const query = `query=${encodeURIComponent(typed)}`;
    const path = this.chat ? chatPath(this.chat, `/files/find?${query}`)
        : `/api/files/find?${query}&root=${encodeURIComponent(this.root())}`;
    const { paths } = await api("GET", path, undefined, { quick: true }).catch(() => ({ paths: [] }));
    return paths.slice(0, MOST_OFFERED).map((name) => ({ text: `${name} `, shown: name }));
  }

  /** Late answers redraw the list, and may empty it for a moment: the person's selection is kept by its text. */
  offer(found) {
    this.offers = found.slice(0, 2 * MOST_OFFERED);
    this.hints.replaceChildren(...this.offers.map((each, place) => h("li", { role: "option", id: `hint-${place}`,
        on: { mousedown: (event) => { event.preventDefault(); this.put(each); } } },
        h("span", {}, each.shown), each.about ? h("span", { class: "muted" }, each.about) : null)));
    this.hints.hidden = !found.length;
    this.mark(Math.max(0, this.offers.findIndex(({ text }) => text === this.selected)));
  }

  mark(at) {
    this.at = at;
    [...this.hints.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === at)));
    this.hints.children[at]?.scrollIntoView({ block: "nearest" });
    if (this.hints.hidden) this.area.removeAttribute("aria-activedescendant");
    else this.area.setAttribute("aria-activedescendant", `hint-${at}`);
  }

  choose(event) {
    const chosen = this.offers[this.at];
    event.preventDefault();
    if (event.key === "Escape") { event.stopPropagation(); return this.offer([]); }
    if (event.key === "Enter" && chosen.text.trim() === this.area.value) { this.offer([]); return this.send("queued"); }
    if (event.key === "Enter" || event.key === "Tab") return this.put(chosen);
    this.mark((this.at + (event.key === "ArrowDown" ? 1 : -1) + this.offers.length) % this.offers.length);
    this.selected = this.offers[this.at].text;
  }

  put({ text }) {
    const end = this.area.selectionStart;
    this.selected = "";
    this.area.setRangeText(text, text.startsWith("/") ? 0 : this.area.value.lastIndexOf("@", end - 1), end, "end");
    this.offer([]);
    keepDraft(this.chat, this.area.value);
  }
}
customElements.define("chat-composer", Composer);

/** A file as it stands in a message. */
function fenced({ name, text }) {
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`{3,}/g)].map(([ticks]) => ticks.length + 1)));
  return `${name}:\n${fence}\n${text}\n${fence}`;
}

/** The text of a file; null if it is none. */
function textOf(bytes) {
  if (bytes.includes(0)) return null;
  try { return new TextDecoder("utf-8", { fatal: true }).decode(bytes); } catch { return null; }
}

function thumbnail({ media_type: type, data, name }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return picture(new Blob([bytes], { type }), name);
}

/** A small picture that opens in full. */
export function picture(blob, name) {
  const src = URL.createObjectURL(blob);
  const open = () => ask(name, [h("img", { class: "full", alt: name, src })], [["Close", null]]);
  return h("button", { type: "button", class: "thumbnail", "aria-label": `Show ${name}`, on: { click: open } }, h("img", { alt: "", src }));
}
