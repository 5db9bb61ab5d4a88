// Light or dark before the first paint: as chosen, else as the system has it.
const dark = matchMedia("(prefers-color-scheme: dark)");
const put = () => { document.documentElement.dataset.theme = localStorage.getItem("treadle.theme") ?? (dark.matches ? "dark" : "light"); };
dark.addEventListener("change", put);
put();
