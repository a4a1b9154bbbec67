// Short words about what was just done, or could not be. They are read out, and go by themselves.

import { html, Icon } from "../ui.js";

export function Toasts({ toasts, onClose }) {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map(
      (each) =>
        html`<div key=${each.id} class=${`toast tone-${each.tone}`}>
          <div>
            <p>${each.text}</p>
            ${each.help && html`<p class="small">${each.help}</p>`}
          </div>
          <button type="button" class="icon-button" aria-label="Close" onClick=${() => onClose(each)}>
            <${Icon} name="close" size=${14} />
          </button>
        </div>`,
    )}
  </div>`;
}
