import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { parseYamlStream, YamlError } from "#base/yaml";
import { startApiServer } from "#lab/api-server";
import { type ConvertOptions, convertManifests } from "./convert.ts";

const DEFAULTS: ConvertOptions = { to: "kubernetes", output: "yaml", vmRuntime: { kind: "none" } };
const CONTAINERS = `  containers:
  - name: nginx
    image: nginx
    ports:
      - containerPort: 443
`;
const podOf = (spec: string): string => `apiVersion: v1
kind: Pod
metadata:
  name: nginx
spec:
${spec}`;
/** The pods of "NIC and VPC Support in Arktos". */
const PODS = {
  pod1: podOf(`${CONTAINERS}  vpc: vpc-1a2b3c4d\n`),
  pod2: podOf(`${CONTAINERS}  vpc: vpc-1a2b3c4d\n  nics:\n    - subnet: subnet-1\n`),
  pod3: podOf(`${CONTAINERS}  vpc: vpc-1a2b3c4d\n  nics:\n    - subnet: subnet-1\n      ip: 192.168.0.12\n`),
  pod4: podOf(`  VirtualMachine:
    name: nginx
    image: www.foo.com/vmimages/nginx
    flavor: m1.large
    ports:
      - VMPort: 443
  vpc: vpc-1a2b3c4d
  nics:
    - portID: a2815656-76f7-46d4-9d11-057063db1a14
`),
  pod5: podOf(`  VMs:
  - name: nginx
    image: www.foo.com/vmimages/nginx
    flavor: m1.large
    ports:
      - VMPort: 443
  vpc: vpc-1a2b3c4d
  nics:
      - subnet: subnet-1
        ip: 192.168.0.12
        securityGroup: aa5db150-a63d-4bd1-8d70-2dff67c6a5d9
      - portID: a2815656-76f7-46d4-9d11-057063db1a14
`),
};

const CONTAINER = { name: "nginx", image: "nginx", ports: [{ containerPort: 443 }] };
const VM_CONTAINER = { name: "nginx", image: "www.foo.com/vmimages/nginx", ports: [{ containerPort: 443 }] };
const VM = '{"name":"nginx","flavor":"m1.large","image":"www.foo.com/vmimages/nginx","ports":[443]}';
const golden = (nics: string | undefined, vm = false): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name: "nginx",
    annotations: {
      "isthmus.dev/vpc": "vpc-1a2b3c4d",
      ...(nics === undefined ? {} : { "isthmus.dev/nics": nics }),
      ...(vm ? { "isthmus.dev/vm": VM } : {}),
    },
  },
  spec: { containers: [vm ? VM_CONTAINER : CONTAINER] },
});
const PORT = '{"portID":"a2815656-76f7-46d4-9d11-057063db1a14"}';
const GOLDENS: Readonly<Record<keyof typeof PODS, object>> = {
  pod1: golden(undefined),
  pod2: golden('[{"subnet":"subnet-1"}]'),
  pod3: golden('[{"subnet":"subnet-1","ip":"192.168.0.12"}]'),
  pod4: golden(`[${PORT}]`, true),
  pod5: golden(
    `[{"subnet":"subnet-1","ip":"192.168.0.12","securityGroup":"aa5db150-a63d-4bd1-8d70-2dff67c6a5d9"},${PORT}]`,
    true,
  ),
};
const NAMES = Object.keys(PODS) as readonly (keyof typeof PODS)[];

function converted(text: string, options: Partial<ConvertOptions> = {}): string {
  const result = convertManifests(text, { ...DEFAULTS, ...options });
  assert.ok(result.ok, JSON.stringify(result));
  return result.text;
}

function faultsOf(text: string, options: Partial<ConvertOptions> = {}): readonly string[] {
  const result = convertManifests(text, { ...DEFAULTS, ...options });
  if (result.ok) return [];
  return result.faults.map((one) => `${one.document}:${one.line} ${one.object} ${one.field}: ${one.message}`);
}

/** The values of a stream. */
function valuesOf(text: string): readonly unknown[] {
  return parseYamlStream(text).map((one) => {
    if (one instanceof YamlError) throw one;
    return one.value;
  });
}

test("T-5: pod1 to pod5 become what the specification says, in YAML and in JSON", () => {
  for (const name of NAMES) {
    assert.deepEqual(valuesOf(converted(PODS[name])), [GOLDENS[name]], name);
    assert.deepEqual(JSON.parse(converted(PODS[name], { output: "json" })), GOLDENS[name], name);
  }
});

test("T-5: what was converted is not changed again, and the way back restores the meaning", () => {
  for (const name of NAMES) {
    for (const vmRuntime of [{ kind: "none" }, { kind: "virtlet" }] as const) {
      const once = converted(PODS[name], { vmRuntime });
      assert.equal(converted(once, { vmRuntime }), once, name);
      const back = converted(once, { to: "arktos" });
      const [original] = valuesOf(PODS[name].replace("VMs:\n  - name", "VirtualMachine:\n    name"));
      assert.deepEqual(valuesOf(back), [original], name);
      assert.equal(converted(back, { to: "arktos" }), back, name);
      assert.deepEqual(valuesOf(converted(back, { vmRuntime })), valuesOf(once), name);
    }
  }
});

test("T-5: workloads and lists, with comments and the documents between them as they are", () => {
  const job =
    "metadata: {tenant: blue}\n      spec:\n        VPC: v # the cloud's\n        NICs: [{subnetName: s, ipAddress: 10.0.0.1}]\n";
  const text = `# head
apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
  tenant: blue
spec:
  template:
    metadata: {}
    spec: {vpc: v, vnics: [{Name: eth0}]} # one
---
# kept   as it is
{kind: ConfigMap, apiVersion: v1,   metadata: {name: x}}
---
apiVersion: batch/v1
kind: CronJob
spec:
  jobTemplate:
    spec:
      template:
        ${job.replaceAll("\n", "\n  ").trimEnd()}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, spec: {vpc: mine}}
- {apiVersion: v1, kind: Pod, spec: {vpc: v}}
--- # last
apiVersion: example.com/v1
kind: Deployment
spec: {template: {spec: {vpc: theirs}}}
`;
  const out = converted(text);
  const annotations = { "isthmus.dev/vpc": "v", "isthmus.dev/nics": '[{"name":"eth0"}]' };
  const [deployment, , cron, list] = valuesOf(out);
  assert.deepEqual(deployment, {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "d", labels: { "isthmus.dev/tenant": "blue" } },
    spec: { template: { metadata: { annotations }, spec: {} } },
  });
  assert.deepEqual(cron, {
    apiVersion: "batch/v1",
    kind: "CronJob",
    spec: {
      jobTemplate: {
        spec: {
          template: {
            metadata: {
              labels: { "isthmus.dev/tenant": "blue" },
              annotations: { "isthmus.dev/vpc": "v", "isthmus.dev/nics": '[{"subnet":"s","ip":"10.0.0.1"}]' },
            },
            spec: {},
          },
        },
      },
    },
  });
  assert.deepEqual(list, {
    apiVersion: "v1",
    kind: "List",
    items: [
      { apiVersion: "v1", kind: "Service", spec: { vpc: "mine" } },
      { apiVersion: "v1", kind: "Pod", metadata: { annotations: { "isthmus.dev/vpc": "v" } }, spec: {} },
    ],
  });
  assert.match(out, /^# head\n/);
  assert.ok(out.includes("---\n# kept   as it is\n{kind: ConfigMap, apiVersion: v1,   metadata: {name: x}}\n---\n"));
  assert.ok(out.endsWith(text.slice(text.indexOf("--- # last"))));
  const back = valuesOf(converted(out, { to: "arktos" }));
  assert.deepEqual((back[0] as { metadata: object }).metadata, { name: "d", tenant: "blue" });
});

test("T-5: text without fields of Arktos passes through byte for byte, whatever it is", () => {
  for (const text of [
    "",
    "# nothing\n",
    "a:   1\r\n---\r\n\r\n...\nb: [ 2 ]",
    podOf(CONTAINERS),
    '{"kind":"Pod",  "apiVersion":"v1"}',
    "%YAML 1.2\n---\n- &x a\n- *x\n",
  ]) {
    assert.equal(converted(text), text);
    assert.equal(converted(text, { to: "arktos" }), text);
  }
  const json = '{"kind":"ConfigMap",  "apiVersion":"v1"}\n';
  assert.equal(converted(json, { output: "json" }), json);
  assert.equal(converted("# nothing\n---\na: 1\n", { output: "json" }), '{\n  "a": 1\n}\n');
});

test("T-5: tabs as indentation and list items that are indented by four are read", () => {
  const tabs = PODS.pod3.replaceAll(/^ +/gm, (spaces) => "\t".repeat(spaces.length / 2));
  assert.deepEqual(valuesOf(converted(tabs)), [GOLDENS.pod3]);
});

test("T-5: every fault has its document, line and object, and no text is returned with one", () => {
  const text = `${PODS.pod1}---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: n, tenant: "not a label"}
spec:
  template:
    spec:
      VPC: a/b
      vnics:
      - ipAddress: 10.0.0.300
        subnet: s
      - name: lo
        port: x
---
kind: Pod
apiVersion: v1
metadata: {generateName: vm-}
spec:
  containers: [{name: a, image: b}]
  VMs:
  - {name: a, image: 5, ports: [{VMPort: 70000}, {VMPort: 1, x: 2}]}
  - {name: b, image: c}
---
a: [1
`;
  const at = text.slice(0, text.indexOf("apps/v1")).split("\n").length;
  assert.deepEqual(faultsOf(text), [
    `2:${at + 2} Deployment/n/d metadata.tenant: Invalid value: "not a label": must be the value of a label: at most 63 letters, digits, dashes, dots and underscores`,
    `2:${at + 11} Deployment/n/d spec.template.spec.nics[1].port: Unknown field`,
    `2:${at + 6} Deployment/n/d spec.template.spec.vpc: Invalid value: "a/b": must be a VPC name or id`,
    `2:${at + 8} Deployment/n/d spec.template.spec.nics[0].ip: Invalid value: "10.0.0.300": must be a unicast IP address`,
    `2:${at + 10} Deployment/n/d spec.template.spec.nics[1].name: Invalid value: "lo": must be a valid interface name of at most 15 bytes`,
    `3:${at + 19} Pod/vm-* spec.VMs: Too many: 2: one VM per pod`,
    `4:${at + 23}  : Flow sequence in block collection must be sufficiently indented and end with a ]`,
  ]);
});

test("T-5: a virtual machine has its rules", () => {
  const vm = (spec: string) => faultsOf(podOf(`  ${spec}\n`)).map((line) => line.replace(/^\S+ \S+ /, ""));
  const rows: readonly (readonly [string, readonly string[]])[] = [
    ["{VMs: [{name: a, image: b}, {name: c, image: d}]}", ["spec.VMs: Too many: 2: one VM per pod"]],
    ["{VMs: []}", []],
    ["{VMs: {}}", ['spec.VMs: Invalid value: "an object": must be a list of one virtual machine']],
    ["{virtualMachine: 5}", ["spec.virtualMachine: Invalid value: 5: must be an object"]],
    [
      "{VirtualMachine: {name: a, image: b}, containers: [{name: c}]}",
      ["spec.containers: Forbidden: a pod has either containers or a virtual machine"],
    ],
    [
      "{VirtualMachine: {image: 5}}",
      [
        "spec.VirtualMachine.name: Required value: a virtual machine has a name and an image",
        "spec.VirtualMachine.image: Invalid value: 5: must be a text",
      ],
    ],
    [
      "{VirtualMachine: {name: a, image: b, ports: [{vmPort: 70000}, {VMPort: 1, x: 2}]}}",
      [
        "spec.VirtualMachine.ports[0].VMPort: Invalid value: 70000: must be a port from 1 to 65535",
        "spec.VirtualMachine.ports[1].x: Unknown field",
      ],
    ],
    [
      "{VirtualMachine: {name: a, image: b, flavor: 5}}",
      ["spec.VirtualMachine: Invalid value: 5: must be the name of a flavor"],
    ],
    ["{VirtualMachine: {name: a, image: b}, VMs: []}", ['spec.VirtualMachine: Duplicate value: "VMs"']],
  ];
  for (const [spec, wanted] of rows) assert.deepEqual(vm(spec), wanted, spec);
  assert.deepEqual(faultsOf("{apiVersion: v1, kind: Pod, metadata: {annotations: []}, spec: {vpc: v}}"), [
    '1:1 Pod metadata.annotations: Invalid value: "a list": must be an object',
  ]);
  assert.deepEqual(faultsOf(GOLDEN_WITH_OTHER), [
    '1:5 Pod/x metadata.annotations[isthmus.dev/vpc]: Invalid value: "w": differs from the pod\'s spec',
  ]);
});

test("T-5: a pod that has one half as annotations already keeps them, and both halves must agree", () => {
  const pod = (annotations: string, spec: string) =>
    `{apiVersion: v1, kind: Pod, metadata: {annotations: {${annotations}}}, spec: {${spec}}}\n`;
  const annotationsOf = (text: string) =>
    (valuesOf(converted(text))[0] as { metadata: { annotations: unknown } }).metadata.annotations;
  assert.deepEqual(annotationsOf(pod("VPC: v", "nics: [{subnet: s}]")), {
    VPC: "v",
    "isthmus.dev/nics": '[{"subnet":"s"}]',
  });
  assert.deepEqual(annotationsOf(pod("isthmus.dev/nics: '[{}]'", "vpc: v, nics: [{name: eth0}]")), {
    "isthmus.dev/nics": "[{}]",
    "isthmus.dev/vpc": "v",
  });
  assert.deepEqual(faultsOf(pod("NICs: '[{}]', VPC: v", "nics: [{subnet: s}]")), [
    '1:1 Pod metadata.annotations[NICs]: Invalid value: "[{}]": differs from the pod\'s spec',
  ]);
  assert.deepEqual(faultsOf(pod("", "nics: [{subnet: s}]")), ["1:1 Pod spec.vpc: Required value: NICs need a VPC"]);
});
const GOLDEN_WITH_OTHER = `apiVersion: v1
kind: Pod
metadata:
  name: x
  annotations: {isthmus.dev/vpc: w}
spec: {vpc: v}
`;

test("T-5: resources, ports and runtimes of a virtual machine", () => {
  const text = podOf(`  virtualMachine:
    name: vm
    image: https://images.example/vm.qcow2
    keyPairName: mine
    resources: {requests: {cpu: 1}}
    ports: [{name: https, VMPort: 443, protocol: TCP}, {vmPort: 80}]
  vpc: v
`);
  type Pod = {
    metadata: { annotations: Record<string, string> };
    spec: { runtimeClassName?: string; containers: [{ image: string; ports: unknown; resources: unknown }] };
  };
  const pod = (vmRuntime: ConvertOptions["vmRuntime"]) => valuesOf(converted(text, { vmRuntime }))[0] as Pod;
  const plain = pod({ kind: "none" });
  assert.deepEqual(plain.spec.containers, [
    {
      name: "vm",
      image: "https://images.example/vm.qcow2",
      ports: [{ containerPort: 443, name: "https", protocol: "TCP" }, { containerPort: 80 }],
      resources: { requests: { cpu: 1 } },
    },
  ]);
  assert.equal(
    plain.metadata.annotations["isthmus.dev/vm"],
    '{"name":"vm","image":"https://images.example/vm.qcow2","ports":[{"VMPort":443,"name":"https","protocol":"TCP"},80],"resources":{"requests":{"cpu":1}},"keyPairName":"mine"}',
  );
  const virtlet = pod({ kind: "virtlet" });
  assert.equal(virtlet.metadata.annotations["kubernetes.io/target-runtime"], "virtlet.cloud");
  assert.equal(virtlet.spec.containers[0].image, "virtlet.cloud/images.example/vm.qcow2");
  assert.equal(pod({ kind: "class", name: "kata" }).spec.runtimeClassName, "kata");
});

test("convert: any text is converted or has faults, both ways (fuzz)", () => {
  const key = fc.constantFrom(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "template",
    "vpc",
    "nics",
    "VMs",
    "VirtualMachine",
    "annotations",
    "labels",
    "tenant",
    "items",
    "name",
    "image",
    "ports",
    "isthmus.dev/vpc",
    "isthmus.dev/nics",
    "isthmus.dev/vm",
    "isthmus.dev/tenant",
    "VPC",
    "containers",
  );
  const value: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
    any: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom("v1", "Pod", "Deployment", "List", "v", "[{}]", "{}", "a: {b: c}", null, 5, true, ""),
      fc.dictionary(key, tie("any"), { maxKeys: 5 }),
      fc.array(tie("any"), { maxLength: 3 }),
    ),
  })).any;
  const pod = fc.record({ apiVersion: fc.constant("v1"), kind: fc.constant("Pod"), metadata: value, spec: value });
  const text = fc.oneof(
    pod.map((one) => JSON.stringify(one)),
    fc.string(),
    fc
      .array(
        pod.map((one) => `---\n${JSON.stringify(one)}\n`),
        { maxLength: 3 },
      )
      .map((all) => all.join("")),
  );
  fc.assert(
    fc.property(text, fc.constantFrom("kubernetes", "arktos"), fc.constantFrom("yaml", "json"), (one, to, output) => {
      const result = convertManifests(one, { to, output, vmRuntime: { kind: "virtlet" } });
      if (!result.ok) assert.ok(result.faults.length > 0);
      else if (to === "kubernetes" && output === "yaml") {
        assert.equal(converted(result.text, { vmRuntime: { kind: "virtlet" } }), result.text);
      }
    }),
    { numRuns: 2000 },
  );
});

/** Creates an object with strict validation of fields. */
async function createStrictly(t: TestContext) {
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  t.after(() => server[Symbol.asyncDispose]());
  return async (path: string, body: unknown): Promise<{ readonly status: number; readonly text: string }> => {
    const response = await fetch(`${server.urls[0]}${path}?fieldValidation=Strict`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  };
}

test("T-5: an API server with strict validation refuses the pods of Arktos and takes the converted ones", async (t) => {
  const create = await createStrictly(t);
  const pods = "/api/v1/namespaces/default/pods";
  for (const name of NAMES) {
    const own = (text: string) => valuesOf(text.replace("name: nginx", `name: ${name}`))[0];
    const refused = await create(pods, own(PODS[name]));
    assert.equal(refused.status, 400);
    assert.match(refused.text, /unknown field .*spec\.vpc/);
    const taken = await create(pods, own(converted(PODS[name], { vmRuntime: { kind: "virtlet" } })));
    assert.equal(taken.status, 201, taken.text);
  }
  const deployment = {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "d", tenant: "blue" },
    spec: {
      selector: { matchLabels: { a: "b" } },
      template: {
        metadata: { labels: { a: "b" }, tenant: "blue" },
        spec: { vpc: "v", VMs: [{ name: "a", image: "b" }] },
      },
    },
  };
  const [ready] = valuesOf(converted(JSON.stringify(deployment)));
  const taken = await create("/apis/apps/v1/namespaces/default/deployments", ready);
  assert.equal(taken.status, 201, taken.text);
});
