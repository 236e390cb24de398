import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeApi } from "#kube/client";
import { defaultPullPolicy, OwnPod } from "./own-pod.ts";

test("defaultPullPolicy: as an API server has it, by the tag", () => {
  const always = ["isthmus", "isthmus:latest", "registry:5000/isthmus", "a/b:latest@sha256:00"];
  for (const image of always) assert.equal(defaultPullPolicy(image), "Always", image);
  const once = ["isthmus:0.2.0", "registry:5000/isthmus:1", "isthmus@sha256:00", "registry:5000/a/isthmus@sha256:00"];
  for (const image of once) assert.equal(defaultPullPolicy(image), "IfNotPresent", image);
});

test("OwnPod: the image of the first container with its Secrets, each once, and its policy only where it is not the default", async () => {
  const imageOf = (spec: object) => {
    const api = { get: async () => ({ metadata: { namespace: "kube-system", name: "own" }, spec }) };
    const own = new OwnPod({ COIL_POD_NAMESPACE: "kube-system", COIL_POD_NAME: "own" });
    return own.image(api as unknown as KubeApi, { signal: new AbortController().signal });
  };
  const container = { name: "c", image: "isthmus:1", imagePullPolicy: "IfNotPresent" };
  assert.deepEqual(await imageOf({ containers: [container] }), { image: "isthmus:1", pullSecrets: [] });
  assert.deepEqual(
    await imageOf({
      containers: [
        { ...container, imagePullPolicy: "Always" },
        { name: "other", image: "other:1" },
      ],
      imagePullSecrets: [{ name: "a" }, {}, { name: "b" }, { name: "a" }],
    }),
    { image: "isthmus:1", pullPolicy: "Always", pullSecrets: ["a", "b"] },
  );
  await assert.rejects(imageOf({ containers: [{ name: "c" }] }), /names no image; give --image/);
});
