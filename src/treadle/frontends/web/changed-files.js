// What the chat changed in the project, by file and hunk: keep, undo with a preview, redo; inline or side by side.

import { ask, button, h, toast, tried } from "./dom.js";
import { show } from "./rendered.js";
import { stat } from "./family.js";
import { api, chatPath } from "./session.js";

const WORDS = { created: "new", modified: "", deleted: "deleted" };

class ChangedFiles extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, run: "all", seen: -1 });
    this.runs = h("select", { "aria-label": "Which run", on: { change: () => { this.run = this.runs.value; this.load(); } } });
    this.kept = h("input", { type: "checkbox", on: { change: () => this.load() } });
    this.split = h("input", { type: "checkbox", checked: page.split(),
        on: { change: () => { localStorage.setItem("treadle.split", this.split.checked ? "1" : ""); this.draw(); } } });
    this.list = h("div", { class: "changes" });
    this.replaceChildren(h("div", { class: "panel-bar" }, this.runs, h("label", {}, this.split, "Side by side"),
        h("label", {}, this.kept, "Include kept changes"), h("span", { class: "space" }),
      button("Keep all", () => this.act("keep", {})), button("Undo all", () => this.undo({})),
          button("Redo", () => this.act("redo", {}, true), { title: "Reverse the last undo" })), this.list);
    this.load();
  }

  update(fold) {
    if (this.seen === fold.counts.files && this.running === Boolean(fold.run)) return;
    Object.assign(this, { seen: fold.counts.files, running: Boolean(fold.run) });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 200);
  }

  async load() {
    const chat = this.page.chat;
    try {
      const [{ runs }, found] = await Promise.all([api("GET", chatPath(chat, "/runs?limit=500")),
          api("GET", chatPath(chat, `/changes?run=${this.run}&even_kept=${this.kept.checked}`))]);
      this.found = found;
      const chosen = this.run;
      this.runs.replaceChildren(h("option", { value: "all" }, "All runs"),
          ...runs.reverse().map((run) => h("option", { value: run.run, selected: String(run.run) === chosen },
          `${run.run}: ${run.content.slice(0, 50)}`)));
      this.draw();
    } catch (error) {
      this.list.replaceChildren(h("p", { class: "muted" }, error.message));
    }
  }

  draw() {
    if (!this.found) return;
    const { files, total } = this.found;
    if (!files.length) return this.list.replaceChildren(h("p", { class: "muted" }, "No changes to undo."));
    const readable = files.filter((file) => file.hunks.length); // what has no lines to show, say what was built, comes last
    const shown = [...readable, ...files.filter((file) => !file.hunks.length)];
    this.list.replaceChildren(...shown.map((file) => this.file(file)), total > files.length
        ? h("p", { class: "muted" }, `and ${total - files.length} more files`) : "");
  }

  file(file) {
    const single = file.hunks.length === 1;
    const hunks = file.hunks.map((hunk) => {
      const place = h("div", { class: "diffs" });
      show(place, "diff", [hunk.header, ...hunk.lines].join("\n"), { language: file.path, split: this.split.checked });
      const chosen = { hunks: { [file.path]: [hunk.number] } };
      return h("div", { class: "piece", data: { hunk: hunk.number } }, single ? null
          : h("div", { class: "hunk-bar" }, h("span", { class: "muted" }, `Hunk ${hunk.number}`), stat(hunk), h("span", { class: "space" }),
        button("Keep", () => this.act("keep", chosen), { class: "small", "aria-label": `Keep hunk ${hunk.number} of ${file.path}` }),
        button("Undo", () => this.act("undo", chosen), { class: "small", "aria-label": `Undo hunk ${hunk.number} of ${file.path}` })),
            place);
    });
    const chosen = { paths: [file.path] };
    return h("section", { class: "changed", "aria-label": file.path, data: { path: file.path } },
      h("header", {}, h("code", {}, file.path), WORDS[file.action] ? h("span", { class: "badge" }, WORDS[file.action]) : null, stat(file),
          h("span", { class: "space" }),
        button("Keep", () => this.act("keep", chosen), { class: "small", "aria-label": `Keep ${file.path}` }),
            button("Undo", () => this.undo(chosen), { class: "small", "aria-label": `Undo ${file.path}` })),
      file.notes.length ? h("p", { class: "muted" }, file.notes.join("; ")) : null, ...hunks, file.cut
          ? h("p", { class: "muted" }, "The file has more changes than are shown.") : null);
  }

  choice(chosen) {
    return { run: this.run === "all" ? "all" : Number(this.run), ...chosen };
  }

  /** Undo, after a look at what it would do. */
  async undo(chosen) {
    const plan = await tried(api("POST", chatPath(this.page.chat, "/undo"),
        { ...this.choice(chosen), preview: true, even_kept: this.kept.checked }));
    const said = plan && await ask("Undo these changes?", planned(plan),
        [["Undo", {}, "primary"], ...(plan.conflicts.length ? [["Undo and merge", { merge: true }]] : []), ["Cancel", null]]);
    if (said) await this.act("undo", { ...chosen, ...said, even_kept: this.kept.checked });
  }

  async act(deed, chosen, plain = false) {
    const done = await tried(api("POST", chatPath(this.page.chat, `/${deed}?wait=30`), plain ? chosen : this.choice(chosen)));
    if (done) tellConflicts(done);
    this.load();
  }
}
customElements.define("changed-files", ChangedFiles);

/** Why something was not done, if so. */
export function tellConflicts({ error, conflicts = [] }) {
  if (error || conflicts.length) toast(error || conflicts.map((each) => `${each.path}: ${each.reason}`).join("\n"), "bad");
}

/** What an undo would do, for people. */
export function planned(plan) {
  const words = { created: "comes back", modified: "changes", deleted: "is removed" };
  return [h("ul", { class: "plan" }, plan.files.slice(0,
      30).map((file) => h("li", {}, h("code", {}, file.path), ` ${words[file.action]} `, stat(file)))),
    plan.total > 30 ? h("p", { class: "muted" }, `and ${plan.total - 30} more`) : null, plan.total ? null
        : h("p", { class: "muted" }, "No file would change."),
    ...plan.conflicts.slice(0, 10).map((each) => h("p", { class: "warn" }, `${each.path} is left alone: ${each.reason}`))];
}
