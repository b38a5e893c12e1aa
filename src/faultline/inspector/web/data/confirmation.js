// The action that waits for the operator's confirmation. The button that requested it may vanish meanwhile.
import { Store } from "./store.js";

export const confirmation = new Store({ requested: null });

export function requestConfirmation(requested) {
  confirmation.set({ requested });
}

export function closeConfirmation() {
  confirmation.set({ requested: null });
}
