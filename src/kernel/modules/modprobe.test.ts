import assert from "node:assert/strict";
import { test } from "node:test";
import { loadModules } from "./index.ts";

test("loadModules: a module that there is not is a reason in one line, and no error", async () => {
  const reason = await loadModules(["isthmus_no_such_module", "isthmus_neither"]);
  assert.match(reason ?? "", /^(there is no modprobe|[^\n]*isthmus_no_such_module[^\n]*)$/);
});

test("loadModules: an abort rejects with the signal's reason", async () => {
  const reason = new Error("stop");
  await assert.rejects(loadModules(["isthmus_no_such_module"], { signal: AbortSignal.abort(reason) }), reason);
  const controller = new AbortController();
  const late = loadModules(["isthmus_no_such_module"], controller);
  controller.abort(reason);
  await assert.rejects(late, reason);
});
