// The one door for HTML: only what the server's renderer made gets through it, and nothing else of this page can make
// HTML at all (Trusted Types). Requests of one moment travel together; answers are kept for a while.

import { api } from "./session.js";
import { copy, h } from "./dom.js";

const MOST = 60;
const KEPT = 400;
const policy = window.trustedTypes?.createPolicy("treadle", { createHTML: (made) => made }) ?? { createHTML: (made) => made };
const kept = new Map();
let waiting = [];

function ask(passage) {
  const key = JSON.stringify(passage);
  if (kept.has(key)) return kept.get(key);
  const promise = new Promise((resolve, reject) => {
    if (!waiting.length) queueMicrotask(send);
    waiting.push({ passage, resolve, reject });
  });
  kept.set(key, promise);
  promise.catch(() => kept.delete(key));
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return promise;
}

async function send() {
  const batch = waiting;
  waiting = [];
  for (let at = 0; at < batch.length; at += MOST) {
    const some = batch.slice(at, at + MOST);
    try {
      const { html } = await api("POST", "/api/render", { passages: some.map((each) => each.passage) });
      some.forEach((each, place) => each.resolve(html[place]));
    } catch (error) {
      some.forEach((each) => each.reject(error));
    }
  }
}

/** Show a passage in an element. Until the answer comes it shows the text; where none comes, it stays text. */
export async function show(element, kind, text, { language = "", split = false, numbered = false } = {}) {
  const passage = { kind, text, language, split, numbered };
  element.passage = passage;
  if (!element.hasChildNodes()) element.append(h("span", { class: "raw" }, text));
  try {
    const html = await ask(passage);
    if (element.passage !== passage) return; // something newer is shown by now
    element.innerHTML = policy.createHTML(html);
    for (const block of element.querySelectorAll(".code")) {
      const button = h("button", { type: "button", class: "copy quiet",
          on: { click: () => copy(block.querySelector("code").textContent) } }, "Copy");
      block.append(button);
    }
    for (const link of element.querySelectorAll(".place")) link.addEventListener("click", (event) => {
      event.stopPropagation();
      const { path, line } = link.dataset;
      link.dispatchEvent(new CustomEvent("show-file", { bubbles: true, detail: { path, line: Number(line) || 0 } }));
    });
    element.dispatchEvent(new Event("rendered", { bubbles: true }));
  } catch {
    // offline: the text is there, and is made HTML when it is shown again
  }
}

/** Where the complete blocks of a text that is still growing end: at a blank line outside of a fence. */
export function completeUpTo(text, from = 0) {
  let fence = "";
  let done = from;
  let at = from;
  for (const line of text.slice(from).split("\n").slice(0, -1)) {
    at += line.length + 1;
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && !line.trim().slice(mark.length)) { fence = ""; done = at; }
    } else if (mark) fence = mark;
    else if (!line.trim()) done = at;
  }
  return done;
}
