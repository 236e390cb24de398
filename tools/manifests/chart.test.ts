import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { ChartError, joinDocuments, jsonSchema, readChart, readValues, renderChart, type Values } from "./index.ts";

const deploy = join(import.meta.dirname, "../../deploy");
const chart = readChart(join(deploy, "chart"));

interface Rendered {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly spec?: {
    readonly template?: Template;
    readonly updateStrategy?: object;
    readonly strategy?: object;
  } & PodSpec;
  readonly data?: Readonly<Record<string, string>>;
}
interface Template {
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
  readonly spec: PodSpec;
}
interface PodSpec {
  readonly priorityClassName?: string;
  readonly terminationGracePeriodSeconds?: number;
  readonly imagePullSecrets?: unknown;
  readonly nodeSelector?: unknown;
  readonly tolerations?: readonly object[];
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly volumes?: readonly { readonly name: string; readonly hostPath?: { readonly path: string } }[];
}
interface Container {
  readonly name: string;
  readonly image: string;
  readonly imagePullPolicy?: string;
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly resources?: { readonly requests?: object };
  readonly livenessProbe?: object;
  readonly readinessProbe?: object;
  readonly securityContext?: { readonly privileged?: boolean; readonly seLinuxOptions?: { readonly type?: string } };
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
  }[];
}

function objectsOf(values: Values): Rendered[] {
  const documents = parseAllDocuments(joinDocuments(renderChart(chart, values).values()));
  return documents.map((one) => {
    assert.deepEqual([one.errors, one.warnings], [[], []]);
    return one.toJS() as Rendered;
  });
}

const all = readValues(readFileSync(join(deploy, "variants/all.values.yaml"), "utf8"), "all");
const workloadsOf = (values: Values): Map<string, PodSpec> =>
  new Map(
    objectsOf(values).flatMap(({ metadata, spec }) =>
      spec?.template === undefined ? [] : [[metadata.name, spec.template.spec] as const],
    ),
  );
const argsOf = (values: Values, name: string): readonly string[] =>
  workloadsOf(values).get(name)?.containers[0]?.args ?? [];

test("chart: nothing is rendered of its own values, which the schema allows", () => {
  assert.deepEqual(objectsOf({}), []);
});

test("chart: each workload has a priority, requests, probes, a security context, tolerations, an end that is awaited, and the label of the suite", () => {
  const objects = objectsOf(all);
  for (const { kind, metadata } of objects)
    assert.equal(metadata.labels?.["app.kubernetes.io/part-of"], "isthmus", `${kind} ${metadata.name}`);
  const workloads = workloadsOf(all);
  assert.deepEqual(Array.from(workloads.keys()).sort(), [
    "coil-egress-controller",
    "coil-ipam-controller",
    "coil-router",
    "coild",
    "nic-agent",
    "nic-controller",
    "proxy-agent",
    "proxy-server",
    "service-proxy",
    "uplink-proxy",
  ]);
  for (const [name, { containers, ...spec }] of workloads) {
    assert.match(spec.priorityClassName ?? "", /^system-(node|cluster)-critical$/, name);
    assert.ok((spec.tolerations?.length ?? 0) > 0 && spec.terminationGracePeriodSeconds !== undefined, name);
    for (const { resources, livenessProbe, readinessProbe, securityContext, image } of containers) {
      assert.deepEqual(Object.keys(resources?.requests ?? {}).sort(), ["cpu", "memory"], name);
      assert.ok(livenessProbe !== undefined && readinessProbe !== undefined && securityContext !== undefined, name);
      assert.equal(image, `isthmus:${chart.appVersion}`);
    }
  }
  for (const { kind, metadata, spec } of objects)
    if (kind === "DaemonSet") assert.ok(spec?.updateStrategy !== undefined, metadata.name);
});

test("chart: values arrive where they belong", () => {
  const common = {
    ...all,
    image: { repository: "registry.example/isthmus", tag: "1", pullPolicy: "Always" },
    imagePullSecrets: [{ name: "registry" }],
    logLevel: "debug",
    workloads: Object.fromEntries(
      Object.keys(chart.values["workloads"] as object).map((name) => [
        name,
        {
          priorityClassName: "mine",
          nodeSelector: { disk: "ssd" },
          tolerations: [],
          resources: { limits: { cpu: 1 } },
          extraArgs: ["--mine=1"],
        },
      ]),
    ),
  };
  const workloads = workloadsOf(common);
  assert.equal(workloads.size, 10);
  for (const [name, { containers, initContainers = [], ...spec }] of workloads) {
    assert.deepEqual(
      [spec.priorityClassName, spec.imagePullSecrets, spec.tolerations],
      ["mine", [{ name: "registry" }], undefined],
      name,
    );
    assert.equal((spec.nodeSelector as Readonly<Record<string, string>>)["disk"], "ssd", name);
    for (const { image, imagePullPolicy } of [...containers, ...initContainers])
      assert.deepEqual([image, imagePullPolicy], ["registry.example/isthmus:1", "Always"], name);
    for (const { args = [], resources } of containers) {
      assert.equal(args.at(-1), "--mine=1", name);
      assert.ok(
        args.some((arg) => /^--zap-log-level=debug$|^--v=[24]$/.test(arg)),
        name,
      );
      assert.deepEqual(resources, { limits: { cpu: 1 }, requests: resources?.requests }, name);
    }
  }
  const egress = {
    ...all,
    egress: {
      enabled: true,
      tunnelDriver: "vxlan",
      backend: "nftables",
      originatingOnly: true,
      addressRanges: ["192.0.2.0/24"],
    },
  };
  for (const name of ["coild", "coil-egress-controller"])
    for (const arg of ["--tunnel-driver=vxlan", "--backend=nftables"])
      assert.ok(argsOf(egress, name).includes(arg), name);
  assert.ok(argsOf(egress, "coild").includes("--enable-originating-only=true"));
  assert.ok(argsOf(egress, "coil-egress-controller").includes("--egress-address-range=192.0.2.0/24"));
  const scraped = { ...all, metrics: { from: ["10.0.0.0/8", "fd00::/8"] } };
  for (const name of workloadsOf(scraped).keys()) {
    const from = argsOf(scraped, name).filter((arg) => arg.startsWith("--metrics-from"));
    assert.deepEqual(from, name === "uplink-proxy" ? [] : ["--metrics-from=10.0.0.0/8,fd00::/8"], name);
    assert.ok(!argsOf(all, name).some((arg) => arg.startsWith("--metrics-from")), name);
  }
  // The tunnel's programs and uplink-proxy have no account of the API server.
  const asking = { ...all, metrics: { authorization: true } };
  const open = ["proxy-agent", "proxy-server", "uplink-proxy"];
  for (const name of workloadsOf(asking).keys()) {
    assert.equal(argsOf(asking, name).includes("--metrics-authorization"), !open.includes(name), name);
    assert.ok(!argsOf(all, name).includes("--metrics-authorization"), name);
  }
  const reverse = {
    ...all,
    tunnel: { ...(all["tunnel"] as Values), reverse: { bindAddresses: ["10.255.255.1", "fd10::1"], podCIDRs: [] } },
  };
  assert.deepEqual(
    argsOf(reverse, "proxy-agent").filter((arg) => /^--(bind|allowed)/.test(arg)),
    ["--bind-address=10.255.255.1,fd10::1", "--allowed-source=10.255.255.1/32", "--allowed-source=fd10::1/128"],
  );
  const oneWay = { ...all, tunnel: { ...(all["tunnel"] as Values), reverse: { enabled: false } } };
  for (const name of ["proxy-agent", "proxy-server"])
    assert.deepEqual(
      argsOf(oneWay, name).filter((arg) => /target|allowed|bind-address=10|feature/.test(arg)),
      [],
      name,
    );
  assert.deepEqual(workloadsOf(oneWay).get("proxy-agent")?.containers[0]?.securityContext, {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"] },
  });
  const named = { nics: { enabled: true, clusterId: "c", credentialsSecret: "mine" } };
  assert.equal(
    objectsOf(named).some(({ metadata }) => metadata.name === "nic-controller-credentials"),
    false,
  );
  assert.match(JSON.stringify(workloadsOf(named).get("nic-controller")), /"secretName":"mine"/);
  const health = objectsOf({ ...all, serviceProxy: { enabled: true, healthzPort: 10_300 } });
  assert.match(
    health.find(({ metadata, kind }) => kind === "ConfigMap" && metadata.name === "isthmus-service-proxy")?.data?.[
      "config.conf"
    ] ?? "",
    /^healthzBindAddress: "0\.0\.0\.0:10300"$/m,
  );
  const pool = { name: "default", spec: { blockSizeBits: 5, subnets: [{ ipv4: "10.100.0.0/16" }] } };
  const [made] = objectsOf({ pods: { enabled: true, pools: [pool] } }).filter(({ kind }) => kind === "AddressPool");
  assert.deepEqual([made?.metadata.name, made?.spec], ["default", pool.spec]);
});

test("chart: with NICs beside the pod network both installers have one network configuration", () => {
  const environmentOf = (workload: string): unknown =>
    workloadsOf(all)
      .get(workload)
      ?.initContainers?.[0]?.env?.filter(({ name }) => name !== "COIL_PATH");
  assert.deepEqual(environmentOf("coild"), environmentOf("nic-agent"));
  assert.deepEqual(
    objectsOf(all).filter(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === "coil-config"),
    [],
  );
});

/** The network configuration of a ConfigMap. */
function netconfOf(values: Values, name: string): { readonly plugins: readonly Readonly<Record<string, unknown>>[] } {
  const map = objectsOf(values).find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === name);
  return JSON.parse(map?.data?.["cni_netconf"] ?? "");
}

test("chart: with NICs pods without a VPC have the whole network of pods, by default and as pods.netconf gives it", () => {
  const pods = netconfOf({ pods: { enabled: true } }, "coil-config");
  assert.deepEqual(
    pods.plugins.map(({ type }) => type),
    ["coil", "portmap"],
  );
  const [vpc, ...behind] = netconfOf(all, "nic-agent-network").plugins;
  // Ports of the node must not lead to addresses of VPCs.
  assert.deepEqual([vpc?.["type"], vpc?.["delegate"], behind], ["vpc-neutron", pods, []]);
  assert.deepEqual(vpc?.["capabilities"], {
    "io.kubernetes.cri.pod-annotations": true,
    portMappings: true,
    bandwidth: true,
    mac: true,
  });
  const own = { cniVersion: "1.0.0", name: "mine", plugins: [{ type: "coil", mtu: 1400 }, { type: "tuning" }] };
  const text = JSON.stringify(own, undefined, 2);
  const given = { ...all, pods: { enabled: true, netconf: text } };
  assert.deepEqual(netconfOf(given, "nic-agent-network").plugins[0]?.["delegate"], own);
  const withPtp = { ...all, pods: { enabled: true, addresses: false } };
  assert.match(JSON.stringify(netconfOf(withPtp, "nic-agent-network")), /"delegate":.*"ptp".*"portmap".*"coil"/);
  const both = { ...given, nics: { ...(all["nics"] as Values), netconf: text } };
  assert.throws(
    () => renderChart(chart, both),
    /nics\.netconf is the whole network .*pods\.netconf would have no effect/,
  );
});

test("chart: another network configuration replaces the pods that install it, and nothing else does", () => {
  const digests = (values: Values): Readonly<Record<string, string | undefined>> =>
    Object.fromEntries(
      objectsOf(values).flatMap(({ metadata, spec }) =>
        spec?.template?.spec.initContainers === undefined
          ? []
          : [[metadata.name, spec.template.metadata.annotations?.["checksum/cni-netconf"]] as const],
      ),
    );
  const pods = (netconf: string): Values => ({ pods: { enabled: true, netconf } });
  const [one, other] = [digests(pods("{}")), digests(pods('{"a":1}'))];
  assert.match(one["coild"] ?? "", /^[0-9a-f]{64}$/);
  assert.notEqual(one["coild"], other["coild"]);
  assert.deepEqual(digests({ ...pods("{}"), logLevel: "debug" }), one);
  const nics = (netconf: string): Values => ({ ...all, nics: { ...(all["nics"] as Values), netconf } });
  const [before, after] = [digests(nics("{}")), digests(nics('{"a":1}'))];
  assert.deepEqual(Object.keys(before).sort(), ["coild", "nic-agent"]);
  assert.equal(before["coild"], before["nic-agent"]);
  for (const name of ["coild", "nic-agent"]) assert.notEqual(before[name], after[name]);
});

test("chart: a container that writes a folder of the host is privileged, or has the type of SELinux that may", () => {
  let checked = 0;
  const statics: Values = {
    tunnel: {
      agent: { enabled: true, kind: "StaticPod", serverHost: "a" },
      server: { enabled: true, kind: "StaticPod" },
    },
  };
  for (const { metadata, spec } of [...objectsOf(all), ...objectsOf(statics)]) {
    const pod = spec?.template?.spec ?? (spec?.containers === undefined ? undefined : spec);
    const ofHost = new Set(pod?.volumes?.flatMap(({ name, hostPath }) => (hostPath === undefined ? [] : [name])));
    for (const { name, securityContext, volumeMounts } of [
      ...(pod?.containers ?? []),
      ...(pod?.initContainers ?? []),
    ]) {
      if (!volumeMounts?.some((mount) => ofHost.has(mount.name) && mount.readOnly !== true)) continue;
      checked += 1;
      const { privileged, seLinuxOptions } = securityContext ?? {};
      assert.ok(privileged === true || seLinuxOptions?.type === "spc_t", `${metadata.name}: ${name}`);
    }
  }
  assert.equal(checked, 9);
});

test("chart: each program of a node in a DaemonSet has its own folders of the host at their places, where uninstall reads its estate", () => {
  const daemons = workloadsOf(all);
  for (const program of ["coild", "coil-router", "service-proxy", "uplink-proxy", "nic-agent"]) {
    const pod = daemons.get(program);
    const ofHost = new Map(pod?.volumes?.map(({ name, hostPath }) => [name, hostPath?.path]));
    const [container] = pod?.containers ?? [];
    for (const folder of ["/run/isthmus", "/var/lib/isthmus"]) {
      const own = `${folder}/${program}`;
      const mount = container?.volumeMounts?.find(
        ({ mountPath }) => own === mountPath || own.startsWith(`${mountPath}/`),
      );
      assert.ok(mount !== undefined, `${program}: ${own}`);
      assert.equal(ofHost.get(mount.name), mount.mountPath, `${program}: ${own}`);
      assert.notEqual(mount.readOnly, true);
    }
  }
});

test("chart: a controller with ports of its node is replaced where it is, since a further pod may find no node", () => {
  const deployments = objectsOf(all).filter(({ kind }) => kind === "Deployment");
  assert.equal(deployments.length, 3);
  for (const { metadata, spec } of deployments)
    assert.deepEqual(
      spec?.strategy,
      { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } },
      metadata.name,
    );
});

test("chart: a pool with a number for its name has a text there", () => {
  const [pool] = objectsOf({ pods: { enabled: true, pools: [{ name: "123", spec: {} }] } }).filter(
    ({ kind }) => kind === "AddressPool",
  );
  assert.equal(pool?.metadata.name, "123");
});

const REFUSED: readonly (readonly [Values, RegExp])[] = [
  [{ pods: { enabeld: true } }, /^pods\.enabeld: /],
  [{ pods: { enabled: "yes" } }, /^pods\.enabled: /],
  [{ nothing: {} }, /^nothing: /],
  [{ image: { repository: "" } }, /^image\.repository: /],
  [{ image: null }, /^image: /],
  [{ image: { tag: "1 # comment" } }, /^image\.tag: only letters/],
  [
    { tunnel: { agent: { enabled: true, serverHost: "a\n      - --more" } } },
    /^tunnel\.agent\.serverHost: only letters/,
  ],
  [{ nics: { clusterId: "a: b" } }, /^nics\.clusterId: only letters/],
  [
    { apiServer: { host: "a" }, serviceProxy: { enabled: true, config: { clusterCIDR: "10.0.0.0/8" } } },
    /serviceProxy\.config has a field that the chart writes/,
  ],
  [{ apiServer: { port: 70_000 } }, /^apiServer\.port: /],
  [{ pods: { enabled: true, addresses: false } }, /^pods\.yaml:\d+: pods\.addresses is false/],
  [{ pods: { enabled: true, addresses: false, compatCalico: true }, egress: { enabled: true } }, /pods\.compatCalico/],
  [{ egress: { enabled: true } }, /egress\.enabled needs pods\.enabled/],
  [{ serviceProxy: { enabled: true } }, /serviceProxy\.enabled needs apiServer\.host/],
  [{ tunnel: { agent: { enabled: true } } }, /needs tunnel\.agent\.serverHost/],
  [{ uplinkProxy: { enabled: true } }, /needs uplinkProxy\.config/],
  [{ nics: { enabled: true } }, /needs nics\.credentials/],
  [
    {
      pods: { enabled: true },
      nics: { enabled: true, credentialsSecret: "s" },
      workloads: { nicAgent: { nodeSelector: { cloud: "yes" } } },
    },
    /workloads\.nicAgent\.nodeSelector must be that of workloads\.coild/,
  ],
];

test("chart: values that the chart does not know, and sets that cannot work, are refused with their names", () => {
  for (const [values, message] of REFUSED)
    assert.throws(
      () => renderChart(chart, values),
      (error) => error instanceof ChartError && message.test(error.message),
      JSON.stringify(values),
    );
  assert.throws(() => renderChart(chart, {}, { name: "isthmus", namespace: "default" }), /use --namespace kube-system/);
});

test("chart: each part of deploy/all.yaml can be left out, NICs too, and the files of single parts have what is left without them", () => {
  const names = (values: Values): readonly string[] =>
    objectsOf(values).map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  const without: Values = { ...all, nics: { enabled: false } };
  const text = joinDocuments(renderChart(chart, without).values());
  assert.doesNotMatch(text, /nic-agent|nic-controller|vpc-neutron/);
  assert.match(text, /name: coil-config, key: cni_netconf/);
  const single = ["pods-egress", "service-proxy", "tunnel", "uplink-proxy"].flatMap((name) =>
    names(readValues(readFileSync(join(deploy, `variants/${name}.values.yaml`), "utf8"), name)),
  );
  assert.deepEqual(single.toSorted(), names(without).toSorted());
  const off = { enabled: false };
  for (const part of ["egress", "router", "serviceProxy", "tunnel", "uplinkProxy"])
    assert.ok(
      names({ ...all, [part]: part === "tunnel" ? { agent: off, server: off } : off }).length < names(all).length,
      part,
    );
});

test("chart: the schema for Helm refuses unknown values on each level, and has each value of values.yaml with its type", () => {
  interface Schema {
    readonly type?: string;
    readonly additionalProperties?: boolean | object;
    readonly properties?: Readonly<Record<string, Schema>>;
  }
  const typeOf = (value: unknown): string => (Array.isArray(value) ? "array" : typeof value);
  const check = (schema: Schema, value: unknown, path: string): void => {
    assert.ok([typeOf(value), "integer"].includes(schema.type ?? ""), `${path}: ${schema.type}`);
    if (schema.properties === undefined) return;
    assert.equal(schema.additionalProperties, false, path);
    for (const [key, one] of Object.entries(value as object)) {
      const own = schema.properties[key];
      assert.ok(own !== undefined, `${path}.${key}`);
      check(own, one, `${path}.${key}`);
    }
  };
  check(jsonSchema() as Schema, chart.values, "values");
});

test("chart: each variant has a file, and each of these files a variant", () => {
  const variants = readdirSync(join(deploy, "variants")).map((file) => file.replace(".values.yaml", ".yaml"));
  assert.deepEqual(
    readdirSync(deploy).filter((file) => file.endsWith(".yaml")),
    variants.sort(),
  );
});

test("who may view a namespace may view the objects of Coil in it: each type of a set has a role that view, edit and admin take in", () => {
  const viewed = (values: Values): readonly string[] =>
    (objectsOf(values) as readonly (Rendered & Partial<Role>)[]).flatMap(({ kind, metadata, rules = [] }) => {
      if (kind !== "ClusterRole" || !metadata.name.endsWith("-viewer-role")) return [];
      for (const role of ["view", "edit", "admin"])
        assert.equal(metadata.labels?.[`rbac.authorization.k8s.io/aggregate-to-${role}`], "true", metadata.name);
      return rules.map(({ resources, verbs }) => `${metadata.name} ${resources} ${verbs}`);
    });
  const reads = ["get", "list", "watch"];
  const ofAddresses = [
    `coilv2-addresspool-viewer-role addresspools ${reads}`,
    `coilv2-addressblock-viewer-role addressblocks ${reads}`,
    `coilv2-blockrequest-viewer-role blockrequests ${reads}`,
    "coilv2-blockrequest-viewer-role blockrequests/status get",
  ];
  const ofEgresses = [`coilv2-egress-viewer-role egresses ${reads}`, "coilv2-egress-viewer-role egresses/status get"];
  const egress = { enabled: true };
  assert.deepEqual(viewed({ pods: { enabled: true } }), ofAddresses);
  assert.deepEqual(viewed({ pods: { enabled: true }, egress }).toSorted(), [...ofAddresses, ...ofEgresses].toSorted());
  assert.deepEqual(viewed({ pods: { enabled: true, addresses: false }, egress }), ofEgresses);
  assert.deepEqual(
    viewed({ serviceProxy: { enabled: true, clusterCIDR: "10.0.0.0/8" }, apiServer: { host: "a" } }),
    [],
  );
});

interface Role {
  readonly rules: readonly { readonly resources: readonly string[]; readonly verbs: readonly string[] }[];
}

test("the account of coild: its name and namespace are those of the values, for the account, its binding, its DaemonSet and the policy that limits it to a node", () => {
  const of = (pods: object): readonly Record<string, unknown>[] => {
    const text = joinDocuments(renderChart(chart, { pods: { enabled: true, ...pods } } as unknown as Values).values());
    return parseAllDocuments(text).map((one) => one.toJS() as Record<string, unknown>);
  };
  const other = of({ serviceAccount: { name: "node-net", namespace: "networks" } });
  const named = (kind: string, name: string): Record<string, unknown> =>
    other.find((one) => one["kind"] === kind && (one["metadata"] as { name: string }).name === name) ??
    assert.fail(name);
  const account = { name: "node-net", namespace: "networks" };
  assert.equal((named("ServiceAccount", "node-net")["metadata"] as typeof account).namespace, "networks");
  assert.deepEqual(named("ClusterRoleBinding", "coild")["subjects"], [{ kind: "ServiceAccount", ...account }]);
  const daemons = named("DaemonSet", "coild") as unknown as {
    readonly metadata: typeof account;
    readonly spec: { readonly template: { readonly spec: { readonly serviceAccountName: string } } };
  };
  assert.deepEqual(
    [daemons.metadata.namespace, daemons.spec.template.spec.serviceAccountName],
    ["networks", "node-net"],
  );
  assert.equal((named("ConfigMap", "coil-config")["metadata"] as typeof account).namespace, "networks");
  for (const policy of ["coild-blocks", "coild-events"]) {
    const { matchConditions } = named("ValidatingAdmissionPolicy", policy)["spec"] as {
      readonly matchConditions: readonly { readonly expression: string }[];
    };
    assert.deepEqual(
      matchConditions.map(({ expression }) => expression),
      ["request.userInfo.username == 'system:serviceaccount:networks:node-net'"],
    );
  }
  const isPolicy = (one: Record<string, unknown>): boolean =>
    String(one["kind"]).startsWith("ValidatingAdmissionPolicy");
  assert.equal(other.filter(isPolicy).length, 4);
  assert.equal(of({ restrictNodes: false }).filter(isPolicy).length, 0);
});

test("the policy of Egress templates: classes and taints of the values are the only ones, and the number of replicas is theirs", () => {
  const templates = { maxReplicas: 3, priorityClasses: ["gateway", "system-x"], tolerationKeys: ["gateway", "edge"] };
  const values = { pods: { enabled: true }, egress: { enabled: true, restrictTemplates: true, templates } };
  const policy = renderChart(chart, values as unknown as Values).get("egress-policy.yaml") ?? assert.fail();
  const [document] = parseAllDocuments(policy);
  const { spec } = (document ?? assert.fail()).toJS() as {
    spec: { validations: readonly { expression: string; message?: string }[] };
  };
  const [replicas, classes, , taints, ...more] = spec.validations.slice(3);
  assert.match(replicas?.expression ?? "", /variables\.replicas <= 3 \|\|/);
  assert.match(classes?.expression ?? "", /priorityClassName in \['gateway', 'system-x'\]$/);
  assert.match(taints?.expression ?? "", /one\.key in \['gateway', 'edge'\]\)$/);
  assert.deepEqual(more, []);
});

test("webhooks.clientCA: every program with webhooks asks for it and has it mounted, and the names count", () => {
  const callers = {
    clientCA: "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
    clientNames: ["front", "b"],
  };
  const objects = objectsOf({ ...all, webhooks: callers });
  const map = objects.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === "isthmus-webhook-callers");
  assert.equal(map?.data?.["ca.crt"], callers.clientCA);
  const served = [...workloadsOf({ ...all, webhooks: callers }).values()].filter(({ containers }) =>
    containers.some(({ args }) => args?.includes("--enable-cert-rotation=true")),
  );
  assert.equal(served.length, 3);
  for (const { containers, volumes } of served) {
    const flags = containers[0]?.args?.filter((one) => one.startsWith("--webhook-client"));
    assert.deepEqual(flags, [
      "--webhook-client-ca=/callers/ca.crt",
      "--webhook-client-name=front",
      "--webhook-client-name=b",
    ]);
    assert.ok(containers[0]?.volumeMounts?.some(({ name }) => name === "callers"));
    assert.ok(volumes?.some(({ name }) => name === "callers"));
  }
});
