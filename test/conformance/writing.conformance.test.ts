import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { Cluster, configMap, deployment, whyNotRunnable, widget, widgetDefinition } from "./cluster.ts";

const skip = await whyNotRunnable();

suite("kubectl writes", { skip, concurrency: false }, () => {
  let cluster: Cluster;
  const crd = widgetDefinition("writing");

  before(async () => {
    cluster = await Cluster.open("writing");
    await cluster.apply(crd);
    await cluster.run(["wait", "--for=condition=established", `crd/${crd.metadata.name}`, "--timeout=20s"]);
  });

  after(async () => {
    await cluster.run(["delete", "crd", crd.metadata.name]);
    await cluster[Symbol.asyncDispose]();
  });

  test("create makes an object once", async () => {
    assert.equal(await cluster.run(["create", "configmap", "made", "--from-literal=a=1"]), "configmap/made created\n");
    assert.match((await cluster.try(["create", "configmap", "made"])).stderr, /AlreadyExists|already exists/);
    const { metadata } = (await cluster.get("cm", "made")) as { metadata: Record<string, string> };
    assert.match(metadata["uid"] ?? "", /^[0-9a-f-]{36}$/);
    assert.match(metadata["creationTimestamp"] ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  });

  test("create with generateName finds a free name", async () => {
    const manifest = { apiVersion: "v1", kind: "ConfigMap", metadata: { generateName: "gen-" } };
    assert.match(
      await cluster.run(["create", "-f", "-"], { stdin: JSON.stringify(manifest) }),
      /^configmap\/gen-[a-z0-9]{5} created\n$/,
    );
  });

  test("apply creates, prints unchanged, configures, and removes fields that were removed from the manifest", async () => {
    assert.match(await cluster.apply(configMap("applied", { keep: "1", drop: "1" })), /created/);
    assert.match(await cluster.apply(configMap("applied", { keep: "1", drop: "1" })), /unchanged/);
    await cluster.run(["patch", "cm", "applied", "-p", '{"data":{"other":"x"}}']);
    assert.match(await cluster.apply(configMap("applied", { keep: "2" })), /configured/);
    assert.deepEqual((await cluster.get("cm", "applied"))["data"], { keep: "2", other: "x" });
  });

  test("empty labels, annotations, finalizers and owners are not stored", async () => {
    const empty = { labels: {}, annotations: {}, finalizers: [], ownerReferences: [] };
    for (const object of [configMap("bare", {}), widget("writing", "bare", { size: 1 })] as const) {
      const stdin = JSON.stringify({ ...object, metadata: { name: "bare", ...empty } });
      const made = JSON.parse(await cluster.run(["create", "-f", "-", "-o", "json"], { stdin }));
      const { metadata } = made as { metadata: object };
      assert.deepEqual(
        Object.keys(metadata).filter((key) => Object.hasOwn(empty, key)),
        [],
      );
    }
  });

  test("apply merges lists by their keys", async () => {
    await cluster.apply(deployment("merge", 0));
    const sidecar = {
      spec: { template: { spec: { containers: [{ name: "side", image: "registry.invalid/side:1" }] } } },
    };
    await cluster.run(["patch", "deployment", "merge", "-p", JSON.stringify(sidecar)]);
    await cluster.apply(deployment("merge", 0, "registry.invalid/app:2"));
    const images = await cluster.value(["deployment", "merge"], "{.spec.template.spec.containers[*].image}");
    assert.deepEqual(images.split(" ").sort(), ["registry.invalid/app:2", "registry.invalid/side:1"]);
  });

  test("server-side apply refuses a field of another manager, and takes it with --force-conflicts", async () => {
    const apply = (data: Record<string, string>, ...args: string[]): Promise<{ code: number; stderr: string }> =>
      cluster.try(["apply", "--server-side", "-f", "-", ...args], { stdin: JSON.stringify(configMap("ssa", data)) });
    assert.equal((await apply({ a: "1", b: "1" }, "--field-manager=first")).code, 0);
    const refused = await apply({ a: "2" }, "--field-manager=second");
    assert.match(refused.stderr, /Apply failed with 1 conflict: conflict with "first".*: \.data\.a/);
    assert.equal((await apply({ a: "2" }, "--field-manager=second", "--force-conflicts")).code, 0);
    assert.equal((await apply({ b: "1" }, "--field-manager=first")).code, 0);
    assert.deepEqual((await cluster.get("cm", "ssa"))["data"], { a: "2", b: "1" });
    assert.equal((await apply({}, "--field-manager=first")).code, 0);
    assert.deepEqual((await cluster.get("cm", "ssa"))["data"], { a: "2" });
  });

  test("server-side apply merges the keyed list of a custom resource", async () => {
    const apply = (manager: string, parts: object[]): Promise<string> =>
      cluster.run(["apply", "--server-side", `--field-manager=${manager}`, "-f", "-"], {
        stdin: JSON.stringify(widget("writing", "ssa", { size: 1, parts })),
      });
    await apply("first", [{ name: "a", value: "1" }]);
    await apply("second", [{ name: "b", value: "2" }]);
    assert.equal(await cluster.value(["wdg", "ssa"], "{.spec.parts[*].name}"), "a b");
    await apply("first", []);
    assert.equal(await cluster.value(["wdg", "ssa"], "{.spec.parts[*].name}"), "b");
  });

  test("diff shows the changes of an apply, and changes nothing", async () => {
    await cluster.apply(configMap("diffed", { a: "1" }));
    const same = await cluster.try(["diff", "-f", "-"], { stdin: JSON.stringify(configMap("diffed", { a: "1" })) });
    assert.deepEqual([same.code, same.stdout], [0, ""]);
    const other = await cluster.try(["diff", "-f", "-"], { stdin: JSON.stringify(configMap("diffed", { a: "2" })) });
    assert.equal(other.code, 1);
    assert.match(other.stdout, /^-\s+a: "1"\n\+\s+a: "2"$/m);
    assert.equal(await cluster.value(["cm", "diffed"], "{.data.a}"), "1");
  });

  test("a server-side dry run answers as if, and stores nothing", async () => {
    const text = await cluster.run(["apply", "--dry-run=server", "-f", "-"], {
      stdin: JSON.stringify(configMap("dry", {})),
    });
    assert.match(text, /configmap\/dry created \(server dry run\)/);
    assert.notEqual((await cluster.try(["get", "cm", "dry"])).code, 0);
  });

  test("patch takes strategic merge, merge and JSON patches", async () => {
    await cluster.apply(deployment("patched", 0));
    const container =
      '{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"1"}]}]}}}}';
    await cluster.run(["patch", "deployment", "patched", "-p", container]);
    assert.equal(
      await cluster.value(["deployment", "patched"], "{.spec.template.spec.containers[0].image}"),
      "registry.invalid/app:1",
    );
    await cluster.run([
      "patch",
      "deployment",
      "patched",
      "--type=merge",
      "-p",
      '{"metadata":{"annotations":{"x":"1"}}}',
    ]);
    await cluster.run([
      "patch",
      "deployment",
      "patched",
      "--type=json",
      "-p",
      '[{"op":"test","path":"/metadata/annotations/x","value":"1"},{"op":"replace","path":"/spec/replicas","value":2}]',
    ]);
    assert.equal(await cluster.value(["deployment", "patched"], "{.spec.replicas}"), "2");
    const failed = await cluster.try([
      "patch",
      "deployment",
      "patched",
      "--type=json",
      "-p",
      '[{"op":"test","path":"/spec/replicas","value":7}]',
    ]);
    assert.notEqual(failed.code, 0);
  });

  test("custom resources take merge and JSON patches, validated", async () => {
    await cluster.apply(widget("writing", "patched", { size: 1 }));
    await cluster.run(["patch", "wdg", "patched", "--type=merge", "-p", '{"spec":{"size":2,"color":"blue"}}']);
    await cluster.run([
      "patch",
      "wdg",
      "patched",
      "--type=json",
      "-p",
      '[{"op":"replace","path":"/spec/size","value":4}]',
    ]);
    assert.equal(await cluster.value(["wdg", "patched"], "{.spec.size} {.spec.color}"), "4 blue");
    const refused = await cluster.try([
      "patch",
      "wdg",
      "patched",
      "--type=merge",
      "-p",
      '{"spec":{"size":0,"color":"green"}}',
    ]);
    // Faults come in any order: members are looked at in that of a Go map.
    assert.match(refused.stderr, /spec\.color: Unsupported value: "green": supported values: "red", "blue"/);
    assert.match(
      refused.stderr,
      /spec\.size: Invalid value: 0: spec\.size in body should be greater than or equal to 1/,
    );
  });

  test("custom resources are defaulted, pruned where their schema is closed, and free where it is open", async () => {
    await cluster.run(["apply", "--validate=false", "-f", "-"], {
      stdin: JSON.stringify(
        widget("writing", "shaped", { size: 1, unknown: true, port: "http", free: { any: { thing: 1 } } }),
      ),
    });
    const { spec } = await cluster.get("wdg", "shaped");
    assert.deepEqual(spec, { size: 1, color: "red", replicas: 1, port: "http", free: { any: { thing: 1 } } });
  });

  test("replace needs the version it was read at", async () => {
    await cluster.apply(configMap("replaced", { a: "1" }));
    const read = await cluster.run(["get", "cm", "replaced", "-o", "json"]);
    await cluster.run(["patch", "cm", "replaced", "-p", '{"data":{"a":"2"}}']);
    const stale = await cluster.try(["replace", "-f", "-"], { stdin: read });
    assert.match(stale.stderr, /Conflict|has been modified/);
    const fresh = (await cluster.get("cm", "replaced")) as { data: Record<string, string> };
    await cluster.run(["replace", "-f", "-"], { stdin: JSON.stringify({ ...fresh, data: { a: "3" } }) });
    assert.equal(await cluster.value(["cm", "replaced"], "{.data.a}"), "3");
  });

  test("edit applies the text of a scripted editor, and cancels without a change", async () => {
    await cluster.apply(configMap("edited", { a: "before" }));
    const editor = join(cluster.folder, "editor.sh");
    await writeFile(editor, '#!/bin/sh\nsed -i s/before/after/ "$1"\n');
    await chmod(editor, 0o755);
    assert.match(await cluster.run(["edit", "cm", "edited"], { env: { KUBE_EDITOR: editor } }), /edited/);
    assert.equal(await cluster.value(["cm", "edited"], "{.data.a}"), "after");
    const cancelled = await cluster.try(["edit", "cm", "edited"], { env: { KUBE_EDITOR: editor } });
    assert.match(cancelled.stdout + cancelled.stderr, /cancelled|no changes/i);
  });

  test("label and annotate add, refuse to overwrite without --overwrite, and remove", async () => {
    await cluster.apply(configMap("marked", {}));
    await cluster.run(["label", "cm", "marked", "a=1"]);
    assert.notEqual((await cluster.try(["label", "cm", "marked", "a=2"])).code, 0);
    await cluster.run(["label", "cm", "marked", "a=2", "--overwrite"]);
    await cluster.run(["annotate", "cm", "marked", "note=long text, with anything"]);
    assert.equal(
      await cluster.value(["cm", "marked"], "{.metadata.labels.a} {.metadata.annotations.note}"),
      "2 long text, with anything",
    );
    await cluster.run(["label", "cm", "marked", "a-"]);
    assert.equal(await cluster.value(["cm", "marked"], "{.metadata.labels.a}"), "");
    assert.notEqual((await cluster.try(["label", "cm", "marked", "bad=not a value"])).code, 0);
  });

  test("scale sets replicas of a deployment and of a custom resource, with precondition", async () => {
    await cluster.apply(deployment("scaled", 1));
    await cluster.run(["scale", "deployment", "scaled", "--replicas=0"]);
    assert.equal(await cluster.value(["deployment", "scaled"], "{.spec.replicas}"), "0");
    assert.notEqual(
      (await cluster.try(["scale", "deployment", "scaled", "--current-replicas=5", "--replicas=1"])).code,
      0,
    );
    await cluster.apply(widget("writing", "scaled", { size: 1 }));
    await cluster.run(["scale", "wdg/scaled", "--replicas=6"]);
    assert.equal(await cluster.value(["wdg", "scaled"], "{.spec.replicas}"), "6");
  });

  test("generation counts changes of the spec only", async () => {
    await cluster.apply(widget("writing", "counted", { size: 1 }));
    await cluster.run(["label", "wdg", "counted", "x=y"]);
    assert.equal(await cluster.value(["wdg", "counted"], "{.metadata.generation}"), "1");
    await cluster.run([
      "patch",
      "wdg",
      "counted",
      "--type=merge",
      "-p",
      '{"spec":{"size":2},"status":{"phase":"ignored"}}',
    ]);
    assert.equal(await cluster.value(["wdg", "counted"], "{.metadata.generation}{.status.phase}"), "2");
  });

  test("set image and rollout pause change the template", async () => {
    await cluster.apply(deployment("rolled", 0));
    await cluster.run(["set", "image", "deployment/rolled", "main=registry.invalid/app:9"]);
    await cluster.run(["rollout", "pause", "deployment/rolled"]);
    assert.equal(
      await cluster.value(["deployment", "rolled"], "{.spec.template.spec.containers[0].image} {.spec.paused}"),
      "registry.invalid/app:9 true",
    );
  });

  test("faulty objects are refused with the fault named", async () => {
    const create = async (object: object): Promise<string> =>
      (await cluster.try(["create", "--validate=false", "-f", "-"], { stdin: JSON.stringify(object) })).stderr;
    assert.match(await create(configMap("Not_A_Name", {})), /metadata\.name: Invalid value: "Not_A_Name"/);
    assert.match(await create(widget("writing", "w", {})), /spec\.size: Required value/);
    assert.match(
      await create({ apiVersion: "v1", kind: "Pod", metadata: { name: "empty" }, spec: { containers: [] } }),
      /spec\.containers: Required value/,
    );
    const selector = { ...deployment("sel", 0) } as { spec?: { selector: unknown } };
    selector.spec = { ...(selector.spec ?? {}), selector: { matchLabels: { other: "x" } } };
    assert.match(await create(selector), /`selector` does not match template `labels`/);
  });

  test("client-side validation knows the fields of built-in and custom kinds", async () => {
    const built = await cluster.try(["apply", "-f", "-"], {
      stdin: JSON.stringify({ ...configMap("v", {}), datta: {} }),
    });
    assert.match(built.stderr, /unknown field "?datta/);
    const custom = await cluster.try(["apply", "-f", "-"], {
      stdin: JSON.stringify(widget("writing", "v", { size: 1, colour: "red" })),
    });
    assert.match(custom.stderr, /unknown field "?(spec\.)?colour/);
  });
});
