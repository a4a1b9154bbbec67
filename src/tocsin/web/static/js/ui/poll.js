// Ask the node now and then: `const {value, error, loading, refresh} = usePoll(() => http.get("/consumers"), 2000)`.
//
// The next question waits until the last is answered, and at least four times as long as that took, so that a busy
// node is not asked the harder the slower it is. Nothing is asked while the page is hidden. An error keeps the last value.
// Without `every` it is asked once, and again when `deps` change or somebody calls `refresh`.

import { useCallback, useEffect, useRef, useState } from "../../vendor/preact.js";

export function usePoll(ask, every, deps = []) {
  const [state, setState] = useState({ value: undefined, error: null, loading: true });
  const asking = useRef(ask);
  asking.current = ask;
  const kick = useRef(() => {});
  useEffect(() => {
    let over = false;
    let timer = 0;
    let running = false;
    let again = false;
    const look = async () => {
      clearTimeout(timer);
      if (running) {
        again = true;
        return;
      }
      running = true;
      const began = performance.now();
      try {
        const value = await asking.current();
        if (!over) setState({ value, error: null, loading: false });
      } catch (error) {
        if (!over && error.name !== "AbortError") setState((old) => ({ ...old, error, loading: false }));
      }
      running = false;
      if (over) return;
      const took = performance.now() - began;
      if (again) timer = setTimeout(next, Math.min(took, 1000));
      else if (every) timer = setTimeout(next, Math.max(every, 4 * took));
      again = false;
    };
    const next = () => (document.hidden ? (timer = setTimeout(next, 1000)) : look());
    kick.current = look;
    setState((old) => ({ ...old, loading: true }));
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, deps);
  const refresh = useCallback(() => kick.current(), []);
  return { ...state, refresh };
}
