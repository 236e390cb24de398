import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { parseFlags } from "#base/config";
import { serviceProxyFlags } from "../../shared/service-proxy-config/index.ts";

const root = join(import.meta.dirname, "../../../..");
const read = (name: string): string => readFileSync(join(root, name), "utf8");

test("deploy/service-proxy: the unit gives flags that the program has, and starts it again when its file changes", () => {
  const unit = read("deploy/service-proxy/service-proxy.service");
  const value = (key: string): string | undefined => new RegExp(`^${key}=(.*)$`, "m").exec(unit)?.[1];
  const [path, program, ...args] = value("ExecStart")?.split(/\s+/) ?? [];
  assert.deepEqual([path, program], ["/usr/local/bin/isthmus", "service-proxy"]);
  const { values, words } = parseFlags(serviceProxyFlags, args);
  assert.deepEqual([values.config, values.hostnameOverride, words], ["/var/lib/kube-proxy/config.conf", "%H", []]);
  assert.equal(value("Restart"), "always");
  assert.equal(value("CapabilityBoundingSet"), value("AmbientCapabilities"));
});

test("deploy/service-proxy: the role allows what the reference lists", () => {
  const documents = parseAllDocuments(read("deploy/service-proxy/rbac.yaml")).map((one) => one.toJS());
  const role = documents.find(({ kind }) => kind === "ClusterRole") as {
    readonly rules: readonly { readonly resources: readonly string[]; readonly verbs: readonly string[] }[];
  };
  const granted = new Map(role.rules.flatMap(({ resources, verbs }) => resources.map((one) => [one, verbs] as const)));
  const table = read("docs/reference/service-proxy.md").split("## Rights at the API server")[1]?.split("##")[0] ?? "";
  const rows = table.split("\n").flatMap((line) => {
    const [, objects = "", verbs = ""] = line.split("|").map((cell) => cell.trim());
    return /^(get|list|create)/.test(verbs) ? [[objects, verbs.split(":")[0] ?? ""] as const] : [];
  });
  assert.equal(rows.length, 3);
  for (const [objects, verbs] of rows) {
    for (const object of objects.split(", ")) {
      for (const verb of verbs.split(", ")) assert.ok(granted.get(object)?.includes(verb), `${verb} ${object}`);
    }
  }
});
