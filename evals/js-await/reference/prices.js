const PRICES = { apple: 3, pear: 4 };

async function price(name) {
  if (!(name in PRICES)) throw new Error(`no price for ${name}`);
  return PRICES[name];
}

async function total(names) {
  let sum = 0;
  for (const name of names) sum += await price(name);
  return sum;
}

module.exports = { price, total };
