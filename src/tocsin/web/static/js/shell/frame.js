// What stands round every panel: the navigation, who is here, and how the connection is.

import { count, decimals, duration, html, Icon, useTick } from "../ui.js";
import { ROUTES } from "./routes.js";

export function Frame({ app, token, onLogout, children }) {
  return html`<div class="frame">
    <a
      class="skip"
      href="#main"
      onClick=${(event) => {
        event.preventDefault();
        document.getElementById("main").focus();
      }}
      >To the content</a
    >
    <header class="side">
      <a class="brand" href="#live" aria-label="Tocsin, live"><${Bell} /><span>Tocsin</span></a>
      <${Nav} app=${app} />
      <div class="side-foot">
        <${Connection} app=${app} />
        <div class="side-buttons">
          <button type="button" class="who" onClick=${app.askOperator} title="Who are you?">
            <${Icon} name="user" /><span>${app.operator || "Your name?"}</span>
          </button>
          ${token && html`<button type="button" class="icon-button" aria-label="Log out" title="Log out" onClick=${onLogout}><${Icon} name="right" /></button>`}
          <button type="button" class="icon-button keys-button" aria-label="Keys" title="Keys (?)" onClick=${app.askKeys}>
            <${Icon} name="help" />
          </button>
          <${Theme} app=${app} />
        </div>
      </div>
    </header>
    <main id="main" class="content" tabindex="-1"><${Trouble} app=${app} />${children}</main>
  </div>`;
}

function Nav({ app }) {
  const open = (app.alerts.value || []).filter(({ acked }) => !acked.length).length;
  return html`<nav class="nav" aria-label="Panels">
    ${ROUTES.map(
      ({ path, label, key }) =>
        html`<a
          key=${path}
          href=${`#${path}`}
          aria-current=${path === app.route ? "page" : undefined}
          title=${`${label} (g ${key})`}
        >
          <${Icon} name=${path} /><span>${label}</span>
          ${path === "alerts" && open > 0 && html`<span class="nav-count num" aria-label=${`${open} not acknowledged`}>${open > 999 ? "999+" : open}</span>`}
        </a>`,
    )}
  </nav>`;
}

function Connection({ app }) {
  const now = useTick(1000);
  const node = app.figures.value?.node;
  const words = {
    open: "Connected",
    connecting: "Connecting …",
    waiting: `Reconnecting${app.bus.retryAt > now ? ` in ${duration(Math.ceil((app.bus.retryAt - now) / 1000)).replace(".0", "")}` : " …"}`,
    refused: "Token needed",
    replaced: "Replaced",
    closed: "Closed",
  }[app.state];
  return html`<div class=${`connection is-${app.state}`} role="status">
    <span class="connection-dot" aria-hidden="true"></span>
    <div class="connection-words">
      <span class="connection-state">${words}</span>
      ${
        node &&
        app.state === "open" &&
        html`<span class="connection-figures num" aria-live="off">
          <span title="in the journal, its own records too">${count(node.head)} events</span>
          <span title="events a second, over the last ten">${rate(node.events_per_second)}/s</span>
        </span>`
      }
    </div>
  </div>`;
}

const rate = (number) => (number === undefined ? "–" : number < 10 ? decimals(number, 1) : count(number));

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const LOOKS = { auto: ["auto", "Theme: as the system"], light: ["sun", "Theme: light"], dark: ["moon", "Theme: dark"] };

function Theme({ app }) {
  const [icon, label] = LOOKS[app.theme] || LOOKS.auto;
  return html`<button
    type="button"
    class="icon-button"
    aria-label=${label}
    title=${label}
    onClick=${() => app.setTheme(NEXT[app.theme] || "light")}
  >
    <${Icon} name=${icon} />
  </button>`;
}

// Said at the top of every panel while the node cannot be heard: what is shown may be old.
function Trouble({ app }) {
  if (app.state === "waiting") {
    return html`<div class="banner tone-warn" role="alert">
      <${Icon} name="warn" /><span
        >The node does not answer. What you see may be old; the page goes on by itself when it is back.</span
      >
    </div>`;
  }
  if (app.state === "replaced") {
    return html`<div class="banner tone-warn" role="alert">
      <${Icon} name="warn" /><span>Another window has taken over this session.</span>
      <button type="button" class="button button-plain button-small" onClick=${() => app.bus.reconnect()}>
        Take it back
      </button>
    </div>`;
  }
  return null;
}

function Bell() {
  return html`<svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="8" fill="var(--accent)" />
    <path
      d="M16 6a7 7 0 0 0-7 7c0 5.500-2.500 7-2.500 8.500h19C25.500 20 23 18.500 23 13a7 7 0 0 0-7-7Z"
      fill="var(--on-accent)"
    />
    <path d="M13 24a3.200 3.200 0 0 0 6 0Z" fill="var(--on-accent)" />
  </svg>`;
}
