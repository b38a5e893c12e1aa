// The action that an operator is asked to confirm. It outlives the button: lists change while it is open.
import { Store } from "./store.js";

export const question = new Store({ asked: null });

export function ask(asked) {
  question.set({ asked });
}

export function endQuestion() {
  question.set({ asked: null });
}
