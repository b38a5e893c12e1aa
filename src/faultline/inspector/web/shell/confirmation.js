// Asks before an action is sent, and stays open with the reason when it was not done.
import { act, isAboutKey } from "../data/operator.js";
import { endQuestion, question } from "../data/question.js";
import { useStore } from "../data/store.js";
import { html, useState } from "../html.js";
import { Dialog } from "../parts/dialog.js";
import { KeyForm } from "../parts/key_form.js";
import { ErrorText } from "../parts/notice.js";

const NOT_DONE = "Nothing was changed.";
const NOT_KNOWN = "It is not known whether this was done. Look at the page before you try again.";

export function Confirmation() {
  const asked = useStore(question, (value) => value.asked);
  return asked && html`<${Question} key=${JSON.stringify([asked.action, asked.body])} asked=${asked} />`;
}

function Question({ asked: { action, body, label, subject, text, isDangerous, onDone } }) {
  const [isUnderWay, setIsUnderWay] = useState(false);
  const [error, setError] = useState(null);
  const wantsKey = error != null && isAboutKey(error);
  return html`<${Dialog} title=${html`${label}: <bdi>${subject}</bdi>`} onClose=${endQuestion}>
    <div class="stack">
      <p>${text}</p>
      ${error && html`<${ErrorText} error=${error} lead=${error.isRefusal ? NOT_DONE : NOT_KNOWN} />`}
      ${wantsKey
        ? html`<${KeyForm} onDone=${() => setError(null)}>
            <button class="button" type="button" onClick=${endQuestion}>Close</button>
          <//>`
        : html`<form class="dialog-buttons" onSubmit=${confirm}>
            <button class="button" type="button" autofocus onClick=${endQuestion}>${error ? "Close" : "Leave it"}</button>
            <button class="button" data-kind=${isDangerous ? "danger" : "main"} type="submit" disabled=${isUnderWay}>${label}</button>
          </form>`}
    </div>
  <//>`;

  async function confirm(event) {
    event.preventDefault();
    setIsUnderWay(true);
    setError(null);
    try {
      await act(action, body);
      endQuestion();
      onDone();
    } catch (failure) {
      setError(failure);
      setIsUnderWay(false);
    }
  }
}
