import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError, parseFlags } from "#base/config";
import { etcdFlags, etcdOptions, prefixOf } from "./etcd-flags.ts";

/** The options of a command line; key files are this file. */
function optionsOf(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  return etcdOptions(parseFlags(etcdFlags, args, {}).values, env);
}

test("etcdOptions: defaults are Coil's; endpoints are a list, and without a scheme have that of the certificates", () => {
  const { endpoints, timeoutMs, user } = optionsOf([]);
  assert.deepEqual([endpoints.map(String), timeoutMs, user], [["http://127.0.0.1:2379/"], 2000, undefined]);
  const two = ["--etcd-endpoints=192.0.2.1:2379, [::1]:2379 ,"];
  assert.deepEqual(optionsOf(two).endpoints.map(String), ["http://192.0.2.1:2379/", "http://[::1]:2379/"]);
  const secure = optionsOf([...two, `--etcd-tls-ca=${import.meta.filename}`]);
  assert.deepEqual(secure.endpoints.map(String), ["https://192.0.2.1:2379/", "https://[::1]:2379/"]);
  assert.match(secure.tls.ca ?? "", /etcdOptions/);
});

test("etcdOptions: the password comes from the flag, else from the environment", () => {
  const env = { COIL_ETCD_PASSWORD: "theirs" };
  assert.deepEqual(optionsOf(["--etcd-username=u"], env).user, { name: "u", password: "theirs" });
  assert.deepEqual(optionsOf(["--etcd-username=u", "--etcd-password="], env).user, { name: "u", password: "" });
  assert.equal(optionsOf([], env).user, undefined);
});

test("etcdOptions: all faults are named together", () => {
  const args = ["--etcd-endpoints=http://a,ftp://b", "--etcd-tls-cert=x", "--etcd-username=u"];
  assert.throws(
    () => optionsOf(args),
    (error) => {
      assert.ok(error instanceof ConfigError);
      assert.equal(error.faults.length, 4, error.faults.join("\n"));
      return true;
    },
  );
  assert.throws(() => optionsOf(["--etcd-password=x"]), { faults: ["--etcd-password needs --etcd-username"] });
  assert.throws(() => optionsOf(["--etcd-endpoints=,"]), { faults: ["--etcd-endpoints: give at least one endpoint"] });
  assert.throws(() => optionsOf(["--etcd-endpoints=a:1", "--etcd-tls-ca=/nowhere"]), { name: "FileError" });
});

test("prefixOf: a prefix ends in a slash, and is not everything", () => {
  assert.equal(prefixOf("/coil"), "/coil/");
  assert.equal(prefixOf("/coil/"), "/coil/");
  for (const text of ["", "/"]) assert.throws(() => prefixOf(text), { name: "ConfigError" });
});
