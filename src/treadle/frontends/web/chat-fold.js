// What a chat looks like, made from its events in their order: rows of the conversation, what it waits for, its plan,
// and spans of time. Knows neither the page nor the server. An event that is there already changes nothing; one that
// leaves a gap is an error, so that nothing is ever lost or doubled (D-04).

const UNTOLD = new Set(["task_complete", "update_plan", "ask_user"]); // what they do is shown in another way
const KEPT_TEXT = 6_000;
const KEPT_OUTPUT = 20_000;

export class ChatFold {
  constructor() {
    Object.assign(this, { seq: 0, rows: [], options: {}, title: "", parent: "", branch: "", sandbox: "", plan: [], actions: [],
        run: null, compacting: 0, lastEnd: "", phase: "", turns: 0, spans: [], context: { tokens: 0, window: 0 },
        usage: { input: 0, output: 0, cached: 0, usd: 0, calls: 0 }, counts: { queue: 0, files: 0, jobs: 0, children: 0 },
        calls: new Map(), answers: new Map(), asked: new Map(), waits: new Map(), changed: new Set() });
  }

  /** When the run began, or the compaction of an idle chat; 0 at rest. */
  get busySince() { return this.run?.at ?? this.compacting; }

  /** Whether the event was news. */
  take(event) {
    if (event.seq) {
      if (event.seq <= this.seq) return false;
      if (event.seq !== this.seq + 1) throw new Error(`events ${this.seq + 1} to ${event.seq - 1} are missing`);
      this.seq = event.seq;
    }
    HANDLERS[event.type]?.(this, event.data, { seq: event.seq ?? 0, at: Date.parse(event.time), type: event.type });
    return true;
  }

  add(row) {
    row.key ??= `${row.kind}:${row.seq}`;
    this.rows.push(row);
    this.changed.add(row);
    return row;
  }

  touch(row) {
    if (row) this.changed.add(row);
  }

  note(text, when, tone = "", more = {}) {
    return this.add({ kind: "note", seq: when.seq, at: when.at, text, tone, ...more });
  }

  /** The conversation goes back to before a message. */
  cut(message) {
    this.rows = this.rows.filter((row) => row.seq < message);
    this.spans = this.spans.filter((span) => span.seq < message);
  }

  answer(turn, when) {
    let row = this.answers.get(turn);
    if (!row) {
      row = this.add({ kind: "answer", key: `turn:${turn}:${(this.begun = (this.begun ?? 0) + 1)}`, seq: when.seq || this.seq, at: when.at,
          turn, text: "", thinking: "", live: true, began: when.at });
      this.answers.set(turn, row);
    }
    this.touch(row);
    return row;
  }

  drop(row) {
    if (!row) return;
    this.answers.delete(row.turn);
    this.rows = this.rows.filter((each) => each !== row);
  }

  /** What the chats do that calls began, as the server says just now. */
  kin(rows) {
    for (const { row, call } of this.calls.values()) for (const each of call.children ?? []) {
      each.now = rows.find(({ chat }) => chat === each.chat);
      this.touch(row);
    }
  }

  span(kind, label, when, more = {}) {
    const span = { kind, label, from: when.at, to: 0, seq: when.seq, run: this.run?.seq ?? 0, ...more };
    this.spans.push(span);
    return span;
  }

  spend(usage, calls = 0) {
    if (!usage) return;
    for (const name of ["input", "output", "cached", "usd"]) this.usage[name] += usage[name] ?? 0;
    this.usage.calls += calls;
  }

  begin(when, text) {
    if (this.run) return;
    this.run = { seq: when.seq, at: when.at, spent: { ...this.usage }, files: new Map() };
    this.span("run", text, when, { run: when.seq });
  }

  waited(action, when) {
    this.actions = this.actions.filter((each) => each.action !== action);
    const span = this.waits.get(action);
    if (span) span.to = when.at;
    this.waits.delete(action);
  }

  wait(action, label, when) {
    this.waits.set(action.action, this.span("wait", label, when));
    this.actions = [...this.actions.filter((each) => each.action !== action.action), action];
  }
}

function open(fold, kind) {
  return fold.spans.findLast((span) => span.kind === kind && !span.to);
}

function summaryOf(text) {
  try {
    const said = JSON.parse(text);
    const found = said.command ?? said.path ?? said.file_path ?? Object.values(said)[0] ?? "";
    return String(typeof found === "string" ? found : JSON.stringify(found)).trim().split("\n")[0].slice(0, 160);
  } catch {
    return String(text).slice(0, 160);
  }
}

function restored(word) {
  return (fold, data, when) => {
    fold.counts.files += 1;
    const total = data.total || data.files.length;
    const names = data.files.slice(0, 4).map((file) => file.path).join(", ");
    const conflicts = data.conflicts.map((each) => `${each.path}: ${each.reason}`).join("\n");
    const text = data.error ? `${word}: nothing was done. ${data.error}`
        : `${word} ${total} file${total === 1 ? "" : "s"}${names ? `: ${names}` : ""}`;
    fold.note(text, when, data.error || conflicts ? "warn" : "", { more: conflicts });
  };
}

/** A call begins: it is tried on a view first, or carried out at once. What was tried and then carried out began once. */
function begun(fold, data, when) {
  fold.phase = `running ${data.name}`;
  const found = fold.calls.get(data.call);
  if (found?.call.state === "running") return;
  const tried = fold.asked.get(data.call);
  if (!tried || tried.to) fold.asked.set(data.call, fold.span("call", `${data.name} ${data.args_summary}`, when));
  fold.counts.children += data.plan?.children?.length ?? 0;
  if (!found) return;
  const told = data.args_summary.startsWith("{") ? data.plan?.children?.map(({ title }) => title).join(", ") : "";
  Object.assign(found.call, { state: "running", summary: told || data.args_summary || found.call.summary, began: when.at, seq: when.seq,
      children: data.plan?.children?.map((each) => ({ ...each })) });
  fold.touch(found.row);
}

const HANDLERS = {
  "session.created": (fold, data, when) => {
    fold.options = data.options;
    fold.began = when.at;
    fold.parent = data.parent?.split("/")[0] ?? "";
    if (data.forked_from) fold.note(`A copy of ${data.forked_from}`, when);
  },
  "session.imported": (fold, data, when) => fold.note(`Imported from an export (${data.origin})`, when),
  "user.message": (fold, data, when) => {
    if (data.edits) fold.cut(data.edits);
    fold.begin(when, data.content);
    fold.counts.queue += data.queue_id ? 1 : 0;
    fold.add({ kind: "user", seq: when.seq, at: when.at, text: data.content, source: data.source, delivery: data.delivery,
        images: data.images.map((each) => each.media_type) });
  },
  "assistant.turn_start": (fold, data, when) => {
    fold.begin(when, "");
    fold.phase = "thinking";
    fold.turn = { turn: data.turn, at: when.at };
    fold.turns += 1;
    fold.span("turn", `turn ${data.turn}`, when, { turn: data.turn, model: data.model });
  },
  "assistant.message_delta": (fold, data, when) => {
    fold.phase = "writing";
    const row = fold.answer(data.turn, when);
    if (!row.live) return;
    row.thought ??= row.thinking ? when.at - row.began : undefined;
    row.text += data.text;
  },
  "assistant.reasoning_delta": (fold, data, when) => {
    const row = fold.answer(data.turn, when);
    if (row.live) row.thinking += data.text;
  },
  "assistant.tool_call_delta": (fold, data) => { if (data.name) fold.phase = `calling ${data.name}`; },
  "assistant.reset": (fold, data) => fold.drop(fold.answers.get(data.turn)),
  "assistant.turn_retry": (fold, data, when) => {
    fold.drop(fold.answers.get(data.turn));
    fold.spend(data.usage);
    fold.span("retry", `${data.class}: ${data.message}`, when).to = when.at + data.delay_s * 1000;
    fold.note(`Attempt ${data.attempt} failed (${data.class}); again in ${data.delay_s.toFixed(1)} s`, when, "warn",
        { more: data.message });
  },
  "assistant.message": (fold, data, when) => {
    const span = open(fold, "turn");
    if (span) Object.assign(span, { to: when.at, usage: data.usage });
    fold.spend(data.usage, 1);
    if (data.usage) fold.context.tokens = data.usage.input + data.usage.output;
    const thinking = data.reasoning.map((each) => each.text).join("");
    if (data.content.trim() || thinking.trim()) {
      const row = fold.answer(data.turn, when);
      Object.assign(row, { live: false, seq: when.seq, text: data.content, thinking, partial: data.partial });
      row.thought ??= fold.turn?.turn === data.turn ? when.at - fold.turn.at : 0;
      fold.answers.delete(data.turn); // what is complete is never dropped
    } else fold.drop(fold.answers.get(data.turn));
    const shown = data.tool_requests.filter((each) => !UNTOLD.has(each.name));
    if (shown.length) fold.phase = "working";
    const last = fold.rows.at(-1);
    const row = !shown.length ? null : last?.kind === "calls" ? last : fold.add({ kind: "calls", seq: when.seq, at: when.at, calls: [] });
    for (const each of shown) {
      const call = { call: each.call, name: each.name, arguments: each.arguments, summary: summaryOf(each.arguments), state: "waiting",
          seq: when.seq, text: "", output: "" };
      row.calls.push(call);
      fold.calls.set(each.call, { row, call });
    }
    fold.touch(row);
  },
  "assistant.turn_end": (fold) => { fold.phase = fold.run ? "thinking" : ""; },
  "tool.trial_start": begun,
  "tool.execution_start": begun,
  "tool.execution_output": (fold, data) => {
    const found = fold.calls.get(data.call);
    if (!found || found.call.state !== "running") return;
    found.call.output = (found.call.output + data.text).slice(-KEPT_OUTPUT);
    fold.touch(found.row);
  },
  "tool.execution_complete": (fold, data, when) => {
    const span = fold.asked.get(data.call);
    if (span) Object.assign(span, { to: span.to || when.at, bad: !data.success });
    if (data.sandbox) fold.sandbox = data.sandbox;
    const found = fold.calls.get(data.call);
    if (!found) return;
    const text = data.success ? data.result : data.error || data.result;
    Object.assign(found.call, {
      state: data.success ? "done" : "failed", text: text.slice(0, KEPT_TEXT), cut: text.length > KEPT_TEXT || Boolean(data.output), done: when.seq, output: "",
      brief: data.result_summary, stat: data.diff_stat, ms: data.duration_ms, sandbox: data.sandbox, synthetic: data.synthetic,
          effect: data.effect,
    });
    fold.touch(found.row);
  },
  "subagent.completed": (fold, data) => {
    fold.spend(data.usage);
    fold.counts.children += 1;
    const found = fold.calls.get(data.call);
    const child = found?.call.children?.find((each) => each.chat === data.chat);
    if (child) Object.assign(child, { ended: data.reason, ...data });
    fold.touch(found?.row);
  },
  "permission.requested": (fold, data, when) => {
    const found = fold.calls.get(data.call);
    if (found) { found.call.state = "asked"; fold.touch(found.row); }
    const tried = fold.asked.get(data.call);
    if (tried) tried.to ||= when.at;
    const name = found?.call.name ?? "";
    fold.wait({ kind: "permission", name, text: data.shown, ...data }, `approval of ${name}`, when);
  },
  "permission.completed": (fold, data, when) => {
    fold.waited(data.action, when);
    const found = fold.calls.get(data.action);
    if (!found) return;
    found.call.permission = data.auto_approved ? "" : data.decision === "allow" ? `allowed by ${data.by}`
        : `refused by ${data.by}${data.feedback ? `: ${data.feedback}` : ""}`;
    found.call.state = data.decision === "allow" ? "waiting" : "failed";
    fold.touch(found.row);
  },
  "external_tool.requested": (fold, data, when) => {
    const found = fold.calls.get(data.call);
    if (found) { found.call.state = "client"; fold.touch(found.row); }
    fold.wait({ kind: "external_tool", action: data.call, deadline_ms: data.deadline_s ? when.at + data.deadline_s * 1000 : 0, ...data },
        `client runs ${data.name}`, when);
  },
  "external_tool.completed": (fold, data, when) => fold.waited(data.call, when),
  "user_input.requested": (fold, data, when) => {
    const row = fold.add({ kind: "question", key: `question:${data.action}:${when.seq}`, seq: when.seq, at: when.at, text: data.question,
        options: data.options, answer: null });
    fold.asked.set(`?${data.action}`, row);
    const call = fold.asked.get(data.call);
    if (call) call.to ||= when.at;
    fold.wait({ kind: "user_input", text: data.question, ...data }, "a question", when);
  },
  "user_input.completed": (fold, data, when) => {
    fold.waited(data.action, when);
    const row = fold.asked.get(`?${data.action}`);
    if (row) Object.assign(row, { answer: data.answer, synthetic: data.synthetic });
    fold.touch(row);
  },
  "session.action_required": (fold, data) => { fold.actions = data.actions; },
  "session.task_complete": (fold, data, when) => fold.add({ kind: "done", seq: when.seq, at: when.at, text: data.summary }),
  "session.error": (fold, data, when) => fold.note(`${data.class}: ${data.message}`, when, "bad"),
  "session.interrupted": (fold, data, when) => fold.note(`Stopped by ${data.by}`, when, "warn"),
  "session.run_end": (fold, data, when) => {
    const run = fold.run;
    for (const row of [...fold.answers.values()]) fold.drop(row);
    for (let at = fold.spans.length - 1; at >= 0 && fold.spans[at].seq >= (run?.seq ?? 0); at--) fold.spans[at].to ||= when.at;
    Object.assign(fold, { run: null, compacting: 0, actions: [] });
    fold.waits.clear();
    fold.lastEnd = data.reason;
    fold.phase = "";
    if (!run) return;
    const spent = { tokens: fold.usage.input + fold.usage.output - run.spent.input - run.spent.output, usd: fold.usage.usd - run.spent.usd,
        cached: fold.usage.cached - run.spent.cached };
    fold.add({ kind: "end", seq: when.seq, at: when.at, reason: data.reason, why: data.why, ms: when.at - run.at, spent,
        files: [...run.files.values()], run: run.seq });
  },
  "session.rewound": (fold, data, when) => {
    fold.cut(data.message);
    fold.note("The conversation was rewound to here", when);
  },
  "session.compaction_start": (fold, data, when) => {
    Object.assign(fold, { phase: "compacting", compacting: when.at });
    fold.span("compaction", `compaction (${data.trigger})`, when);
  },
  "session.compaction_complete": (fold, data, when) => {
    const span = open(fold, "compaction");
    fold.compacting = 0;
    if (span) span.to = when.at;
    const text = data.success ? `Compacted: ${data.tokens_before.toLocaleString("en")} → ${data.tokens_after.toLocaleString("en")} tokens`
        : `Compaction failed: ${data.error}`;
    fold.note(text, when, data.success ? "" : "warn", { more: data.summary });
  },
  "session.model_call": (fold, data) => fold.spend(data.usage),
  "session.usage_info": (fold, data) => { fold.context = { tokens: data.tokens, window: data.window }; fold.cost = data.cost; },
  "queue.changed": (fold) => { fold.counts.queue += 1; },
  "session.options_changed": (fold, data, when) => {
    fold.options = { ...fold.options, ...data.changes };
    if (data.changes.model) fold.context.window = 0;
    const told = Object.entries(data.changes).filter(([name]) => ["model", "mode", "reasoning_effort", "archived"].includes(name));
    if (told.length) fold.note(told.map(([name, value]) => `${name.replace("_", " ")}: ${value === "" ? "default" : value}`).join(" · "), when);
  },
  "session.title_changed": (fold, data) => { fold.title = data.title; },
  "session.limit_warning": (fold, data, when) => fold.note(`Near a limit: ${data.used} of ${data.limit} ${data.kind} (${data.scope})`, when,
      "warn"),
  "session.limit_reached": (fold, data, when) => fold.note(`Limit reached: ${data.used} of ${data.limit} ${data.kind} (${data.scope})`,
      when, "bad"),
  "session.limit_extended": (fold, data, when) => fold.note(`${data.turns} more turns allowed`, when),
  "plan.updated": (fold, data) => { fold.plan = data.steps; },
  "model.notice": (fold, data, when) => fold.note(data.text, when, "warn"),
  "sandbox.notice": (fold, data, when) => { fold.sandbox = data.level; if (data.text) fold.note(data.text, when, data.lowered ? "warn"
      : ""); },
  "guard.notice": (fold, data, when) => fold.note(data.text || `The same ${data.length} call(s), ${data.repeats} times`, when, "warn"),
  "check.started": (fold, data, when) => {
    fold.phase = `checking: ${data.command}`;
    fold.asked.set(data.check, { row: fold.note(`Check: ${data.command} …`, when),
        span: fold.span("call", `check ${data.command}`, when) });
  },
  "check.completed": (fold, data, when) => {
    const found = fold.asked.get(data.check);
    if (!found) return;
    found.span.to = when.at;
    Object.assign(found.row, { text: found.row.text.replace(" …", `: ${data.result_summary || (data.success ? "passed" : "failed")}`),
        tone: data.success ? "good" : "bad", more: data.success ? "" : data.result.slice(0, KEPT_TEXT) });
    fold.touch(found.row);
  },
  "checkpoint.created": () => {},
  "workspace.files_changed": (fold, data, when) => {
    fold.counts.files += 1;
    for (const file of data.files.filter((each) => !each.ignored && (each.after ?? each.before)?.kind !== "directory")) {
      const before = fold.run?.files.get(file.path);
      fold.run?.files.set(file.path, { path: file.path, action: before?.action ?? file.action, added: (before?.added ?? 0) + file.added,
          removed: (before?.removed ?? 0) + file.removed });
    }
    const found = fold.calls.get(data.call);
    if (found) { found.call.files = data.files.map(({ path, action, added, removed }) => ({ path, action, added,
        removed })); fold.touch(found.row); }
    if (data.uncaptured.length) fold.note(`Cannot be undone: ${data.uncaptured.map((each) => `${each.path} (${each.reason})`).join(", ")}`,
        when, "warn");
  },
  "workspace.undone": restored("Undid"),
  "workspace.redone": restored("Redid"),
  "workspace.kept": restored("Kept"),
  "workspace.conflict": (fold, data, when) => fold.note("The same files changed in the meantime; nothing was written", when, "warn",
      { more: data.conflicts.map((each) => `${each.path}: ${each.reason}`).join("\n") }),
  "git.branch_created": (fold, data, when) => { fold.branch = data.branch; fold.note(`On the branch ${data.branch}`, when); },
  "job.started": (fold, data, when) => { fold.counts.jobs += 1; fold.note(`In the background: ${data.command}`, when); },
  "job.ended": (fold, data, when) => {
    fold.counts.jobs += 1;
    fold.note(`Background command ${data.job} ${data.ending}${data.ending === "exited" ? ` (${data.code})` : ""}`, when,
        data.concerns.length ? "warn" : "", { more: data.concerns.join("\n") });
    if (data.pending) fold.note(`${data.pending} changes of background command ${data.job} are not committed`, when, "warn");
  },
  "job.settled": (fold, data, when) => {
    fold.counts.jobs += 1;
    fold.note(`Changes of background command ${data.job}: ${data.outcome}`, when);
  },
  "session.record_lost": (fold, data, when) => fold.note(`A damaged record was here (${data.lost_type}): ${data.reason}`, when, "bad"),
};
