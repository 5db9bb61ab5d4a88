const assert = require("node:assert");
const { spawnSync } = require("node:child_process");
const run = (...words) => spawnSync(process.execPath, ["main.js", ...words], { encoding: "utf8" });
assert.strictEqual(run("apple", "pear", "apple").stdout.trim(), "total: 10");
assert.strictEqual(run().stdout.trim(), "total: 0");
const failed = run("plum");
assert.strictEqual(failed.status, 1);
assert.match(failed.stderr, /plum/);
assert.strictEqual(failed.stdout.trim(), "");
