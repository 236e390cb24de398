import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { agentConfig, brokerConfig, brokerDefinitions, ml2Config, serverConfig } from "./configs.ts";

/** The keys and values of an INI file, by `SECTION.KEY`. Throws for a line that is none. */
function parse(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let section = "";
  for (const line of text.split("\n").filter((one) => one !== "")) {
    const head = /^\[(.+)\]$/.exec(line)?.[1];
    if (head !== undefined) section = head;
    else {
      const [, key, value] = /^(\S+) = ?(.*)$/.exec(line) ?? assert.fail(`not a line of an INI file: ${line}`);
      found.set(`${section}.${key}`, value ?? "");
    }
  }
  return found;
}

test("serverConfig, ml2Config: the server uses the bed's broker, database and folder", () => {
  const found = parse(serverConfig({ folder: "/tmp/bed", quota: 7 }));
  assert.equal(found.get("DEFAULT.transport_url"), "rabbit://openstack:testing@127.0.0.1:5672/");
  assert.equal(found.get("database.connection"), "mysql+pymysql://neutron:testing@127.0.0.1/neutron");
  assert.equal(found.get("quotas.quota_port"), "7");
  assert.equal(found.get("oslo_concurrency.lock_path"), "/tmp/bed/lock");
  assert.equal(parse(ml2Config()).get("ml2.mechanism_drivers"), "openvswitch");
});

test("agentConfig: no helper is started by sudo, and the broker is at the cloud's address", () => {
  const found = parse(
    agentConfig({
      host: "node1",
      folder: "/tmp/bed/agent-node1",
      file: "/tmp/bed/agent-node1.ini",
      broker: "172.31.0.1",
      tunnelAddress: "172.30.255.1",
      ovsdb: "/tmp/ovs/db.sock",
      firewall: "iptables_hybrid",
    }),
  );
  assert.equal(found.get("DEFAULT.host"), "node1");
  assert.equal(found.get("DEFAULT.transport_url"), "rabbit://openstack:testing@172.31.0.1:5672/");
  assert.equal(found.get("ovs.ovsdb_connection"), "unix:/tmp/ovs/db.sock");
  assert.equal(found.get("securitygroup.firewall_driver"), "iptables_hybrid");
  assert.equal(found.get("agent.root_helper"), "");
  assert.equal(found.get("ovs.of_request_timeout"), "10");
  const helpers = [...found].filter(([key]) => key.startsWith("privsep"));
  assert.equal(helpers.length, 6);
  for (const [, command] of helpers) assert.equal(command, "privsep-helper --config-file /tmp/bed/agent-node1.ini");
});

test("brokerConfig, brokerDefinitions: the queues that agents send to are bound, and the user has its password", () => {
  assert.match(brokerConfig("/tmp/bed/definitions.json"), /^load_definitions = \/tmp\/bed\/definitions\.json$/m);
  const found = JSON.parse(brokerDefinitions());
  const names = found.queues.map(({ name }: { readonly name: string }) => name);
  assert.deepEqual(
    found.bindings.map(({ destination }: { readonly destination: string }) => destination),
    names,
  );
  assert.ok(names.includes("q-plugin"));
  const hash = Buffer.from(found.users[0].password_hash, "base64");
  const wanted = createHash("sha256")
    .update(Buffer.concat([hash.subarray(0, 4), Buffer.from("testing")]))
    .digest();
  assert.deepEqual(hash.subarray(4), wanted);
});
