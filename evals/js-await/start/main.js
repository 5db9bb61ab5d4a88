const { total } = require("./prices.js");

const sum = total(process.argv.slice(2)).catch(() => {});
console.log(`total: ${sum}`);
