// Making elements, and words for numbers. Text goes in as text, and inert; HTML has its own module, `rendered`.

const LIVELY = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029\u{e0000}-\u{e0fff}]/gu;

/** Text in which nothing hides or reorders what is read: such characters are shown as escapes (S-12). */
export function inert(text) {
  return text.replace(/\r\n/g, "\n").replace(LIVELY, (found) => {
    const code = found.codePointAt(0);
    const [mark, digits] = code < 256 ? ["x", 2] : code < 65_536 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
  });
}

const shown = (child) => typeof child === "string" ? inert(child) : child;

/** An element: `class`, attributes, `on` for listeners; children are elements, texts, or nothing. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "value") made.value = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : inert(String(value)));
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false).map(shown));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else made.setAttribute(name, inert(String(value)));
  }
  made.append(...children.flat().filter(Boolean).map(shown));
  return made;
}

const ICONS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  gear: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M6 14v6",
  leave: "M10 5H5v14h5M14 8l4 4-4 4M18 12H9",
  close: "M6 6l12 12M18 6L6 18",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.4 8.4a1.6 1.6 0 0 1-2.3-2.3L14.500 7.500",
  copy: "M9 9h10v10H9zM5 15V5h10",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v3M12 19v3M2 12h3M19 12h3",
  help: "M9 9a3 3 0 1 1 4 2.800c-.8.4-1 1-1 2.200M12 18h.01",
};

export function icon(name) {
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" };
  return svg("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true", class: "icon" },
      svg("path", { d: ICONS[name], ...line }));
}

/** A button with an icon, named for those who do not see it. */
export function iconButton(name, label, act, extra = {}) {
  return h("button", { type: "button", class: "quiet", "aria-label": label, title: label, ...extra, on: { click: act } }, icon(name));
}

export function button(text, act, extra = {}) {
  return h("button", { type: "button", ...extra, on: { click: act } }, text);
}

/** A question in front of everything else: resolves with what the form says, or null when it is closed. */
export function ask(title, fields, actions) {
  return new Promise((resolve) => {
    const done = (value) => { made.close(); made.remove(); resolve(value); };
    const buttons = actions.map(([text, value, kind]) => button(text, () => done(typeof value === "function" ? value() : value),
        { class: kind ?? "" }));
    const made = h("dialog", { "aria-label": title, on: { cancel: () => done(null) } },
      h("form", { method: "dialog", on: { submit: (event) => { event.preventDefault(); buttons[0].click(); } } },
        h("header", {}, h("h2", {}, title), iconButton("close", "Close", () => done(null))), ...fields,
        h("footer", {}, ...buttons)));
    document.body.append(made);
    made.showModal();
    (made.querySelector("[autofocus], input, textarea, select") ?? buttons[0])?.focus();
  });
}

/** A line that appears for a while; read out to those who do not see it. */
export function toast(text, kind = "") {
  const line = h("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
  document.body.append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 8000 : 4000);
}

/** What comes of something that may fail; if it does, that is told. */
export const tried = (work) => work.catch((error) => toast(error.message, "bad"));

/** Tell those who do not see the screen. */
export function announce(text) {
  let place = document.getElementById("announcer");
  if (!place) document.body.append((place = h("div", { id: "announcer", class: "unseen", role: "status", "aria-live": "polite" })));
  place.textContent = inert(text);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "unseen", value: text, "aria-label": "to be copied" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied");
}

/** Hand a file to the person. */
export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const number = (value) => value < 10_000 ? value.toLocaleString("en") : value < 1_000_000
    ? `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)}k` : `${(value / 1e6).toFixed(2)}M`;
export const money = (usd) => usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.floor(seconds / 60)} min${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
}
export function ago(iso) {
  const past = (Date.now() - Date.parse(iso)) / 1000;
  if (past < 60) return "now";
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  return past < 86_400 ? `${Math.floor(past / 3600)} h` : `${Math.floor(past / 86_400)} d`;
}
/** A long name, with its middle left out. */
export const shortened = (name, most) => name.length <= most ? name : `${name.slice(0, most / 4)}…${name.slice(-most * 3 / 4 + 1)}`;
/** The name of a model; of one that is a file, only the file's. */
export const shortModel = (name, most = 34) => shortened(name.replace(/:.*\/(?=[^/]+\.\w+$)/, ":"), most);
export const baseName = (path) => path.split("/").filter(Boolean).pop() ?? path;
