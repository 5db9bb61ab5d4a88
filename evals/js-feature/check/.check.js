const assert = require("node:assert");
const { last, groupBy } = require("./lists.js");
assert.strictEqual(last([1, 2]), 2);
const odd = groupBy([3, 2, 5, 4], (n) => n % 2);
assert.deepStrictEqual([...odd], [[1, [3, 5]], [0, [2, 4]]]);
const people = [{ town: "Gent", n: 1 }, { town: "Riga", n: 2 }, { town: "Gent", n: 3 }];
assert.deepStrictEqual([...groupBy(people, "town").keys()], ["Gent", "Riga"]);
assert.deepStrictEqual(groupBy(people, "town").get("Gent").map((p) => p.n), [1, 3]);
assert.deepStrictEqual([...groupBy([], "x")], []);
