// Background commands of a chat: what they write, a word to their input, and a stop.

import { ask, button, duration, h, tried } from "./dom.js";
import { show } from "./rendered.js";
import { api, chatPath } from "./session.js";

const LOOK_MS = 2_000;

class JobList extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, seen: -1, open: "" });
    this.list = h("div", { class: "jobs" });
    this.replaceChildren(this.list);
    this.load();
    this.timer = setInterval(() => { if (this.runs && !document.hidden
        && !this.contains(document.activeElement?.closest("input"))) this.load(); }, LOOK_MS);
  }

  disconnectedCallback() { clearInterval(this.timer); }

  update(fold) {
    if (this.seen === fold.counts.jobs) return;
    this.seen = fold.counts.jobs;
    this.load();
  }

  async load() {
    try {
      const { jobs } = await api("GET", chatPath(this.page.chat, "/jobs"));
      this.runs = jobs.some((job) => job.status === "running");
      const views = await Promise.all(jobs.map((job) => this.job(job)));
      this.list.replaceChildren(...(views.length ? views : [h("p", { class: "muted" }, "No background commands.")]));
    } catch (error) {
      this.list.replaceChildren(h("p", { class: "muted" }, error.message));
    }
  }

  /** What a commit would change is shown before the button that does it. */
  async review(job, path, commit) {
    const found = await tried(api("GET", chatPath(this.page.chat, `${path}/changes`)));
    if (!found) return;
    const place = h("div", { class: "diffs shown" });
    show(place, "diff", found.diff || found.files.map((file) => `${file.action} ${file.path}`).join("\n"));
    const title = `Commit ${found.files.length} changed file${found.files.length === 1 ? "" : "s"} of ${job.job}?`;
    if (await ask(title, [h("pre", { class: "command" }, job.command),
        ...found.conflicts.map((each) => h("p", { class: "warn" }, `${each.path}: ${each.reason}`)), place],
        [["Commit", true, "primary"], ["Cancel", null]])) commit();
  }

  async job(job) {
    const path = `/jobs/${encodeURIComponent(job.job)}`;
    const open = this.open === job.job || job.status === "running";
    const said = open ? await api("GET", chatPath(this.page.chat, `${path}/output`)).catch((error) => ({ text: error.message })) : null;
    const field = h("input", { type: "text", "aria-label": `Input of ${job.job}`, placeholder: "A line for its input" });
    const act = (rest, body) => tried(api("POST", chatPath(this.page.chat, path + rest), body)).then(() => this.load());
    return h("section", { class: "changed", "aria-label": job.command },
        h("header", {}, h("span", { class: `state ${job.status === "running" ? "running" : job.code ? "failed" : "done"}` }),
        h("code", {}, job.command), h("span", { class: "muted" },
        `${job.job} · ${job.status}${job.status === "exited" ? ` ${job.code}` : ""}${job.ended_ms ? ` · ${duration(job.ended_ms - job.began_ms)}` : ""}${job.pending ? ` · ${job.pending} uncommitted` : ""}`),
        h("span", { class: "space" }),
      job.pending ? button("Review and commit", () => this.review(job, path, () => act("/commit", {})), { class: "small" }) : null,
      job.pending ? button("Discard", () => act("/discard", {}), { class: "small" }) : null,
      job.status === "running" ? button("Stop", () => act("/stop", {}), { class: "small" }) : button("Output",
          () => { this.open = job.job; this.load(); }, { class: "small" })),
      said ? h("pre", { class: "output", tabindex: "0" }, said.text || "(nothing yet)") : null,
      job.status === "running" ? h("form", { class: "line",
          on: { submit: (event) => { event.preventDefault(); act("/input", { text: field.value }); } } }, field,
          h("button", { class: "small" }, "Send")) : null);
  }
}
customElements.define("job-list", JobList);
