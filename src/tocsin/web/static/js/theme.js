// Light or dark, before the first paint: a plain script, since modules run too late for that.
// `localStorage.theme` is light, dark or auto; `data-theme` of the document is what that means now.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("tocsin.theme") || "auto";
    } catch {
      return "auto"; // storage may be switched off
    }
  };
  const apply = () => {
    const choice = chosen();
    document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
  };
  apply();
  system.addEventListener("change", apply);
  window.tocsinTheme = {
    chosen,
    choose(choice) {
      try {
        localStorage.setItem("tocsin.theme", choice);
      } catch {
        // then it holds until the page is loaded again
      }
      document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    },
  };
})();
