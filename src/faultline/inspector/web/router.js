// Routing by the URL's hash: #/jobs?state=failed, #/jobs/<id>. Every view can be linked; the server needs no routes.
import { useEffect, useState } from "./html.js";

export function currentRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/").filter(Boolean).map(decode);
  return { page: page || "overview", id: rest.length ? rest.join("/") : null, query: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a malformed %-escape stays as it is
  }
}

export function linkTo(page, id = null, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `#/${page}${id == null ? "" : `/${encodeURIComponent(id)}`}${search ? `?${search}` : ""}`;
}

export function go(page, id, query) {
  location.hash = linkTo(page, id, query);
}

export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = () => setRoute(currentRoute());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}
