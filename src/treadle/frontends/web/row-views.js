// How the rows of a conversation look. Each view takes a row and brings an element up to date with it; what was opened
// stays open.

import { picture } from "./composer.js";
import { button, copy, download, duration, h, iconButton, inert, money, number, tried } from "./dom.js";
import { ENDS, familyTable, stat } from "./family.js";
import { completeUpTo, show } from "./rendered.js";

const SOURCES = { autopilot: "autopilot", check: "a check", guard: "the loop guard", apply: "as you asked" };
const DEEDS = {
  read_file: ["read", "file"], read_output: ["read", "output"], list_directory: ["listed", "folder"], find_files: ["searched", "time"],
  grep_search: ["searched", "time"], get_diagnostics: ["looked for errors", "time"], write_file: ["wrote", "file"],
      edit_file: ["edited", "time"],
  apply_patch: ["edited", "time"], run_command: ["ran", "command"],
};
const PIECE = 64 * 1024; // bytes of an output that are read at once
const STATES = { waiting: "about to run", asked: "waits for approval", client: "a client runs it", running: "running", done: "done",
    failed: "failed" };

/** A fold-out that remembers in its owner whether it is open. */
export function fold(owner, name, summary, content, className = "") {
  const made = h("details", { class: className, open: Boolean(owner[name]) }, h("summary", {}, ...[summary].flat()));
  const fill = () => { if (made.open && made.childElementCount === 1) made.append(...[content()].flat()); };
  made.addEventListener("toggle", () => { owner[name] = made.open; fill(); });
  fill();
  return made;
}

class Answer extends HTMLElement {
  update(row) {
    if (!this.body) {
      this.thinking = h("div");
      this.body = h("div", { class: "markdown" });
      this.tail = h("div", { class: "tail" });
      this.done = 0;
      this.append(this.thinking, this.body, this.tail);
    }
    this.think(row);
    this.classList.toggle("live", row.live);
    if (!row.live) return this.finish(row);
    const upTo = completeUpTo(row.text, this.done);
    if (upTo > this.done) {
      const block = h("div");
      this.body.append(block);
      show(block, "markdown", row.text.slice(this.done, upTo));
      this.done = upTo;
      this.shown = "";
      this.tail.textContent = "";
    }
    const rest = row.text.slice(this.done);
    if (rest.startsWith(this.shown ?? "") && this.tail.firstChild) this.tail.firstChild.appendData(inert(rest.slice((this.shown ?? "").length)));
    else this.tail.textContent = inert(rest);
    this.shown = rest;
  }

  think(row) {
    if (!row.thinking) return;
    const title = row.live && !row.text ? "Thinking …" : `Thought${row.thought ? ` for ${duration(row.thought)}` : ""}`;
    if (!this.thought) {
      this.thought = h("pre", { class: "plain" });
      this.thinking.append(fold(row, "openThinking", (this.heading = h("span")), () => this.thought, "thinking"));
    }
    this.heading.textContent = title;
    this.thought.textContent = inert(row.thinking);
  }

  finish(row) {
    if (this.final === row.text) return;
    this.final = row.text;
    this.querySelector(".answer-tools")?.remove();
    const whole = h("div", { class: "markdown" });
    const swap = () => {
      if (this.final !== row.text) return;
      this.tail.textContent = "";
      this.body.replaceWith(whole);
      this.body = whole;
      if (row.partial) whole.append(h("p", { class: "muted" }, "(stopped here)"));
    };
    if (!this.done && !this.shown) {
      this.body.replaceWith(whole);
      this.body = whole;
    }
    show(whole, "markdown", row.text).then(swap);
    if (row.text.trim()) this.append(h("div", { class: "answer-tools" },
        iconButton("copy", "Copy the answer", () => copy(row.text))));
  }
}
customElements.define("chat-answer", Answer);

function user(row, page) {
  const said = h("div", { class: "bubble" });
  show(said, "markdown", row.text);
  const who = row.source === "person" ? (row.delivery === "idle" ? "You" : `You (${row.delivery})`)
      : `Treadle (${SOURCES[row.source] ?? row.source})`;
  return h("div", { class: `user ${row.source === "person" ? "" : "synthetic"}` },
    h("div", { class: "who" }, who,
      page.readOnly || row.source !== "person" ? null : h("span", { class: "tools" },
        iconButton("undo", "Go back to before this message", () => page.rewind(row)),
        button("Edit", () => page.edit(row), { class: "quiet small" }))), row.text ? said : null, pictures(row, page));
}

/** The pictures of a message, read once for each row. */
function pictures(row, page) {
  if (!row.images.length || !page.part) return null;
  row.pictures ??= row.images.map((_type, place) => page.part(row.seq, `images/${place}`).then((answer) => answer.blob()));
  const place = h("div", { class: "pictures", "aria-label": `${row.images.length} image${row.images.length > 1 ? "s" : ""}`, role: "group" });
  row.pictures.forEach((each, at) => {
    const frame = h("span", {}, "…");
    place.append(frame);
    each.then((blob) => frame.replaceChildren(picture(blob, `image ${at + 1}`)), () => { frame.textContent = "This picture cannot be loaded."; });
  });
  return place;
}

function output(call, page) {
  const text = call.state === "running" ? call.output : call.text;
  const at = text.indexOf("\n@@ ");
  const parts = [];
  if (call.children?.length) parts.push(familyTable(call.children.map((each) => ({ ...each.now, ...each, depth: 0 }))));
  if (call.name === "run_command") parts.push(h("pre", { class: "command" }, `$ ${commandOf(call)}`));
  if (at >= 0 && call.name !== "run_command") {
    const place = h("div", { class: "diffs" });
    show(place, "diff", text, { language: call.summary, split: page.split() });
    parts.push(place);
  } else if (call.name === "read_file" && call.state === "done") {
    const place = h("div");
    const lines = text.split("\n");
    show(place, "code", lines.slice(1).map((line) => line.replace(/^\s*\d+\t/, "")).join("\n"), { language: call.summary });
    parts.push(h("p", { class: "muted" }, lines[0]), place);
  } else if (text) parts.push(h("pre", { class: "output", tabindex: "0" }, text));
  if (call.cut) parts.push(wholeOutput(call, page));
  const facts = [call.permission, call.sandbox && `sandbox: ${call.sandbox}`, call.effect === "direct" && "wrote directly", call.synthetic
      && `not a result of the tool: ${call.synthetic}`];
  parts.push(h("p", { class: "muted facts" }, facts.filter(Boolean).join(" · ")));
  return parts;
}

/** All that a tool wrote: read piece by piece, or as a file. */
function wholeOutput(call, page) {
  const text = h("pre", { class: "output", tabindex: "0", hidden: true, "aria-label": "Whole output" });
  const decoder = new TextDecoder();
  let read = 0;
  const more = button("Show the whole output", async () => {
    more.disabled = true;
    const answer = await tried(page.part(call.done, "output", `bytes=${read}-${read + PIECE - 1}`));
    more.disabled = false;
    if (!answer) return;
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const total = Number(answer.headers.get("content-range")?.split("/")[1] ?? bytes.length);
    read += bytes.length;
    text.hidden = false;
    text.append(inert(decoder.decode(bytes, { stream: read < total })));
    more.textContent = `Show more: ${number(Math.ceil((total - read) / 1024))} KB left`;
    more.hidden = read >= total;
  }, { class: "quiet small" });
  const save = button("Download", async () => {
    const answer = await tried(page.part(call.done, "output"));
    if (answer) download(await answer.blob(), `${call.name}-${call.done}.txt`);
  }, { class: "quiet small", "aria-label": "Download the whole output" });
  return h("div", { class: "whole" }, text, h("div", { class: "answer-tools" }, more, save));
}

function commandOf(call) {
  try { return JSON.parse(call.arguments).command ?? call.summary; } catch { return call.summary; }
}

function callLine(call, page) {
  const line = [h("span", { class: `state ${call.state}`, role: "img", "aria-label": STATES[call.state] }), h("span", { class: "tool" }, call.name), " ",
    h("code", { class: "touches" }, call.summary), " ", stat(call.stat),
        h("span", { class: "muted" }, call.state === "done" || call.state === "failed"
        ? [call.brief && !call.stat ? ` ${call.brief}` : "", call.ms > 999 ? ` · ${duration(call.ms)}` : ""].join("")
        : ` ${STATES[call.state]}`)];
  if (call.name === "race" || call.state === "running" && (call.output || call.children?.length)) call.open ??= true;
  return fold(call, "open", line, () => output(call, page), "call");
}

function deeds(calls) {
  const counts = new Map();
  for (const call of calls) {
    const [verb, noun] = DEEDS[call.name] ?? [`called ${call.name}`, "time"];
    counts.set(`${verb}|${noun}`, (counts.get(`${verb}|${noun}`) ?? 0) + 1);
  }
  const failed = calls.filter((call) => call.state === "failed").length;
  return [...counts].map(([key, n]) => `${key.split("|")[0]} ${n} ${key.split("|")[1]}${n > 1 ? "s" : ""}`).concat(failed
      ? [`${failed} failed`] : []).join(", ");
}

function calls(row, page) {
  const lines = row.calls.map((call) => callLine(call, page));
  const over = row.calls.every((call) => call.state === "done" || call.state === "failed");
  if (row.calls.length < 4 || !over) return h("div", { class: "calls" }, lines);
  return h("div", { class: "calls" }, fold(row, "open", deeds(row.calls), () => lines, "group"));
}

function end(row, page) {
  const facts = [duration(row.ms), row.spent.tokens ? `${number(row.spent.tokens)} tokens` : "", row.spent.usd ? money(row.spent.usd) : "",
      row.why].filter(Boolean).join(" · ");
  const files = row.files.length ? h("div", { class: "files" },
      row.files.slice(0, 8).map((file) => h("span", { class: "file" }, h("code", {}, file.path), " ", stat(file))),
    row.files.length > 8 ? `and ${row.files.length - 8} more` : null, page.readOnly ? null
        : button("Review", () => page.review(), { class: "small" })) : null;
  return h("div", { class: `end ${row.reason}` }, h("span", { class: "muted" }, `${ENDS[row.reason] ?? row.reason} · ${facts}`),
    page.readOnly ? null : h("span", { class: "tools" }, button("Retry", () => page.retry(row), { class: "quiet small" }),
        button("Fork here", () => page.fork(row.seq), { class: "quiet small" }),
        button("Replay", () => page.replay(row.run, row.seq), { class: "quiet small" })), files);
}

function question(row) {
  const answer = row.answer === null ? h("p", { class: "muted" }, "Waits for an answer.") : h("p", {},
      h("b", {}, row.synthetic ? "Not answered. " : "Answer: "), row.answer);
  const text = h("div", { class: "markdown" });
  show(text, "markdown", row.text);
  return h("div", { class: "inquiry" }, text, answer);
}

function done(row) {
  const text = h("div", { class: "markdown" });
  show(text, "markdown", row.text);
  return h("div", { class: "completed" }, h("b", {}, "Task complete"), text);
}

function note(row) {
  const text = h("span", {}, row.text);
  return h("div", { class: `note ${row.tone}` }, row.more ? fold(row, "open", text,
      () => h("pre", { class: "output", tabindex: "0" }, row.more)) : text);
}

const VIEWS = { user, calls, end, question, done, note };

/** The element of a row, new or brought up to date. */
export function viewOf(row, page, known) {
  const place = known ?? h("div", { class: `row row-${row.kind}`, data: { key: row.key, seq: row.seq } });
  if (row.kind === "answer") {
    if (!known) place.append(document.createElement("chat-answer"));
    place.firstChild.update(row);
  } else place.replaceChildren(VIEWS[row.kind](row, page));
  place.dataset.seq = row.seq;
  return place;
}

