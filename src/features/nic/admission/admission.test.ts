import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { applyEdits } from "#base/yaml";
import type { NicClaim, NicPolicySpec } from "#kube/nic";
import type { AdmissionAnswer, AdmissionRequest } from "#kube/webhook";
import { nicAdmissionHandlers } from "./handlers.ts";
import { mutatePod } from "./mutate.ts";
import { type NamespaceView, nicLimit, tenantOf, vpcAccess } from "./policy.ts";
import type { NicWorld } from "./reviewed-pod.ts";
import { validatePod } from "./validate-pod.ts";

const CONTROLLER = "system:serviceaccount:kube-system:nic-controller";
const PORT = "a2815656-76f7-46d4-9d11-057063db1a14";
const VPC = "isthmus.dev/vpc";
const NICS = "isthmus.dev/nics";

interface WorldInit {
  readonly policy?: NicPolicySpec;
  readonly namespaces?: Readonly<Record<string, NamespaceView>>;
  readonly claims?: readonly NicClaim[];
}

function worldOf({ policy = {}, namespaces = {}, claims = [] }: WorldInit = {}): NicWorld {
  return {
    // Whom a VPC is for has tests of its own.
    policy: { allowUnboundVPCs: true, ...policy },
    namespaces: { get: (name) => namespaces[name] },
    claims: {
      get: (namespace, name) => claims.find(({ metadata: m }) => m.namespace === namespace && m.name === name),
      values: () => claims,
    },
  };
}

function claimOf(uid: string, namespace: string, nics: number, status?: NicClaim["status"]): NicClaim {
  return {
    metadata: { name: uid, namespace, uid: `claim-${uid}`, resourceVersion: "1" },
    spec: {
      podName: "p",
      podUID: uid,
      vpc: "v",
      provider: "n",
      nics: Array.from({ length: nics }, (_, at) => ({ name: `eth${at}` })),
    },
    ...(status === undefined ? {} : { status }),
  };
}

let requests = 0;
function requestOf(
  annotations: Record<string, string>,
  init: Partial<AdmissionRequest> & {
    readonly uidOfPod?: string;
    readonly hostNetwork?: boolean;
    readonly old?: Record<string, string>;
  } = {},
): AdmissionRequest {
  const { uidOfPod, hostNetwork = false, old, ...rest } = init;
  const podWith = (texts: Record<string, string>) => ({
    metadata: { name: "a", annotations: texts, ...(uidOfPod === undefined ? {} : { uid: uidOfPod }) },
    spec: { hostNetwork },
  });
  requests += 1;
  return {
    uid: `request-${requests}`,
    operation: old === undefined ? "CREATE" : "UPDATE",
    kind: { group: "", version: "v1", kind: "Pod" },
    name: "a",
    namespace: "default",
    subResource: undefined,
    dryRun: false,
    object: podWith(annotations),
    oldObject: old === undefined ? undefined : podWith(old),
    userInfo: { username: "alice", groups: [] },
    ...rest,
  };
}

/** The faults of a review, each as `field: message`; `allowed` without one. */
function told(answer: AdmissionAnswer): readonly string[] {
  return answer.allowed ? [] : (answer.causes ?? []).map(({ field, message }) => `${field}: ${message}`);
}

function validate(request: AdmissionRequest, world: NicWorld = worldOf(), { isProven = true } = {}) {
  return told(validatePod(request, { world, controllerUser: CONTROLLER, isProven }));
}

/** The annotations after a mutation. */
function mutated(request: AdmissionRequest, world = worldOf()): unknown {
  const answer = mutatePod(request, world);
  assert.ok(answer.allowed);
  const edits = (answer.patch ?? []).map((operation) => {
    const path = operation.path
      .slice(1)
      .split("/")
      .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    assert.ok(operation.op === "add" || operation.op === "remove");
    return operation.op === "add" ? { path, value: operation.value } : { path, remove: true as const };
  });
  return (applyEdits(request.object, edits) as { metadata: { annotations: unknown } }).metadata.annotations;
}

const many = (count: number) => JSON.stringify(Array.from({ length: count }, () => ({})));

test("mutation: the normal form has canonical keys, defaults and no legacy annotations", () => {
  const one = [{ name: "eth0", subnet: "s", ip: "10.0.0.1" }];
  assert.deepEqual(mutated(requestOf({ [VPC]: "v", [NICS]: "- {subnetName: s, ipAddress: 10.0.0.1}" })), {
    [VPC]: "v",
    [NICS]: JSON.stringify(one),
  });
  assert.deepEqual(mutated(requestOf({ [VPC]: "v", other: "x" })), {
    [VPC]: "v",
    [NICS]: '[{"name":"eth0"}]',
    other: "x",
  });
  assert.deepEqual(mutated(requestOf({ VPC: "v", NICs: `[{"portid":"${PORT.toUpperCase()}"}]` })), {
    [VPC]: "v",
    [NICS]: JSON.stringify([{ name: "eth0", portID: PORT }]),
  });
  const world = worldOf({ namespaces: { default: { annotations: { "isthmus.dev/default-vpc": "blue" } } } });
  assert.deepEqual(mutated(requestOf({ [NICS]: "[{}]" }), world), { [VPC]: "blue", [NICS]: '[{"name":"eth0"}]' });
});

test("mutation: nothing of pods that are not ours, that are faulty, or whose wish stays as it is stored", () => {
  const faulty = { [VPC]: "v", [NICS]: "[[" };
  const host = { hostNetwork: true };
  for (const request of [
    requestOf({}),
    requestOf({ other: "x" }),
    requestOf(faulty),
    requestOf({ [VPC]: "v" }, host),
    requestOf({ [VPC]: "v" }, { old: { [VPC]: "v", x: "y" } }),
    requestOf({ [VPC]: "v" }, { subResource: "status" }),
    requestOf({ [VPC]: "v" }, { operation: "DELETE" }),
  ]) {
    const answer = mutatePod(request, worldOf());
    assert.deepEqual(answer.allowed && (answer.patch ?? []), []);
  }
});

test("mutation: a new pod with NICs gets the scheduling gate if the policy says so; a pod without NICs never has it", () => {
  const gated = worldOf({ policy: { schedulingGate: true } });
  const gate = { name: "isthmus.dev/nics" };
  const other = { name: "other" };
  const patchOf = (request: AdmissionRequest, world = gated): unknown => {
    const answer = mutatePod(request, world);
    assert.ok(answer.allowed);
    return (answer.patch ?? []).filter(({ path }) => path.startsWith("/spec"));
  };
  const pod = (annotations: Record<string, string>, spec: object = {}): AdmissionRequest => {
    const request = requestOf(annotations);
    return { ...request, object: { ...request.object, spec } as typeof request.object };
  };
  const wish = { [VPC]: "v" };
  const whole = [{ op: "add", path: "/spec/schedulingGates", value: [gate] }];
  assert.deepEqual(patchOf(pod(wish)), whole);
  assert.deepEqual(patchOf(pod({ VPC: "v", NICs: "[{}]" })), whole);
  assert.deepEqual(patchOf(pod(wish, { schedulingGates: [other] })), [
    { op: "add", path: "/spec/schedulingGates/-", value: gate },
  ]);
  assert.deepEqual(patchOf(pod(wish), worldOf()), [], "it is off by default");
  assert.deepEqual(
    patchOf(pod(wish, { schedulingGates: [gate] }), worldOf()),
    [],
    "one that a user wrote is removed later",
  );
  assert.deepEqual(patchOf(pod(wish, { schedulingGates: [gate] })), []);
  assert.deepEqual(patchOf(pod(wish, { nodeName: "node-1" })), [], "it has its node already");
  assert.deepEqual(patchOf(pod({ [VPC]: "v", [NICS]: "[[" })), [], "a faulty one is refused");
  assert.deepEqual(patchOf(requestOf(wish, { old: wish })), [], "gates are never added later");
  assert.deepEqual(patchOf(pod({})), []);
  for (const [annotations, spec] of [
    [{}, {}],
    [wish, { hostNetwork: true }],
  ] as const) {
    assert.deepEqual(patchOf(pod(annotations, { ...spec, schedulingGates: [other, gate] })), [
      { op: "remove", path: "/spec/schedulingGates/1" },
    ]);
  }
});

test("mutation: a manifest that is applied again to its own pod keeps the normal form", () => {
  const stored = { [VPC]: "v", [NICS]: '[{"name":"eth0","subnet":"s"}]' };
  const again = requestOf({ VPC: "v", [VPC]: "v", [NICS]: '[{"subnet":"s"}]' }, { old: stored });
  assert.deepEqual(mutated(again), stored);
  assert.deepEqual(validate(again), []);
});

test("mutation: NICs that are added to a running pod without a name get none, so that the validation refuses them", () => {
  const stored = { [VPC]: "v", [NICS]: '[{"name":"eth0"}]' };
  const added = { [VPC]: "v", [NICS]: '[{"name":"eth0"},{}]' };
  const request = requestOf(added, { old: stored });
  assert.deepEqual(mutated(request), added);
  const world = worldOf({ policy: { hotplug: true } });
  assert.deepEqual(validate(request, world), ["nics: Forbidden: NICs are immutable"]);
  assert.deepEqual(
    validate(requestOf({ [VPC]: "v", [NICS]: '[{"name":"eth0"},{"name":"eth1"}]' }, { old: stored }), world),
    [],
  );
});

test("T-52: a status that a user writes is dropped on create, and nobody but the controller edits one", () => {
  const status = { "isthmus.dev/nic-status": '[{"name":"eth0","state":"Ready"}]', "isthmus.dev/claim": "x" };
  assert.deepEqual(mutated(requestOf({ ...status, other: "y" })), { other: "y" });
  const forbidden = ["nic-status", "claim"].map(
    (key) => `metadata.annotations[isthmus.dev/${key}]: Forbidden: only the network controller writes it`,
  );
  const controller = { userInfo: { username: CONTROLLER, groups: [] } };
  for (const [annotations, old] of [
    [status, undefined],
    [status, {}],
    [{}, status],
  ] as const) {
    const init = old === undefined ? {} : { old };
    assert.deepEqual(validate(requestOf(annotations, init)), forbidden);
    assert.deepEqual(validate(requestOf(annotations, { ...init, ...controller })), []);
  }
  assert.deepEqual(validate(requestOf({ ...status, a: "b" }, { old: status })), []);
});

test("validation: faults of the fields have their exact texts, and are one line of the denial", () => {
  const request = requestOf({ [VPC]: "a/b", [NICS]: '[{"ip":"x","subnet":"s"}]' });
  const answer = validatePod(request, {
    world: worldOf(),
    controllerUser: "",
    isProven: true,
  });
  assert.ok(!answer.allowed);
  assert.equal(
    answer.message,
    'Pod "a" is invalid: [vpc: Invalid value: "a/b": must be a VPC name or id, nics[0].ip: Invalid value: "x": must be a unicast IP address]',
  );
});

test("validation: a change follows the update rules, with the ports of the claim; a faulty pod may be put right", () => {
  const old = { [VPC]: "v", [NICS]: '[{"name":"eth0"}]' };
  const ready: NicClaim["status"] = { nics: [{ name: "eth0", portID: PORT, state: "Ready" }] };
  const world = worldOf({ claims: [claimOf("uid-a", "default", 1, ready)] });
  const change = (annotations: Record<string, string>, before: Record<string, string> = old) =>
    validate(requestOf(annotations, { old: before, uidOfPod: "uid-a" }), world);
  assert.deepEqual(change({ ...old, [VPC]: "w" }), ["vpc: Forbidden: may not change"]);
  assert.deepEqual(change({}), ["vpc: Forbidden: may not change"]);
  assert.deepEqual(change(old, {}), ["vpc: Forbidden: may not change"]);
  assert.deepEqual(change({ ...old, [NICS]: '[{"name":"data"}]' }), [
    "nics: Required value: one NIC must be named eth0",
  ]);
  assert.deepEqual(change({ ...old, [NICS]: `[{"name":"eth0","portID":"${PORT.replace("a", "b")}"}]` }), [
    "nics[eth0].portID: Forbidden: may not change once assigned",
  ]);
  assert.deepEqual(change({ ...old, [NICS]: `[{"name":"eth0","portID":"${PORT}"}]` }), []);
  assert.deepEqual(change(old, { [VPC]: "v", [NICS]: "[[" }), []);
});

test("validation: a pod with the network of its node is admitted with a warning, and its fields are not checked", () => {
  const request = requestOf({ [VPC]: "a/b", [NICS]: "[[" }, { hostNetwork: true });
  const answer = validatePod(request, {
    world: worldOf(),
    controllerUser: "",
    isProven: true,
  });
  assert.ok(answer.allowed);
  assert.match(answer.warnings?.join() ?? "", /has the network of its node, so it gets no ports/);
});

test("T-51: a namespace that requires a VPC admits no pod without one", () => {
  const world = worldOf({ namespaces: { default: { labels: { "isthmus.dev/require-vpc": "true" } } } });
  const refused = ["metadata.annotations[isthmus.dev/vpc]: Required value: this namespace only admits VPC pods"];
  assert.deepEqual(validate(requestOf({}), world), refused);
  assert.deepEqual(validate(requestOf({}, { hostNetwork: true }), world), refused);
  assert.deepEqual(validate(requestOf({}, { namespace: "other" }), world), []);
  assert.deepEqual(validate(requestOf({ [VPC]: "v" }), world), []);
  assert.deepEqual(validate(requestOf({ VPC: "v" }), world), []);
  assert.deepEqual(validate(requestOf({ a: "b" }, { old: {} }), world), [], "a pod that is there already can change");
});

test("validation: a VPC is for the namespaces of its binding, and without a binding closed as soon as one names namespaces", () => {
  const policy: NicPolicySpec = {
    vpcBindings: [
      { vpc: "blue", projectID: "p", namespaces: ["team-a"] },
      { vpc: "blue", projectID: "p", provider: "p2", namespaces: ["team-b"] },
      { vpc: "free", projectID: "p", provider: "p1" },
    ],
  };
  const says = (vpc: string, namespace: string, of = policy) =>
    validate(requestOf({ [VPC]: vpc }, { namespace }), worldOf({ policy: of }));
  const no = (vpc: string, namespace: string) => [
    `metadata.annotations[isthmus.dev/vpc]: Forbidden: VPC "${vpc}" is not available in namespace "${namespace}"`,
  ];
  assert.deepEqual([says("blue", "team-a"), says("blue", "team-b"), says("free", "team-c")], [[], [], []]);
  assert.deepEqual(says("blue", "team-c"), no("blue", "team-c"));
  assert.deepEqual(says(PORT, "team-c"), no(PORT, "team-c"), "the id of a VPC is no way around its name");
  assert.deepEqual(says("any", "team-c", { vpcBindings: [{ vpc: "free", provider: "p1" }] }), []);
  assert.deepEqual(vpcAccess(policy, "blue", "team-b"), { isAllowed: true, binding: policy.vpcBindings?.[1] });
  assert.deepEqual(vpcAccess({ allowUnboundVPCs: true }, "x", "y"), { isAllowed: true, binding: undefined });
});

test("validation: without a policy, and by one without bindings, no namespace may use any VPC, by name or by id, unless it says so", () => {
  const closed: readonly NicPolicySpec[] = [
    {},
    { allowUnboundVPCs: false },
    { hotplug: true },
    { vpcBindings: [{ vpc: "free", projectID: "p" }] },
    { allowUnboundVPCs: true, vpcBindings: [{ vpc: "blue", namespaces: ["team-a"] }] },
  ];
  for (const policy of closed)
    for (const vpc of ["any", PORT]) {
      const context = { world: { ...worldOf(), policy }, controllerUser: CONTROLLER, isProven: true };
      const answer = validatePod(requestOf({ [VPC]: vpc }, { namespace: "team-c" }), context);
      assert.equal(answer.allowed, false, JSON.stringify(policy));
    }
  assert.deepEqual(vpcAccess({ vpcBindings: [{ vpc: PORT }] }, PORT, "any"), {
    isAllowed: true,
    binding: { vpc: PORT },
  });
});

test("validation: a binding by name binds nothing without a project, in which alone the name is looked up; an id and a provider of one project need none", () => {
  const free = { vpc: "free" };
  const access = (policy: NicPolicySpec) => {
    const found = vpcAccess(policy, "free", "any");
    return found.isAllowed ? (found.binding?.projectID ?? "open") : found.why;
  };
  const why = 'its binding in NicPolicy default has no projectID, and "free" is a name';
  const provider = (name: string, init: object = {}) => ({ name, type: "neutron" as const, ...init });
  const alcor = { name: "a", type: "alcor" as const };
  const rows: readonly (readonly [NicPolicySpec, string])[] = [
    [{ vpcBindings: [free] }, why],
    [{ vpcBindings: [{ ...free, namespaces: ["any"] }] }, why],
    [{ vpcBindings: [free, { ...free, projectID: "p" }] }, "p"],
    [{ vpcBindings: [free], allowUnboundVPCs: true }, "open"],
    [{ vpcBindings: [free], allowUnboundVPCs: false }, why],
    [{ vpcBindings: [free], providers: [alcor] }, "open"],
    [{ vpcBindings: [{ ...free, provider: "a" }], providers: [provider("n", { default: true }), alcor] }, "open"],
    [{ vpcBindings: [free], providers: [provider("n", { default: true }), alcor] }, why],
    [{ vpcBindings: [{ ...free, provider: "gone" }], providers: [alcor] }, why],
    [{ vpcBindings: [free], providers: [provider("n", { config: { vpcIs: "project" } })] }, "open"],
    [{ vpcBindings: [free], providers: [provider("n", { config: { vpcIs: "network" } })] }, why],
  ];
  for (const [policy, wanted] of rows) assert.equal(access(policy), wanted, JSON.stringify(policy));
  assert.ok(vpcAccess({ vpcBindings: [{ vpc: PORT.toUpperCase() }] }, PORT.toUpperCase(), "any").isAllowed);
  assert.deepEqual(
    validate(requestOf({ [VPC]: "free" }), { ...worldOf(), policy: { vpcBindings: [free] } }),
    ['metadata.annotations[isthmus.dev/vpc]: Forbidden: VPC "free" is not available in namespace "default"'],
    "tenants are not told of the policy",
  );
});

test("T-49: limits of containers, flavors and tenants, the lowest with its reason", () => {
  const policy: NicPolicySpec = {
    containers: { maxNics: 3 },
    flavors: { "m1.small": { maxNics: 2 }, "m1.huge": { maxNics: 40 } as { maxNics: number }, "m1.none": {} },
    tenants: [{ name: "t", selector: { names: ["tenant-ns"] }, maxNics: 2 }],
  };
  const says = (count: number, vm: string | undefined, namespace = "default", of: NicPolicySpec = policy) =>
    validate(
      requestOf(
        { [VPC]: "v", [NICS]: many(count), ...(vm === undefined ? {} : { "isthmus.dev/vm": vm }) },
        { namespace },
      ),
      worldOf({ policy: of }),
    );
  const flavor = (name: string) => JSON.stringify({ flavor: name });
  assert.deepEqual([says(3, undefined), says(2, flavor("m1.small")), says(32, flavor("m1.huge"))], [[], [], []]);
  assert.deepEqual(says(4, undefined), ["nics: Too many: 4: a pod with containers has at most 3"]);
  assert.deepEqual(says(5, undefined, "default", {}), ["nics: Too many: 5: a pod with containers has at most 4"]);
  assert.deepEqual(says(3, flavor("m1.small")), ['nics: Too many: 3: flavor "m1.small" allows at most 2']);
  assert.deepEqual(says(2, flavor("other")), ['nics: Too many: 2: flavor "other" allows at most 1']);
  assert.deepEqual(says(2, flavor("constructor")), ['nics: Too many: 2: flavor "constructor" allows at most 1']);
  assert.deepEqual(says(2, "{}"), ["nics: Too many: 2: a virtual machine without a flavor has at most 1"]);
  assert.deepEqual(says(3, flavor("other"), "default", { unknownFlavor: { maxNics: 3 } }), []);
  assert.deepEqual(says(3, undefined, "tenant-ns"), ['nics: Too many: 3: tenant "t" allows at most 2']);
  assert.deepEqual(says(33, flavor("m1.huge")), ["nics: Too many: 33: at most 32"]);
  assert.deepEqual(nicLimit(policy, { flavor: "m1.none", rest: {} }, undefined).maxNics, 32);
});

test("T-49: of a pod whose limit was lowered, everything but the number of NICs can change", () => {
  const old = { [VPC]: "v", [NICS]: '[{"name":"eth0"},{"name":"eth1"}]' };
  const world = worldOf({ policy: { containers: { maxNics: 1 } } });
  assert.deepEqual(
    validate(requestOf({ ...old, [NICS]: '[{"name":"eth0","tag":"t"},{"name":"eth1"}]' }, { old }), world),
    [],
  );
  assert.deepEqual(validate(requestOf({ ...old, "isthmus.dev/vm": "{flavor: x}" }, { old }), world), [
    'nics: Too many: 2: flavor "x" allows at most 1',
  ]);
});

test("tenants: the first that selects a namespace by name or by all of its labels", () => {
  const policy: NicPolicySpec = {
    tenants: [
      { name: "none", selector: {} },
      { name: "labels", selector: { matchLabels: { a: "1", b: "2" } } },
      { name: "names", selector: { names: ["x", "y"] } },
    ],
  };
  assert.equal(tenantOf(policy, "x")?.name, "names");
  assert.equal(tenantOf(policy, "x", { labels: { a: "1", b: "2" } })?.name, "labels");
  assert.equal(tenantOf(policy, "z", { labels: { a: "1" } }), undefined);
});

const QUOTA: NicPolicySpec = { tenants: [{ name: "t", selector: { names: ["default", "second"] }, maxPorts: 10 }] };

test("quota: claims of all namespaces of the tenant count until they are released, and the text has both numbers", () => {
  const releasing = claimOf("d", "default", 4, { phase: "Releasing" });
  const claims = [claimOf("a", "default", 4), claimOf("b", "second", 4), claimOf("c", "third", 4), releasing];
  const world = worldOf({ policy: QUOTA, claims });
  assert.deepEqual(validate(requestOf({ [VPC]: "v", [NICS]: many(2) }), world), []);
  assert.deepEqual(validate(requestOf({ [VPC]: "v", [NICS]: many(3) }), world), [
    'nics: Forbidden: tenant "t" would use 11 ports of 10',
  ]);
  assert.deepEqual(validate(requestOf({ [VPC]: "v", [NICS]: many(3) }, { namespace: "third" }), world), []);
  const grown = '[{"name":"eth0"},{"name":"eth1"},{"name":"eth2"},{"name":"eth3"},{"name":"eth4"}]';
  const old = { [VPC]: "v", [NICS]: '[{"name":"eth0"},{"name":"eth1"},{"name":"eth2"},{"name":"eth3"}]' };
  const hot = worldOf({ policy: { ...QUOTA, hotplug: true, containers: { maxNics: 9 } }, claims });
  assert.deepEqual(validate(requestOf({ [VPC]: "v", [NICS]: grown }, { old, uidOfPod: "a" }), hot), []);
});

test("limits: who has not proved to be an API server is told no number, no tenant and no flavor's limit", () => {
  const policy = { ...QUOTA, flavors: { "m1.small": { maxNics: 2 } }, containers: { maxNics: 12 } };
  const world = worldOf({ policy, claims: [claimOf("a", "default", 4)] });
  const says = (nics: string, annotations: Record<string, string> = {}): readonly string[] =>
    validate(requestOf({ [VPC]: "v", [NICS]: nics, ...annotations }), world, { isProven: false });
  assert.deepEqual(says(many(7)), [
    "nics: Forbidden: more ports than this namespace's tenant has left; its administrator knows how many",
  ]);
  assert.deepEqual(says(many(3), { "isthmus.dev/vm": '{"flavor":"m1.small"}' }), [
    "nics: Too many: 3: more than the NIC policy allows here; its administrator knows how many",
  ]);
  assert.deepEqual(says(many(2)), []);
});

test("quota: a review changes nothing for the next one, whoever sends it and however often", async () => {
  const world = worldOf({ policy: QUOTA, claims: [claimOf("a", "default", 3)] });
  const { "/validate-v1-pod": handler } = nicAdmissionHandlers({
    world: async () => world,
    controllerUser: CONTROLLER,
  });
  assert.ok(handler !== undefined);
  const { signal } = new AbortController();
  const ask = (count: number, at: number) =>
    handler(requestOf({ [VPC]: "v", [NICS]: many(count) }, { uidOfPod: `pod-${at}` }), { signal, isProven: false });
  const answers = await Promise.all(Array.from({ length: 20 }, (_, at) => ask(4, at)));
  assert.deepEqual(
    new Set(answers.map(({ allowed }) => allowed)),
    new Set([true]),
    "the controller gives ports to those that fit",
  );
  assert.deepEqual(told(await ask(4, 0)), []);
});

test("admission: any annotations are admitted or refused, and a mutated pod is in normal form (fuzz)", () => {
  const key = fc.constantFrom(VPC, NICS, "isthmus.dev/vm", "VPC", "NICs", "isthmus.dev/claim", "__proto__", "x");
  const text = fc.oneof(
    fc.string(),
    fc.json({ maxDepth: 3 }),
    fc.constantFrom("v", "[{}]", '[{"name":"eth0"}]', "- {ip: 10.0.0.1, subnet: s}"),
  );
  fc.assert(
    fc.property(
      fc.dictionary(key, text),
      fc.option(fc.dictionary(key, text), { nil: undefined }),
      (annotations, old) => {
        const request = requestOf(annotations, old === undefined ? {} : { old });
        const after = mutated(request) as Record<string, string>;
        const { object } = requestOf(after);
        const once = { ...request, ...(object === undefined ? {} : { object }) };
        assert.deepEqual(mutated(once), after);
        if (old === undefined && !("isthmus.dev/claim" in annotations))
          assert.deepEqual(validate(once), validate(request));
      },
    ),
    { numRuns: 1000 },
  );
});
