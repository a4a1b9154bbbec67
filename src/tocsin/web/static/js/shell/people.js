// Who is here: the token that lets one in, and the name under which one acknowledges.

import { Button, Dialog, html, Problem, useState } from "../ui.js";

// Cannot be closed: without a token there is nothing to see behind it.
export function Login({ app, why, had, onToken }) {
  const [token, setToken] = useState("");
  const isBusy = app.state === "connecting";
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) onToken(token.trim());
  };
  return html`<${Dialog} title="This node asks for a token" closable=${false} onClose=${() => {}}>
    <form class="stack" onSubmit=${submit}>
      <p class="muted">Whoever runs the node makes one, and chooses what it allows:</p>
      <div class="command"><code>tocsin token add NAME --right 'subscribe:*'</code></div>
      <label class="field">
        <span>Token</span>
        <input
          class="input mono"
          type="password"
          autocomplete="current-password"
          placeholder="toc_…"
          value=${token}
          autofocus
          required
          aria-describedby="token-note"
          onInput=${(event) => setToken(event.target.value)}
        />
      </label>
      ${had && why && html`<${Problem} error=${why} />`}
      <p id="token-note" class="muted small">It is kept in this tab until you close it, and sent to this node only.</p>
      <div class="row row-end">
        <button type="submit" class="button button-primary" disabled=${isBusy || !token.trim()}>
          ${isBusy ? "Asking …" : "Log in"}
        </button>
      </div>
    </form>
  <//>`;
}

export function Operator({ app, name, token, onName, onClose }) {
  const [text, setText] = useState(name);
  const bad = /\//.test(text) ? "A name has no slash." : text.length > 100 ? "A name has at most 100 letters." : null;
  const submit = (event) => {
    event.preventDefault();
    if (text.trim() && !bad) onName(text.trim());
  };
  const leave = async () => {
    try {
      await app.desk.forget();
      app.toast(`${name} gets no more alerts here`);
    } catch (error) {
      app.toast(error.message, "bad", error.help);
    }
    onName("");
  };
  if (token) {
    return html`<${Dialog} title=${`You are ${name}`} onClose=${onClose}>
      <div class="stack">
        <p>
          Your token says so. Alerts are delivered to the consumer <code>${name}</code>, and wait for it while nobody is
          here.
        </p>
        <div class="row row-end"><${Button} kind="primary" onClick=${onClose}>OK<//></div>
      </div>
    <//>`;
  }
  return html`<${Dialog} title="Who are you?" onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <p class="muted">
        Alerts are delivered to this name, which becomes a consumer as a program would. What you have not acknowledged
        waits for you, also while this page is closed. Everybody sees who has acknowledged what.
      </p>
      <label class="field">
        <span>Your name</span>
        <input
          class="input"
          value=${text}
          autofocus
          autocomplete="nickname"
          placeholder="anna"
          aria-invalid=${bad ? "true" : "false"}
          onInput=${(event) => setText(event.target.value)}
        />
      </label>
      ${bad && html`<p class="wrong small" role="alert">${bad}</p>`}
      <div class="row row-end">
        ${name && html`<${Button} kind="danger" onClick=${leave}>Stop getting alerts<//>`}
        <span class="grow"></span>
        <${Button} onClick=${onClose}>Not now<//>
        <button type="submit" class="button button-primary" disabled=${!text.trim() || Boolean(bad)}>Use this name</button>
      </div>
      ${name && html`<p class="muted small">Stopping removes the consumer: nothing waits for ${name} any more.</p>`}
    </form>
  <//>`;
}
