const { total } = require("./prices.js");

total(process.argv.slice(2)).then(
  (sum) => console.log(`total: ${sum}`),
  (error) => {
    console.error(error.message);
    process.exitCode = 1;
  },
);
