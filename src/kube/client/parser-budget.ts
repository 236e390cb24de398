import { setV8Flag } from "#base/v8-flags";

/** V8's default: WebAssembly code that has run about so many bytes is compiled again, by the optimizing compiler. */
const USUAL_BUDGET = 13_000_000;
const PARSER_BUDGET = 100 * USUAL_BUDGET;
let isMade = false;

/**
 * Calls `connected`, in which undici compiles its parser of HTTP/1 at the first connection of the process. The parser is one large function of
 * WebAssembly. After ten requests V8 would optimize it, which takes 60 ms of a processor, more than the rest of a program's requests at
 * its start. With a larger budget it does so after a thousand requests. V8 reads the budget when a module is made, and the flag is set
 * back, because V8 takes compiled code only with the flags with which it was made.
 */
export function withParserBudget(connected: () => void): void {
  if (isMade) {
    connected();
    return;
  }
  isMade = true;
  setV8Flag(`--wasm-tiering-budget=${PARSER_BUDGET}`);
  try {
    connected();
  } finally {
    setV8Flag(`--wasm-tiering-budget=${USUAL_BUDGET}`);
  }
}
