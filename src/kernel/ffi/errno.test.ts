import assert from "node:assert/strict";
import { test } from "node:test";
import { isMoot } from "./errno.ts";

test("isMoot: an interrupted call is repeated for ever, one with the errno of another call twice, any other not at all", () => {
  const [ENOENT, EINTR, EAGAIN, ENOTTY, ECONNRESET] = [2, 4, 11, 25, 104] as const;
  for (const tries of [1, 2, 3, 1000]) {
    assert.equal(isMoot(EINTR, tries), true);
    for (const errno of [EAGAIN, ECONNRESET]) assert.equal(isMoot(errno, tries), false);
  }
  for (const errno of [ENOENT, ENOTTY])
    assert.deepEqual(
      [1, 2, 3, 4].map((tries) => isMoot(errno, tries)),
      [true, true, false, false],
    );
});
