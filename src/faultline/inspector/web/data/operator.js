// What an operator may do: through the API, with a key that lives in this page's memory and nowhere else.
import { ApiError, get, post } from "./api.js";
import { Store } from "./store.js";

export const operator = new Store({ key: null, hasActions: false, version: null });

// Asked once: it changes only when the inspector is started anew.
export async function askAbout() {
  try {
    const { actions, version } = await get("about");
    operator.set({ hasActions: actions === true, version });
  } catch {
    // Not reachable: then there is nothing to operate either. Asked again when the stream is open.
  }
}

export function setKey(key) {
  operator.set({ key: key || null });
}

// `action` is retry, cancel, pause or resume.
export async function act(action, body) {
  const token = cookie("faultline_csrf");
  try {
    return await post(`actions/${action}`, body, {
      Authorization: `Bearer ${operator.value.key}`,
      "X-Faultline-CSRF": token,
    });
  } catch (error) {
    // A key that is not accepted is forgotten, so that the next attempt asks for another.
    if (error instanceof ApiError && error.status === 401) setKey(null);
    throw error;
  }
}

function cookie(name) {
  const found = document.cookie.split("; ").find((each) => each.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}
