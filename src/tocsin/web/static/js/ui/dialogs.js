// Dialogs and the drawer at the side. Both take the focus, keep it, and give it back; Escape closes them.

import { html, useEffect, useRef } from "../../vendor/preact.js";
import { Icon } from "./icons.js";

// The browser's own modal dialog: focus stays inside, what is behind cannot be reached.
export function Dialog({ title, onClose, children, closable = true }) {
  const dialog = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog
    ref=${dialog}
    class="dialog"
    aria-label=${title}
    onCancel=${(event) => {
      event.preventDefault();
      if (closable) onClose();
    }}
    onClick=${(event) => closable && event.target === event.currentTarget && onClose()}
  >
    <div class="dialog-inside">
      <header class="dialog-head">
        <h2>${title}</h2>
        ${closable && html`<button type="button" class="icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>`}
      </header>
      ${children}
    </div>
  </dialog>`;
}

// A sheet at the right, the whole screen on a phone. What is behind stays usable, so that one can walk through rows.
export function Drawer({ title, note, onClose, children, actions }) {
  const drawer = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    drawer.current.focus();
    const onKey = (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) onClose();
    };
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("keydown", onKey);
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<aside ref=${drawer} class="drawer" tabindex="-1" role="dialog" aria-label=${title}>
    <header class="drawer-head">
      <div>
        <h2>${title}</h2>
        ${note && html`<p class="muted small">${note}</p>`}
      </div>
      <div class="drawer-actions">
        ${actions}
        <button type="button" class="icon-button" aria-label="Close" title="Close (Esc)" onClick=${onClose}>
          <${Icon} name="close" />
        </button>
      </div>
    </header>
    <div class="drawer-body">${children}</div>
  </aside>`;
}
