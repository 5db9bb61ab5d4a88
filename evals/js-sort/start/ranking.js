// The names of players, the highest score first.
function ranking(players) {
  return players
    .sort((a, b) => (String(a.score) < String(b.score) ? -1 : 1))
    .map((player) => player.name);
}

module.exports = { ranking };
