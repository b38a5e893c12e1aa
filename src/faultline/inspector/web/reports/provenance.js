// When, where and from which commit a report was measured.
import { html } from "../html.js";

export function Provenance({ facts }) {
  const parts = [
    facts.made_at,
    facts.command,
    facts.commit && `commit ${facts.commit}`,
    facts.seed != null && `seed ${facts.seed}`,
    facts.machine && `${facts.machine}, ${facts.cores} cores`,
    facts.postgres && `PostgreSQL ${facts.postgres}`,
    facts.python && `Python ${facts.python}`,
  ].filter(Boolean);
  return html`<p class="provenance">${parts.join(" · ")}</p>`;
}
