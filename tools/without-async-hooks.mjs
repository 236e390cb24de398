/**
 * Lets node:test find the current test or suite by an AsyncLocalStorage instead of an async hook: `node --import=./tools/without-async-hooks.mjs FILE`. The hook costs a call of
 * JavaScript at the start and the end of every promise, timer and socket of the process: 15 % of the processor of most test files, and half of some. Must be imported
 * before node:test, which takes both functions from the module when it is loaded (lib/internal/test_runner/harness.js).
 */
import asyncHooks from "node:async_hooks";

const { AsyncLocalStorage, AsyncResource, createHook, executionAsyncId } = asyncHooks;
/** The async id of the test or suite in which code runs. */
const current = new AsyncLocalStorage();

/** Tests, suites and hooks of node:test are resources of one class, which is not public. */
function isOfRunner(resource) {
  for (let at = Object.getPrototypeOf(resource); at !== null; at = Object.getPrototypeOf(at))
    if (at.constructor?.name === "Test") return true;
  return false;
}

asyncHooks.executionAsyncId = () => current.getStore() ?? executionAsyncId();
asyncHooks.createHook = ({ init }) => {
  // Only the first hook is that of node:test.
  asyncHooks.createHook = createHook;
  const { runInAsyncScope } = AsyncResource.prototype;
  AsyncResource.prototype.runInAsyncScope = function runWithin(run, thisArg, ...args) {
    if (!isOfRunner(this)) return runInAsyncScope.call(this, run, thisArg, ...args);
    const id = this.asyncId();
    init(id, "Test", -1, this);
    // Inside of the scope: it has the context in which the resource was made.
    const runHere = (...given) => current.run(id, () => Reflect.apply(run, thisArg, given));
    return runInAsyncScope.call(this, runHere, undefined, ...args);
  };
  const hook = { enable: () => hook, disable: () => hook };
  return hook;
};
