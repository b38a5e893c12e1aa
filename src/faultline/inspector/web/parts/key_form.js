// A form for the operator's API key. The key is stored after the API has accepted it.
import { acceptKey } from "../data/operator.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { ErrorText } from "./notice.js";

// Only printable ASCII can be sent in a header, so other text is rejected before a request is sent.
const SENDABLE = /^[!-~]{1,300}$/;

export function KeyForm({ onDone, children }) {
  const [text, setText] = useState("");
  const [isPending, setIsPending] = useState(false);
  const [error, setError] = useState(null);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  return html`<form onSubmit=${submit}>
    <label class="field">API key
      <input type="password" autocomplete="off" ref=${input} placeholder="flk_…" value=${text}
        aria-invalid=${error ? "true" : undefined} onInput=${(event) => setText(event.currentTarget.value)} />
    </label>
    ${error && html`<${ErrorText} error=${error} lead=${error.isUnchecked ? "The key could not be checked." : "This key cannot be used."} />`}
    <div class="dialog-buttons">
      ${children}
      <button class="button" data-kind="main" type="submit" disabled=${isPending || !text.trim()}>
        ${isPending ? "Checking…" : "Use this key"}
      </button>
    </div>
  </form>`;

  async function submit(event) {
    event.preventDefault();
    const key = text.trim();
    if (!SENDABLE.test(key)) {
      setError({ message: "A key begins with flk_ and contains no spaces.", hint: "Copy the whole key again.", code: "key_required" });
      return;
    }
    setIsPending(true);
    setError(null);
    try {
      await acceptKey(key);
      onDone();
    } catch (failure) {
      setError(failure);
      setIsPending(false);
    }
  }
}
