// Freezes the order of a live list while the user reads it: pointer over it, focus inside it, or scrolled into it.
// Frozen rows stay in place and show their newest data. New rows appear when the user presses the update button.
import { html, useEffect, useRef, useState } from "../html.js";
import { count } from "../format.js";

// `items`: the current rows. `name` identifies the list; when it changes, the new list is shown at once.
// → {ref, shown, isGone(item), update}: `update` is null, or {newCount, show} if the order has changed.
export function useFrozenOrder(items, keyOf, name) {
  const ref = useRef(null);
  const frozen = useRef({ name: null, keys: [], seen: new Map() });
  const pointer = useRef({ isOver: false });
  const [, redraw] = useState(0);
  const draw = () => redraw((number) => number + 1);
  useReadingEvents(ref, pointer, draw);

  const now = new Map(items.map((item) => [keyOf(item), item]));
  const keys = [...now.keys()];
  const isSame = frozen.current.name === name && frozen.current.keys.length > 0;
  const isFrozen = isSame && isBeingRead(ref.current, pointer.current);
  if (!isFrozen) frozen.current = { name, keys, seen: new Map() };
  const { keys: order, seen } = frozen.current;
  for (const key of order) if (now.has(key)) seen.set(key, now.get(key));
  const isChanged = keys.length !== order.length || keys.some((key, index) => key !== order[index]);
  const known = new Set(order);
  return {
    ref,
    shown: order.map((key) => seen.get(key)),
    isGone: (item) => !now.has(keyOf(item)),
    update: isChanged ? { newCount: keys.filter((key) => !known.has(key)).length, show } : null,
  };

  function show() {
    frozen.current = { name: null, keys: [], seen: new Map() };
    draw();
  }
}

function isBeingRead(element, { isOver }) {
  return isOver || hasFocus(element) || isScrolledInto(element);
}

function hasFocus(element) {
  return element != null && element.contains(document.activeElement);
}

function isScrolledInto(element) {
  return element != null && element.getBoundingClientRect().top < 0 && element.getBoundingClientRect().bottom > 0;
}

// Observes the pointer, the focus and scrolling; draws again when the user stops reading.
function useReadingEvents(ref, pointer, draw) {
  useEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const drawIfUnread = () => {
      if (!isBeingRead(element, pointer.current)) draw();
    };
    let wasScrolled = false;
    const handlers = {
      pointerenter: () => {
        pointer.current.isOver = true;
      },
      pointerleave: () => {
        pointer.current.isOver = false;
        drawIfUnread();
      },
      focusout: drawIfUnread,
    };
    const scroll = () => {
      const isScrolled = isScrolledInto(element);
      if (wasScrolled && !isScrolled) draw();
      wasScrolled = isScrolled;
    };
    for (const [name, handler] of Object.entries(handlers)) element.addEventListener(name, handler);
    addEventListener("scroll", scroll, { passive: true });
    return () => {
      for (const [name, handler] of Object.entries(handlers)) element.removeEventListener(name, handler);
      removeEventListener("scroll", scroll);
    };
  }, []);
}

// Overlaps the edge of the list, so that no row moves when the button appears.
export function UpdateButton({ update }) {
  if (!update) return null;
  const label = update.newCount ? `Show ${count(update.newCount)} new` : "Show the new order";
  return html`<div class="update-button">
    <button class="button" data-kind="main" data-size="small" type="button" onClick=${update.show}>${label}</button>
  </div>`;
}
