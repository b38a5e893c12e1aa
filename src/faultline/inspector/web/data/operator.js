// The operator's key, which lives in this page's memory only, and the actions that are sent with it.
import { ApiError, get, post } from "./api.js";
import { Store } from "./store.js";

// `isRefused`: the API has refused the key since it was given, because it was revoked for example.
export const operator = new Store({ key: null, isRefused: false, hasActions: false, version: null });

const HOW = "Give a key with the scope operate. Make one with: faultline keys create NAME --scope operate";

// Asked once: it changes only when the inspector is started anew.
export async function askAbout() {
  try {
    const { actions, version } = await get("about");
    operator.set({ hasActions: actions === true, version });
  } catch {
    // Not reachable: then there is nothing to operate either. Asked again when the stream is open.
  }
}

// Keeps the key if the API accepts it for actions, else throws an ApiError that says why not.
export async function acceptKey(key) {
  const { name, scopes } = await said(get("actions/key", undefined, headersFor(key)));
  if (!scopes.includes("operate")) {
    const may = scopes.length ? `may only ${scopes.join(" and ")}` : "has no scope";
    throw new ApiError({
      status: 403,
      code: "forbidden",
      message: `The key “${name}” is valid, but it ${may}.`,
      hint: HOW,
    });
  }
  operator.set({ key, isRefused: false });
}

export function forgetKey() {
  operator.set({ key: null, isRefused: false });
}

// `action` is retry, cancel, pause or resume. A refused key is kept: what was asked stays on the page until the
// operator has seen why it was not done.
export async function act(action, body) {
  try {
    return await said(post(`actions/${action}`, body, headersFor(operator.value.key)));
  } catch (error) {
    if (isAboutKey(error)) operator.set({ isRefused: true });
    throw error;
  }
}

// A hint about headers is for programs: here a person is to give another key.
async function said(answer) {
  try {
    return await answer;
  } catch (error) {
    if (isAboutKey(error)) error.hint = HOW;
    throw error;
  }
}

// Whether another key could help.
export function isAboutKey(error) {
  return error.status === 401 || (error.status === 403 && !PAGE_CODES.has(error.code));
}

const PAGE_CODES = new Set(["foreign_origin", "csrf_token"]);

// Not Authorization: a proxy in front may ask for a login of its own, which the browser sends there.
function headersFor(key) {
  return { "X-Faultline-Key": key, "X-Faultline-CSRF": cookie("faultline_csrf") };
}

function cookie(name) {
  const found = document.cookie.split("; ").find((each) => each.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}
