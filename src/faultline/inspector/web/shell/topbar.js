// The top bar: job search, operator key, theme and help.
import { operator } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { nextTheme, theme } from "../data/theme.js";
import { isJobId } from "../format.js";
import { html, useState } from "../html.js";
import { Icon } from "../parts/icons.js";
import { go } from "../router.js";

export const SEARCH_ID = "search";

export function Topbar({ onHelp, onKey }) {
  const themeName = useStore(theme, ({ name }) => name);
  const hasKey = useStore(operator, ({ key }) => key != null);
  const usesKey = useStore(operator, ({ hasActions, needsKey }) => hasActions && needsKey);
  const isRefused = useStore(operator, (value) => value.isRefused);
  const keyLabel = isRefused ? "Key refused" : hasKey ? "Key accepted" : "Enter key";
  const [text, setText] = useState("");

  return html`<div class="topbar">
    <form class="search" role="search" onSubmit=${find}>
      <label class="visually-hidden" for=${SEARCH_ID}>Find a job by its id, or all jobs of a task</label>
      <input id=${SEARCH_ID} type="search" placeholder="Job id or task" autocomplete="off" spellcheck=${false}
        value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
      <kbd aria-hidden="true">/</kbd>
    </form>
    <div class="topbar-tools">
      ${usesKey &&
      html`<button class="button" data-kind="quiet" data-tone=${isRefused ? "bad" : undefined} type="button" onClick=${onKey}
        aria-label=${keyLabel}>
        <${Icon} name="key" /><span>${keyLabel}</span>
      </button>`}
      <button class="button" data-kind="quiet" data-icon type="button" onClick=${nextTheme}
        aria-label=${`Theme: ${themeName}. Press to change it.`} title=${`Theme: ${themeName}`}>
        <${Icon} name=${themeName} />
      </button>
      <button class="button" data-kind="quiet" data-icon type="button" onClick=${onHelp} aria-label="Help" title="Help (?)">
        <${Icon} name="help" />
      </button>
    </div>
  </div>`;

  function find(event) {
    event.preventDefault();
    const query = text.trim();
    if (!query) return;
    if (isJobId(query)) go("jobs", query.toLowerCase());
    else go("jobs", null, { task: query });
    setText("");
  }
}
