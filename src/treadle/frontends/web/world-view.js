// The world in which a chat works: what a commit of it would change now, and what can be done with it.

import { ask, button, h, toast, tried } from "./dom.js";
import { show } from "./rendered.js";
import { api } from "./session.js";

class WorldView extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, seen: -1 });
    this.world = `/api/worlds/${encodeURIComponent(page.fold.options.world)}`;
    this.body = h("div");
    this.replaceChildren(h("div", { class: "panel-bar" }, h("b", {}, "World"),
        h("span", { class: "space" }), this.commitButton = button("Commit", () => this.commit(), { class: "primary" }),
        button("Rebase", () => this.act("rebase", (done) => done.merged.length ? `Merged: ${done.merged.join(", ")}` : "Rebased"),
        { title: "Rebase onto the project as it is now" }),
        button("Drop", () => this.drop(), { title: "Delete the world and its changes" })), this.body);
  }

  update(fold) {
    const seen = `${fold.counts.files}:${Boolean(fold.run)}`;
    if (this.seen === seen) return;
    this.seen = seen;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 200);
  }

  async load() {
    try {
      const { files, conflicts, diff, world } = await api("GET", this.world);
      this.commitButton.disabled = !files.length;
      const place = h("div", { class: "diffs changed" });
      if (diff) show(place, "diff", diff, { split: this.page.split() });
      this.body.replaceChildren(h("p", { class: "muted" }, files.length ? "These changes are not in the project until you commit them. "
          : "This world has no changes to commit. ", h("code", {}, world.id)),
        ...conflicts.map((each) => h("p", { class: "warn" }, `${each.path}: ${each.reason}`)), world.why
            ? h("p", { class: "muted" }, `A copy: ${world.why}`) : "", diff ? place : "");
    } catch (error) {
      this.commitButton.disabled = true;
      this.body.replaceChildren(h("p", { class: "muted" }, error.message));
    }
  }

  /** A chat of its own tells what became of it, and takes it back. */
  commit() { return this.act("commit", (chat) => { location.hash = `#/chat/${chat.id}`; }); }

  async drop() {
    if (await ask("Drop this world?", [h("p", {}, "Its changes are deleted.")], [["Drop", true, "primary"],
        ["Cancel", null]])) this.act("drop", () => "Dropped");
  }

  async act(deed, said) {
    const done = await tried(api("POST", `${this.world}/${deed}`, {}));
    const text = done && said(done);
    if (text) toast(text);
    if (this.isConnected) this.load();
  }
}
customElements.define("world-view", WorldView);
