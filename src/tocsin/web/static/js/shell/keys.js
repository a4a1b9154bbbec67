// Keys: `/` goes to the filter, `g` and a letter to a panel, `?` shows them. Typing in a field is never taken for one.

import { useEffect } from "../ui.js";
import { ROUTES } from "./routes.js";

const PAUSE = 1200; // milliseconds between g and its letter

export function useKeys(app) {
  useEffect(() => {
    let since = 0;
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]"))
        return;
      if (event.key === "?") {
        app.current.askKeys();
      } else if (event.key === "/") {
        const box = document.querySelector("[data-filter]");
        if (!box) return;
        event.preventDefault();
        box.focus();
        box.select();
      } else if (event.key === "g") {
        since = performance.now();
      } else if (performance.now() - since < PAUSE) {
        since = 0;
        const found = ROUTES.find(({ key }) => key === event.key);
        if (found) app.current.go(found.path);
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}
