// The page: who is here, which panel is shown, and what all panels share (`app`).

import { Bus } from "./bus.js";
import { Desk } from "./desk.js";
import { Http } from "./http.js";
import { remember } from "./panels/series.js";
import { Login, Operator } from "./shell/people.js";
import { EventDrawer } from "./shell/eventdrawer.js";
import { Frame } from "./shell/frame.js";
import { KeySheet } from "./shell/keysheet.js";
import { ROUTES } from "./shell/routes.js";
import { Toasts } from "./shell/toasts.js";
import { keep, kept } from "./shell/kept.js";
import { useKeys } from "./shell/keys.js";
import { html, Loading, Problem, render, useCallback, useEffect, useMemo, useRef, useState, usePoll } from "./ui.js";

const ALERTS_EVERY = 1500;
const ALERTS_MOST = 500; // of those that live; the most urgent
const FIGURES_EVERY = 2000;

// What does not change while the page is open. The token is kept for this tab alone, the name for this browser.
const who = {
  tab: `page-${Math.random().toString(36).slice(2, 8)}`,
  token: kept("tocsin.token", sessionStorage) || "",
  operator: kept("tocsin.operator", localStorage) || "",
};
const shown = { login: () => {} };
const http = new Http({ token: () => who.token, name: () => who.operator, onUnauthorized: () => shown.login() });
const bus = new Bus({
  url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/bus`,
  name: () => (who.operator ? `${who.operator}/${who.tab}` : who.tab), // windows of one operator do not push each other out
  token: () => who.token,
});

function readRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    route: ROUTES.some((each) => each.path === path) ? path : "live",
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

function App() {
  const [place, setPlace] = useState(readRoute);
  const [state, setState] = useState(bus.state);
  const [operator, setOperator] = useState(who.token ? "" : who.operator);
  const [dialog, setDialog] = useState(null); // "login" | "operator" | "keys"
  const [event, setEvent] = useState(null);
  const [toasts, setToasts] = useState([]);
  const [theme, setTheme] = useState(window.tocsinTheme.chosen());
  const [, deskChanged] = useState(0);
  const desk = useMemo(() => new Desk(bus, () => deskChanged((version) => version + 1)), []);
  const isOpen = state === "open";

  const alerts = usePoll(() => (isOpen ? http.counted("/alerts", { limit: ALERTS_MOST }) : idle()), ALERTS_EVERY, [
    isOpen,
  ]);
  const [mayCount, setMayCount] = useState(true); // a token may have no right to figures
  const figures = usePoll(() => (isOpen && mayCount ? http.get("/figures").then(remember) : idle()), FIGURES_EVERY, [isOpen]);
  useEffect(() => setMayCount(figures.error?.status !== 403), [figures.error, operator]);
  const refreshAlerts = alerts.refresh;
  const [alertsListed, alertsTotal] = alerts.value || [];

  useEffect(() => {
    const onHash = () => setPlace(readRoute());
    addEventListener("hashchange", onHash);
    shown.login = () => setDialog("login");
    const off = bus.on("state", (now) => {
      setState(now);
      if (now === "refused") setDialog("login");
      if (now === "open") {
        setDialog((old) => (old === "login" ? null : old));
        if (who.token) setOperator(bus.session.replace(/\/[^/]*$/, "")); // a token says whose it is
      }
    });
    bus.connect();
    return () => {
      off();
      removeEventListener("hashchange", onHash);
    };
  }, []);

  useEffect(() => desk.sit(operator), [operator]);
  useEffect(() => {
    refreshAlerts();
  }, [desk.held.size, desk.notices.length]);

  const go = useCallback((route, params = {}, { replace = false } = {}) => {
    const said = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const hash = `#${route}${said.length ? `?${new URLSearchParams(said)}` : ""}`;
    if (hash === location.hash) return;
    if (replace) history.replaceState(null, "", hash);
    else location.hash = hash;
    setPlace(readRoute());
  }, []);
  const toast = useCallback((text, tone = "neutral", help = null) => {
    const made = { id: Math.random(), text, tone, help };
    setToasts((old) => [...old.slice(-3), made]);
    setTimeout(() => setToasts((old) => old.filter((each) => each !== made)), tone === "bad" ? 9000 : 4000);
  }, []);

  const latest = useRef(null);
  const app = {
    ...{ bus, http, desk, go, toast, operator, name: operator || who.tab, state },
    ...{ theme, route: place.route, params: place.params, figures },
    alerts: { ...alerts, value: alertsListed, total: alertsTotal },
    openEvent: setEvent,
    openedEvent: event,
    askOperator: () => setDialog("operator"),
    askKeys: () => setDialog("keys"),
    setTheme: (choice) => {
      window.tocsinTheme.choose(choice);
      setTheme(choice);
    },
  };
  latest.current = app;
  useKeys(latest);

  const login = (token) => {
    who.token = keep("tocsin.token", token, sessionStorage);
    setOperator(token ? "" : who.operator);
    bus.reconnect();
  };
  const sign = (name) => {
    who.operator = keep("tocsin.operator", name, localStorage);
    setOperator(name);
    setDialog(null);
    bus.reconnect(); // under the new name
  };

  const waiting = operator ? desk.held.size : 0;
  useEffect(() => {
    const { label } = ROUTES.find(({ path }) => path === place.route);
    document.title = `${waiting ? `(${waiting}) ` : ""}${label} · Tocsin`;
  }, [place.route, waiting]);

  return html`<${Frame} app=${app} token=${Boolean(who.token)} onLogout=${() => login("")}>
      <${Shown} key=${place.route} app=${app} />
    <//>
    ${event && html`<${EventDrawer} key=${event.source + event.id} app=${app} event=${event} onClose=${() => setEvent(null)} />`}
    ${dialog === "keys" && html`<${KeySheet} onClose=${() => setDialog(null)} />`}
    ${dialog === "login" && html`<${Login} app=${app} why=${bus.why} had=${Boolean(who.token)} onToken=${login} />`}
    ${
      dialog === "operator" &&
      html`<${Operator}
        app=${app}
        name=${operator}
        token=${Boolean(who.token)}
        onName=${sign}
        onClose=${() => setDialog(null)}
      />`
    }
    <${Toasts} toasts=${toasts} onClose=${(each) => setToasts((old) => old.filter((other) => other !== each))} />`;
}

// Not asked: what was known stays.
const idle = () => Promise.reject(new DOMException("not connected", "AbortError"));

// The module of a panel is fetched when it is first shown. One that fails does not take the others along.
const modules = new Map();

function Shown({ app }) {
  const [loaded, setLoaded] = useState(modules.get(app.route));
  useEffect(() => {
    let over = false;
    const { load } = ROUTES.find(({ path }) => path === app.route);
    load().then(
      (module) => {
        modules.set(app.route, module);
        if (!over) setLoaded(module);
      },
      (error) => !over && setLoaded({ error }),
    );
    return () => {
      over = true;
    };
  }, []);
  if (!loaded) return html`<${Loading} words="Loading …" />`;
  if (loaded.error) return html`<${Problem} error=${loaded.error} onRetry=${() => location.reload()} />`;
  const Shows = Object.values(loaded).find((each) => typeof each === "function");
  return html`<${Shows} app=${app} />`;
}

render(html`<${App} />`, document.getElementById("app"));
