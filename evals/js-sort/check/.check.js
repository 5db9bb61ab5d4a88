const assert = require("node:assert");
const { ranking } = require("./ranking.js");
const players = [
  { name: "Bo", score: 20 },
  { name: "Al", score: 100 },
  { name: "Di", score: 9 },
  { name: "Cy", score: 20 },
  { name: "Ab", score: 20 },
];
assert.deepStrictEqual(ranking(players), ["Al", "Ab", "Bo", "Cy", "Di"]);
