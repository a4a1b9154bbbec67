// Events below each other. Each opens in the drawer that all panels share.

import { EventRow, html, useState } from "../ui.js";

export function EventList({ events, label, app }) {
  const [opened, setOpened] = useState(null);
  const open = (event) => {
    setOpened(event.offset);
    app.openEvent(event);
  };
  return html`<div class="events event-list" role="table" aria-label=${label}>
    ${events.map((event) => html`<${EventRow} key=${event.offset} event=${event} onOpen=${open} isOpen=${opened === event.offset} />`)}
  </div>`;
}
