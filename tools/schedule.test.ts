import assert from "node:assert/strict";
import { test } from "node:test";
import { interleaved } from "./schedule.ts";

test("interleaved: each group is in its order, spread to its part of the queue; no file is lost", () => {
  const letters = (text: string): readonly string[] => [...text];
  const queue = interleaved([
    { files: letters("abcdefgh"), until: 0.8 },
    { files: letters("XY"), until: 0.8 },
    { files: letters("1234"), until: 1 },
    { files: [], until: 1 },
  ]);
  assert.equal(queue.join(""), "a1bXcd2efY3gh4");
  assert.deepEqual(interleaved([]), []);
});
