function last(items) {
  return items[items.length - 1];
}

function groupBy(items, key) {
  const of = typeof key === "function" ? key : (item) => item[key];
  const groups = new Map();
  for (const item of items) {
    const found = of(item);
    if (!groups.has(found)) groups.set(found, []);
    groups.get(found).push(item);
  }
  return groups;
}

module.exports = { last, groupBy };
