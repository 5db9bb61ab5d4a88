// The names of players, the highest score first.
function ranking(players) {
  return [...players]
    .sort((a, b) => b.score - a.score || a.name.localeCompare(b.name))
    .map((player) => player.name);
}

module.exports = { ranking };
