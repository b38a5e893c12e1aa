// Takes an operator's key, and keeps it once the API has accepted it.
import { acceptKey } from "../data/operator.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { ErrorText } from "./notice.js";

// A key of this shape can be sent in a header; anything else is refused before it is sent.
const SENDABLE = /^[!-~]{1,300}$/;

export function KeyForm({ onDone, children }) {
  const [text, setText] = useState("");
  const [isUnderWay, setIsUnderWay] = useState(false);
  const [error, setError] = useState(null);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  return html`<form onSubmit=${submit}>
    <label class="field">Key
      <input type="password" autocomplete="off" ref=${input} placeholder="flk_…" value=${text}
        aria-invalid=${error ? "true" : undefined} onInput=${(event) => setText(event.currentTarget.value)} />
    </label>
    ${error && html`<${ErrorText} error=${error} lead="This key cannot be used." />`}
    <div class="dialog-buttons">
      ${children}
      <button class="button" data-kind="main" type="submit" disabled=${isUnderWay || !text.trim()}>
        ${isUnderWay ? "Checking…" : "Use this key"}
      </button>
    </div>
  </form>`;

  async function submit(event) {
    event.preventDefault();
    const key = text.trim();
    if (!SENDABLE.test(key)) {
      setError({ message: "A key begins with flk_ and has no spaces.", hint: "Copy it again.", code: "key_required" });
      return;
    }
    setIsUnderWay(true);
    setError(null);
    try {
      await acceptKey(key);
      onDone();
    } catch (failure) {
      setError(failure);
      setIsUnderWay(false);
    }
  }
}
