import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr } from "#base/ip";
import { type EgressSpec, egressPoolName, podSpecFaults, type SpecifiedEgress } from "#kube/coil";
import { childrenOf, subjectsOf } from "./children.ts";
import type { RouterSettings } from "./router-pod.ts";

const ROUTER: RouterSettings = {
  image: "own:1",
  backend: "iptables",
  tunnelDriver: "fou",
  port: 5555,
  inCluster: [],
  metricsFrom: [],
};
const LABELS = {
  "app.kubernetes.io/component": "egress",
  "app.kubernetes.io/instance": "nat",
  "app.kubernetes.io/name": "coil",
};

function children(spec: Partial<EgressSpec> = {}, router: Partial<RouterSettings> = {}) {
  const metadata = { name: "nat", namespace: "internet", uid: "u1", resourceVersion: "1" };
  const egress = { metadata, spec: { destinations: ["0.0.0.0/0"], ...spec } } as SpecifiedEgress;
  const { deployment, service, budget } = childrenOf(egress, { ...ROUTER, ...router });
  const pod = deployment.spec?.template.spec ?? assert.fail();
  const container = pod.containers.find(({ name }) => name === "egress") ?? assert.fail();
  return { deployment, service, budget, pod, container };
}

const withPod = (spec: object, metadata?: object): Partial<EgressSpec> =>
  ({ template: { spec, ...(metadata === undefined ? {} : { metadata }) } }) as Partial<EgressSpec>;

test("childrenOf: the objects of an Egress that says nothing but its destinations", () => {
  const { deployment, service, budget, pod, container } = children();
  const owner = {
    apiVersion: "coil.cybozu.com/v2",
    kind: "Egress",
    name: "nat",
    uid: "u1",
    controller: true,
    blockOwnerDeletion: true,
  };
  const common = { name: "nat", namespace: "internet", labels: LABELS, ownerReferences: [owner] };
  assert.deepEqual(deployment.metadata, common);
  const annotations = { "isthmus.dev/unready-udp-flow-seconds": "60" };
  assert.deepEqual(service.metadata, { ...common, annotations });
  const { replicas, selector, strategy, template } = deployment.spec ?? assert.fail();
  assert.deepEqual(
    [replicas, selector, strategy, template.metadata],
    [1, { matchLabels: LABELS }, undefined, { labels: LABELS }],
  );
  assert.deepEqual(pod, {
    serviceAccountName: "coil-egress",
    volumes: [
      { name: "run", emptyDir: {} },
      { name: "modules", hostPath: { path: "/lib/modules" } },
    ],
    containers: [container],
  });
  assert.deepEqual(container, {
    name: "egress",
    image: "own:1",
    command: ["coil-egress"],
    args: ["--zap-stacktrace-level=panic", "--backend=iptables"],
    env: [
      { name: "COIL_POD_ADDRESSES", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "status.podIPs" } } },
      { name: "COIL_POD_NAMESPACE", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.namespace" } } },
      { name: "COIL_EGRESS_NAME", value: "nat" },
    ],
    volumeMounts: [
      { name: "run", mountPath: "/run" },
      { name: "modules", mountPath: "/lib/modules", readOnly: true },
    ],
    securityContext: { privileged: true, readOnlyRootFilesystem: true, capabilities: { add: ["NET_ADMIN"] } },
    resources: { requests: { cpu: "100m", memory: "200Mi" } },
    ports: [
      { name: "metrics", containerPort: 8080, protocol: "TCP" },
      { name: "health", containerPort: 8081, protocol: "TCP" },
    ],
    livenessProbe: { httpGet: { path: "/healthz", port: "health", scheme: "HTTP" } },
    readinessProbe: { httpGet: { path: "/readyz", port: "health", scheme: "HTTP" } },
  });
  assert.deepEqual(service.spec, {
    type: "ClusterIP",
    selector: LABELS,
    ports: [{ port: 5555, targetPort: 5555, protocol: "UDP" }],
    sessionAffinity: "ClientIP",
    ipFamilyPolicy: "PreferDualStack",
  });
  assert.equal(budget, undefined);
});

test("childrenOf: arguments follow the Egress and the controller's flags; those of the template stand", () => {
  const { container } = children(
    { fouSourcePortAuto: true },
    {
      backend: "nftables",
      tunnelDriver: "auto",
      port: 5556,
      inCluster: [Cidr.parse("100.64.0.0/10")],
      metricsFrom: [Cidr.parse("10.0.0.0/8"), Cidr.parse("fd00::/8")],
      metricsAuthorization: true,
    },
  );
  assert.deepEqual(container.args, [
    "--zap-stacktrace-level=panic",
    "--enable-sport-auto=true",
    "--backend=nftables",
    "--tunnel-driver=auto",
    "--fou-port=5556",
    "--in-cluster-cidr=100.64.0.0/10",
    "--metrics-from=10.0.0.0/8,fd00::/8",
    "--metrics-authorization",
  ]);
  const given = { name: "egress", image: "mine:2", command: ["/bin/mine"], args: ["-x"] };
  const { image, command, args } = children({ fouSourcePortAuto: true, ...withPod({ containers: [given] }) }).container;
  assert.deepEqual([image, command, args], ["mine:2", ["/bin/mine"], ["-x"]]);
});

test("childrenOf: how the controller's image is pulled is taken over where the template has no image, and no word on it", () => {
  const pulled = { pullPolicy: "Always", pullSecrets: ["registry", "mirror"] } as const;
  const seen = (spec: Partial<EgressSpec>, router: Partial<RouterSettings> = pulled) => {
    const { pod, container } = children(spec, router);
    return [container.imagePullPolicy, pod.imagePullSecrets?.map(({ name }) => name)];
  };
  assert.deepEqual(seen({}), ["Always", ["registry", "mirror"]]);
  assert.deepEqual(seen({}, {}), [undefined, undefined]);
  assert.deepEqual(seen({}, { pullSecrets: [] }), [undefined, undefined]);
  assert.equal("imagePullSecrets" in children({}, { pullSecrets: [] }).pod, false);
  const own = { imagePullSecrets: [{ name: "own" }], containers: [{ name: "egress", imagePullPolicy: "Never" }] };
  assert.deepEqual(seen(withPod(own)), ["Never", ["own"]]);
  assert.deepEqual(seen(withPod({ imagePullSecrets: [], containers: [] })), ["Always", []]);
  assert.deepEqual(seen(withPod({ containers: [{ name: "egress", image: "mine:2" }] })), [undefined, undefined]);
});

test("childrenOf: the template's containers, volumes, variables and mounts stay beside ours, which win; their order stays", () => {
  const sidecar = { name: "sidecar", image: "example/sidecar" };
  const egress = {
    name: "egress",
    env: [
      { name: "A", value: "1" },
      { name: "COIL_EGRESS_NAME", value: "other" },
    ],
    volumeMounts: [
      { name: "data", mountPath: "/data" },
      { name: "data", mountPath: "/run" },
    ],
    securityContext: { runAsUser: 5 },
    resources: { limits: { cpu: "1" } },
  };
  const volumes = [
    { name: "run", hostPath: { path: "/tmp/run" } },
    { name: "modules", emptyDir: {} },
    { name: "data", emptyDir: {} },
  ];
  const { pod, container } = children(
    withPod({ containers: [sidecar, egress], volumes, nodeSelector: { zone: "a" }, serviceAccountName: "mine" }),
  );
  assert.deepEqual(
    pod.containers.map(({ name }) => name),
    ["sidecar", "egress"],
  );
  assert.deepEqual(pod.containers[0], sidecar);
  assert.deepEqual(pod.volumes, [volumes[0], volumes[2], { name: "modules", hostPath: { path: "/lib/modules" } }]);
  assert.deepEqual([pod.nodeSelector, pod.serviceAccountName], [{ zone: "a" }, "coil-egress"]);
  assert.deepEqual(
    container.env?.map(({ name, value }) => [name, value]),
    [
      ["A", "1"],
      ["COIL_POD_ADDRESSES", undefined],
      ["COIL_POD_NAMESPACE", undefined],
      ["COIL_EGRESS_NAME", "nat"],
    ],
  );
  assert.deepEqual(
    container.volumeMounts?.map(({ name, mountPath }) => `${name}:${mountPath}`),
    ["data:/data", "run:/run", "modules:/lib/modules"],
  );
  assert.equal(container.securityContext?.runAsUser, undefined);
  assert.deepEqual(container.resources, { limits: { cpu: "1" }, requests: { cpu: "100m", memory: "200Mi" } });
});

test("childrenOf: of variables with one name the last is kept in each container, since no list with two of a key can be applied", () => {
  const env = [
    { name: "A", value: "1" },
    { name: "B", value: "2" },
    { name: "A", value: "3" },
  ];
  const { pod, container } = children(
    withPod({
      containers: [
        { name: "egress", env },
        { name: "sidecar", env },
      ],
      initContainers: [{ name: "first", env }],
    }),
  );
  const kept = env.slice(1);
  assert.deepEqual(container.env?.slice(0, 2), kept);
  assert.deepEqual(pod.containers[1]?.env, kept);
  assert.deepEqual(pod.initContainers?.[0]?.env, kept);
});

for (const env of [
  [
    { name: "PATH", value: "/usr/bin" },
    { name: "PATH", value: "/opt/bin:$(PATH)" },
  ],
  [
    { name: "A", value: "1" },
    { name: "B", value: "$(A)" },
    { name: "A", value: "2" },
  ],
]) {
  test(`childrenOf: a variable to which a later one refers before the next of its name stays: ${env.map(({ name }) => name).join()}`, () => {
    const { pod } = children(withPod({ containers: [{ name: "egress" }, { name: "sidecar", env }] }));
    assert.deepEqual(pod.containers[1]?.env, env);
  });
}

test("childrenOf: a request is not put above its limit, and one that is given stands", () => {
  const resources = (given: object) =>
    children(withPod({ containers: [{ name: "egress", resources: given }] })).container.resources;
  assert.deepEqual(resources({ limits: { cpu: "50m", memory: "1Gi" } })?.requests, { memory: "200Mi" });
  assert.deepEqual(resources({ limits: { cpu: 0.05, memory: "1e6" } })?.requests, {});
  assert.deepEqual(resources({ requests: { cpu: "2" } })?.requests, { cpu: "2", memory: "200Mi" });
  assert.deepEqual(resources({ limits: { cpu: "0.1", memory: "209715200" } })?.requests, {
    cpu: "100m",
    memory: "200Mi",
  });
});

test("childrenOf: labels of the template lose against the selector's, and annotations are passed on", () => {
  const { deployment } = children(
    withPod({}, { labels: { team: "red", "app.kubernetes.io/instance": "other" }, annotations: { a: "b" } }),
  );
  assert.deepEqual(deployment.spec?.template.metadata, { labels: { team: "red", ...LABELS }, annotations: { a: "b" } });
});

test("childrenOf: strategy, affinity and disruption budget are those of the Egress", () => {
  const { deployment, service, budget } = children({
    replicas: 3,
    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: "50%" } },
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    podDisruptionBudget: { maxUnavailable: "50%" },
  });
  assert.equal(deployment.spec?.replicas, 3);
  assert.deepEqual(deployment.spec?.strategy, {
    type: "RollingUpdate",
    rollingUpdate: { maxSurge: 0, maxUnavailable: "50%" },
  });
  assert.deepEqual(service.spec?.sessionAffinityConfig, { clientIP: { timeoutSeconds: 60 } });
  assert.deepEqual(budget?.spec, { selector: { matchLabels: LABELS }, maxUnavailable: "50%" });
  const none = children({
    sessionAffinity: "None",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
  }).service;
  assert.deepEqual([none.spec?.sessionAffinity, none.spec?.sessionAffinityConfig], ["None", undefined]);
  assert.equal(children({ strategy: { type: "" } }).deployment.spec?.strategy, undefined);
});

test("subjectsOf: one account for each namespace, sorted", () => {
  assert.deepEqual(
    subjectsOf(["b", "a", "b"]).map(({ kind, name, namespace }) => `${kind} ${namespace}/${name}`),
    ["ServiceAccount a/coil-egress", "ServiceAccount b/coil-egress"],
  );
});

test("childrenOf: of any template without faults objects are made, and each has one router with our variables", () => {
  const text = fc.oneof(fc.constantFrom("egress", "run", "modules", "COIL_EGRESS_NAME", "x"), fc.string());
  const noise = fc.oneof(fc.anything(), fc.constant(null), fc.constant(undefined));
  const named = fc.oneof(
    { weight: 4, arbitrary: fc.record({ name: text, value: text, mountPath: text }) },
    { weight: 1, arbitrary: noise },
  );
  const list = fc.oneof({ weight: 4, arbitrary: fc.array(named, { maxLength: 4 }) }, { weight: 1, arbitrary: noise });
  const amounts = fc.oneof(fc.dictionary(fc.constantFrom("cpu", "memory"), noise), noise);
  const resources = fc.oneof(fc.record({ limits: amounts, requests: amounts }), noise);
  const container = fc.record({ name: fc.constantFrom("egress", "x"), env: list, volumeMounts: list, resources });
  const containers = fc.oneof(
    { weight: 4, arbitrary: fc.array(container, { maxLength: 3 }) },
    { weight: 1, arbitrary: list },
  );
  const spec = fc.oneof(
    { weight: 9, arbitrary: fc.record({ containers, volumes: list }) },
    { weight: 1, arbitrary: noise },
  );
  let made = 0;
  fc.assert(
    fc.property(spec, (given) => {
      if (podSpecFaults(given).length > 0) return;
      made += 1;
      const { container: router } = children({ template: { spec: given } } as unknown as Partial<EgressSpec>);
      assert.equal(router.env?.filter(({ name }) => name === "COIL_EGRESS_NAME").length, 1);
    }),
    { numRuns: 2000 },
  );
  assert.ok(made > 100, `${made}`);
});

test("childrenOf: an Egress with addresses starts no router before one has ended, unless it says how; its routers are made anew when it gets or loses them", () => {
  const addresses = [{ ipv4: "203.0.113.8/32" }];
  const oneByOne = { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } };
  const of = (spec: Partial<EgressSpec>) => children(spec).deployment.spec;
  assert.deepEqual(of({ addresses })?.strategy, oneByOne);
  assert.deepEqual(of({ addresses, strategy: { type: "Recreate" } })?.strategy, { type: "Recreate" });
  const annotations = { "coil.cybozu.com/pool": egressPoolName({ namespace: "internet", name: "nat" }) };
  assert.deepEqual(of({ addresses })?.template.metadata?.annotations, annotations);
  const more = of({ addresses: [...addresses, { ipv4: "203.0.113.9/32" }] });
  assert.deepEqual(more?.template.metadata?.annotations, annotations);
  assert.equal(of({})?.template.metadata?.annotations, undefined);
});
