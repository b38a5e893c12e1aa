// Preact and its hooks. `html` turns values into text nodes or attributes, never into markup.
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Fragment, render } from "./vendor/preact.js";
export {
  useCallback,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/preact-hooks.js";

export const html = htm.bind(h);
