import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, suite, test } from "node:test";
import { Cluster, configMap, deployment, GROUP, whyNotRunnable, widget, widgetDefinition } from "./cluster.ts";

const skip = await whyNotRunnable();

suite("kubectl reads", { skip, concurrency: false }, () => {
  let cluster: Cluster;
  const crd = widgetDefinition("reading");

  before(async () => {
    cluster = await Cluster.open("reading");
    await cluster.apply({
      apiVersion: "v1",
      kind: "List",
      items: [
        configMap("beta", { size: "2" }, { tier: "back" }),
        configMap("alpha", { size: "9" }, { tier: "front" }),
        configMap("gamma", { size: "5" }, { tier: "front", extra: "yes" }),
        deployment("web", 0),
        crd,
      ],
    });
    await cluster.run(["wait", "--for=condition=established", `crd/${crd.metadata.name}`, "--timeout=20s"]);
    await cluster.apply(widget("reading", "one", { size: 3 }));
  });

  after(async () => {
    await cluster.run(["delete", "crd", crd.metadata.name]);
    await cluster[Symbol.asyncDispose]();
  });

  test("get prints tables with the columns of each kind, wide ones with -o wide", async () => {
    const maps = await cluster.run(["get", "configmaps", "-l", "tier"]);
    assert.match(maps, /^NAME\s+DATA\s+AGE\nalpha\s+1\s+\d+s\nbeta\s+1\s+\d+s\ngamma\s+1/);
    const wide = await cluster.run(["get", "deployments", "-o", "wide"]);
    assert.match(
      wide,
      /^NAME\s+READY\s+UP-TO-DATE\s+AVAILABLE\s+AGE\s+CONTAINERS\s+IMAGES\s+SELECTOR\nweb\s+0\/0\s+0\s+0\s+\d+s\s+main\s+registry\.invalid\/app:1\s+app=web/,
    );
    assert.match(
      await cluster.run(["get", "namespaces", cluster.namespace]),
      /^NAME\s+STATUS\s+AGE\nconformance-\S+\s+Active/,
    );
  });

  test("get prints the additional columns of a custom resource, by priority", async () => {
    assert.match(await cluster.run(["get", "wdg"]), /^NAME\s+SIZE\none\s+3\s*\n$/);
    assert.match(await cluster.run(["get", "wdg", "-o", "wide"]), /^NAME\s+SIZE\s+COLOR\none\s+3\s+red\s*\n$/);
  });

  test("get prints yaml, json, names, jsonpath, go-template and custom columns", async () => {
    assert.match(
      await cluster.run(["get", "cm", "alpha", "-o", "yaml"]),
      /^apiVersion: v1\ndata:\n {2}size: "9"\nkind: ConfigMap\n/,
    );
    assert.equal((await cluster.get("cm", "alpha"))["kind"], "ConfigMap");
    assert.equal(
      await cluster.run(["get", "cm", "-l", "tier=front", "-o", "name"]),
      "configmap/alpha\nconfigmap/gamma\n",
    );
    assert.equal(await cluster.value(["cm", "-l", "tier"], "{.items[*].data.size}"), "9 2 5");
    const template = "{{range .items}}{{.metadata.name}};{{end}}";
    assert.equal(await cluster.run(["get", "cm", "-l", "tier", "-o", `go-template=${template}`]), "alpha;beta;gamma;");
    const columns = await cluster.run([
      "get",
      "cm",
      "-l",
      "tier=back",
      "-o",
      "custom-columns=N:.metadata.name,S:.data.size",
    ]);
    assert.match(columns, /^N\s+S\nbeta\s+2\n$/);
  });

  test("get sorts by a field", async () => {
    const sorted = await cluster.run(["get", "cm", "-l", "tier", "--sort-by", ".data.size", "-o", "name"]);
    assert.equal(sorted, "configmap/beta\nconfigmap/gamma\nconfigmap/alpha\n");
  });

  test("label selectors select by equality, set, presence and absence", async () => {
    const names = async (selector: string): Promise<string> =>
      (await cluster.run(["get", "cm", "-l", selector, "-o", "name"]))
        .replaceAll("configmap/", "")
        .replaceAll("\n", " ")
        .trim();
    assert.equal(await names("tier=front,extra"), "gamma");
    assert.equal(await names("tier in (front,back)"), "alpha beta gamma");
    assert.equal(await names("tier,tier notin (front)"), "beta");
    assert.equal(await names("tier,!extra"), "alpha beta");
    assert.equal(await names("tier!=back,tier"), "alpha gamma");
  });

  test("field selectors select by name and refuse fields that are not selectable", async () => {
    assert.equal(
      await cluster.run(["get", "cm", "--field-selector", "metadata.name=beta", "-o", "name"]),
      "configmap/beta\n",
    );
    assert.equal(await cluster.run(["get", "wdg", "--field-selector", "metadata.name!=one", "-o", "name"]), "");
    const refused = await cluster.try(["get", "cm", "--field-selector", "data.size=2"]);
    assert.notEqual(refused.code, 0);
    assert.match(
      refused.stderr,
      /"data\.size" is not a known field selector: only "metadata\.name", "metadata\.namespace"/,
    );
    const pods = await cluster.try(["get", "pods", "--field-selector", "spec.color=red"]);
    assert.match(pods.stderr, /field label not supported: spec\.color/);
    const custom = await cluster.try(["get", "wdg", "--field-selector", "spec.color=red"]);
    assert.match(custom.stderr, /field label not supported: spec\.color/);
  });

  test("get -A lists every namespace, and --chunk-size lists in pieces", async () => {
    assert.match(await cluster.run(["get", "cm", "-A"]), new RegExp(`${cluster.namespace}\\s+alpha`));
    assert.equal(
      await cluster.run(["get", "cm", "-l", "tier", "--chunk-size=1", "-o", "name"]),
      "configmap/alpha\nconfigmap/beta\nconfigmap/gamma\n",
    );
  });

  test("describe shows built-in and custom objects", async () => {
    assert.match(
      await cluster.run(["describe", "deployment", "web"]),
      /Selector:\s+app=web\n[\s\S]*Image:\s+registry\.invalid\/app:1/,
    );
    assert.match(await cluster.run(["describe", "wdg", "one"]), /Kind:\s+Widget[\s\S]*Size:\s+3/);
    assert.match(await cluster.run(["describe", "namespace", cluster.namespace]), /Status:\s+Active/);
  });

  test("explain knows built-in and custom fields", async () => {
    assert.match(
      await cluster.run(["explain", "deployment.spec.template.spec.containers.ports"]),
      /containerPort\s+<integer>/,
    );
    assert.match(await cluster.run(["explain", `widgets.spec`]), /size\s+<integer>[\s\S]*How big it is, in cubits\./);
  });

  test("api-resources and api-versions list the served types", async () => {
    const resources = await cluster.run(["api-resources"]);
    assert.match(resources, /deployments\s+deploy\s+apps\/v1\s+true\s+Deployment/);
    assert.match(
      resources,
      new RegExp(`widgets\\s+wdg\\s+reading\\.${GROUP.replaceAll(".", "\\.")}/v1\\s+true\\s+Widget`),
    );
    const versions = (await cluster.run(["api-versions"])).split("\n");
    for (const version of ["v1", "apps/v1", "coordination.k8s.io/v1", `reading.${GROUP}/v1`])
      assert.ok(versions.includes(version), version);
  });

  test("version, cluster-info, auth can-i and raw health answer", async () => {
    assert.match(await cluster.run(["version"]), /Server Version/);
    assert.match(await cluster.run(["cluster-info"]), /is running at/);
    assert.equal(await cluster.run(["auth", "can-i", "create", "deployments"]), "yes\n");
    assert.match(await cluster.run(["auth", "can-i", "--list"]), /\*\.\*/);
    assert.equal(await cluster.run(["get", "--raw", "/readyz"]), "ok");
  });

  test("get -w shows changes as they come", async () => {
    const watch = startWatch(cluster, ["get", "cm", "-l", "watched", "-w", "-o", "name"]);
    try {
      await cluster.apply(configMap("seen", { a: "1" }, { watched: "yes" }));
      await watch.until("configmap/seen\n");
      await cluster.run(["patch", "cm", "seen", "-p", '{"data":{"a":"2"}}']);
      await watch.until("configmap/seen\nconfigmap/seen\n");
    } finally {
      await watch.stop();
    }
  });

  test("an absent object is NotFound, an absent kind unknown", async () => {
    const absent = await cluster.try(["get", "cm", "nothing"]);
    assert.match(absent.stderr, /Error from server \(NotFound\): configmaps "nothing" not found/);
    assert.match(
      (await cluster.try(["get", "nonsenses"])).stderr,
      /the server doesn't have a resource type "nonsenses"/,
    );
  });
});

interface Watch {
  until(text: string): Promise<void>;
  stop(): Promise<void>;
}

/** Runs kubectl in the background and collects its output. */
function startWatch(cluster: Cluster, args: readonly string[]): Watch {
  const { command, env } = cluster.command(args);
  const child = spawn(command[0] ?? "", command.slice(1), { env, stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  let changed: () => void = () => undefined;
  child.stdout.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
    changed();
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  return {
    async until(text) {
      const deadline = AbortSignal.timeout(20_000);
      while (!printed.includes(text)) {
        await new Promise<void>((resolve, reject) => {
          changed = resolve;
          deadline.addEventListener(
            "abort",
            () => reject(new Error(`the watch printed ${JSON.stringify(printed)}, not ${JSON.stringify(text)}`)),
            { once: true },
          );
        });
      }
    },
    async stop() {
      child.kill();
      await ended;
    },
  };
}
