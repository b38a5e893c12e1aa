// The operator's API key, kept only in this page's memory, and the actions sent with it.
import { ApiError, get, post } from "./api.js";
import { Store } from "./store.js";

// `isRefused`: the API accepted the key once, but refused it later; for example, because it was revoked.
// `needsKey` is false if the inspector is mounted in another application, where the operator has logged in.
export const operator = new Store({ key: null, isRefused: false, hasActions: false, needsKey: true, version: null });

const KEY_HINT = "Enter a key with the scope operate. To create one, run: faultline keys create NAME --scope operate";

// Fetches the inspector's version and whether it allows actions. Both change only when the inspector restarts.
export async function loadInspectorInfo() {
  try {
    const { actions, needs_key: needsKey, version } = await get("about");
    operator.set({ hasActions: actions === true, needsKey: needsKey !== false, version });
  } catch {
    // The inspector is unreachable. main.js calls again when the stream is open.
  }
}

// Stores the key if the API accepts it for actions; throws an ApiError otherwise.
export async function acceptKey(key) {
  const { name, scopes } = await checkKey(key);
  if (!scopes.includes("operate")) {
    const scope = scopes.length ? `has only the scope ${scopes.join(" and ")}` : "has no scope";
    throw new ApiError({
      status: 403,
      code: "forbidden",
      message: `The key “${name}” is valid, but it ${scope}.`,
      hint: KEY_HINT,
    });
  }
  operator.set({ key, isRefused: false });
}

async function checkKey(key) {
  try {
    return await withKeyHint(get("actions/key", undefined, headersFor(key)));
  } catch (error) {
    if (error.isRefusal) throw error;
    error.isUnchecked = true;
    error.hint = "Check that the API is running and that the inspector can reach it, then try again.";
    throw error;
  }
}

export function forgetKey() {
  operator.set({ key: null, isRefused: false });
}

// `action` is the name of an endpoint, such as pause or set-limit. A refused key is kept, so that the dialog with the error stays open.
export async function sendAction(action, body) {
  try {
    return await withKeyHint(post(`actions/${action}`, body, headersFor(operator.value.key)));
  } catch (error) {
    if (isKeyError(error)) operator.set({ isRefused: true });
    throw error;
  }
}

// The API's own hint is about HTTP headers. An operator needs to know how to get a key instead.
async function withKeyHint(response) {
  try {
    return await response;
  } catch (error) {
    if (isKeyError(error)) error.hint = KEY_HINT;
    throw error;
  }
}

// Whether the request could succeed with another key.
export function isKeyError(error) {
  if (!operator.value.needsKey) return false;
  return error.status === 401 || (error.status === 403 && !PAGE_CODES.has(error.code));
}

const PAGE_CODES = new Set(["foreign_origin", "csrf_token"]);

// Not the Authorization header: a proxy in front of the inspector may use that for its own login.
function headersFor(key) {
  if (!operator.value.needsKey) return {};
  return { "X-Faultline-Key": key, "X-Faultline-CSRF": cookie("faultline_csrf") };
}

function cookie(name) {
  const found = document.cookie.split("; ").find((each) => each.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}
