import assert from "node:assert/strict";
import { test } from "node:test";
import { callerEnvironment } from "./caller-environment.ts";

test("callerEnvironment: what the launcher added is gone, what it removed is back, and all else stays", () => {
  assert.deepEqual(
    callerEnvironment({
      PATH: "/bin",
      NODE_NAME: "n1",
      ISTHMUS_CALLED_AS: "mgmtproxy-env",
      ISTHMUS_CALLER_NODE_EXTRA_CA_CERTS: "/etc/ca.pem",
      ISTHMUS_CALLER_NODE_OPTIONS: "",
    }),
    { PATH: "/bin", NODE_NAME: "n1", NODE_EXTRA_CA_CERTS: "/etc/ca.pem", NODE_OPTIONS: "" },
  );
});
