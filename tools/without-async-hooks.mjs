/**
 * Keeps node:test from following each asynchronous resource of a test's process: `node --import=./tools/without-async-hooks.mjs FILE`. By that it finds the test to
 * which an error outside of the tests' own calls belongs; the price is a call of JavaScript at the start and the end of every promise, timer and socket. Such an error
 * still fails the file, and is printed here with its stack. Must be imported before node:test.
 */
import asyncHooks from "node:async_hooks";

const { createHook } = asyncHooks;
asyncHooks.createHook = () => {
  // Only the first hook is that of node:test.
  asyncHooks.createHook = createHook;
  const hook = { enable: () => hook, disable: () => hook };
  return hook;
};
for (const event of ["uncaughtException", "unhandledRejection"])
  process.on(event, (error) => console.error(`${event} outside of the calls of tests:`, error));
