// Light or dark as chosen before the first paint; without a choice, as the system has it.
const chosen = localStorage.getItem("treadle.theme");
if (chosen) document.documentElement.dataset.theme = chosen;
