import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { labPaths } from "#lab/host";
import { ISTHMUS, isthmus, removeLab, start, stateOf } from "#test/lab";

const LAB = "ct-coild";
const SOCKET = labPaths(LAB).socketOf("node1");
const same = (value: Buffer): Buffer => value;
let client: Client;

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=1", "--pods=1"]);
  assert.equal(code, 0, stderr);
  client = new Client(`unix:${SOCKET}`, credentials.createInsecure());
});

after(async () => {
  client?.close();
  await removeLab(LAB);
});

/** Sends one message on a stream and waits for its end. */
function ask(path: string, request: Buffer): Promise<Buffer[]> {
  const call = client.makeBidiStreamRequest(path, same, same);
  const answers: Buffer[] = [];
  return new Promise((resolve, reject) => {
    call.on("data", (answer: Buffer) => answers.push(answer));
    call.on("error", reject);
    call.on("end", () => resolve(answers));
    call.write(request);
    call.end();
  });
}

test("coild: as shipped it describes its service by reflection", async () => {
  for (const version of ["v1", "v1alpha"]) {
    // ServerReflectionRequest with list_services = "".
    const path = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    const [answer, ...more] = await ask(path, Buffer.from([0x3a, 0]));
    assert.deepEqual(more, []);
    assert.ok(answer?.includes("pkg.cnirpc.CNI"));
  }
});

test("coild: its socket is for root alone, and an unknown method is UNIMPLEMENTED", async () => {
  assert.equal(statSync(SOCKET).mode & 0o777, 0o600);
  const call = new Promise((resolve, reject) => {
    const done = (error: ServiceError | null, reply?: Buffer): void =>
      error === null ? resolve(reply) : reject(error);
    client.makeUnaryRequest("/pkg.cnirpc.CNI/Nope", same, same, Buffer.alloc(0), new Metadata(), done);
  });
  await assert.rejects(call, { code: 12 });
});

test("coil: as shipped it refuses to make a pod of the node's own network namespace", async () => {
  const [node] = stateOf(LAB).nodes;
  const netns = `/run/netns/${node?.netns}`;
  const config = { cniVersion: "1.0.0", name: "k8s-pod-network", type: "coil", socket: SOCKET };
  const env = {
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_IFNAME: "eth0",
    CNI_NETNS: netns,
    CONFIG: JSON.stringify(config),
  };
  const plugin = join(ISTHMUS, "../cni/coil");
  const inNode = ["nsenter", `--net=${netns}`, "sh", "-c", `printf %s "$CONFIG" | ${plugin}`];
  const { code, stdout } = await start(inNode, { env }).ended;
  assert.deepEqual([code, JSON.parse(stdout).code], [1, 8], stdout);
});
